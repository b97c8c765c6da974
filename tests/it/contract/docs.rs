//! The page at /docs works without a network: all that it needs comes from the gateway.

use std::{collections::BTreeSet, path::Path};

use crate::support::{app::TestApp, client::Client};

/// The values of `src` and `href` in a page.
fn references(html: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for attribute in ["src=\"", "href=\""] {
        let values = html.split(attribute).skip(1).filter_map(|rest| rest.split('"').next());
        found.extend(values.map(str::to_owned));
    }
    found
}

fn is(path: &str, extension: &str) -> bool {
    Path::new(path).extension().is_some_and(|found| found == extension)
}

/// What a style sheet fetches.
fn fetched_by_css(css: &str) -> impl Iterator<Item = &str> {
    let urls = css.split("url(").skip(1).filter_map(|rest| rest.split(')').next());
    urls.map(|url| url.trim_matches(['"', '\'']))
}

async fn asset(client: &Client, path: &str) -> String {
    let response = client.get(path).send().await;
    assert_eq!(response.status, 200, "{path}");
    let policy = response.header("content-security-policy").expect("a policy").to_owned();
    assert!(policy.contains("default-src 'self'"), "{path}: {policy}");
    assert!(policy.contains("frame-ancestors 'none'"), "{path}: {policy}");
    assert!(!policy.contains("http") && !policy.contains("unsafe-eval"), "{path}: {policy}");
    assert_eq!(response.header("x-content-type-options"), Some("nosniff"), "{path}");
    let extension = path.rsplit('.').next().unwrap_or_default();
    let expected = match extension {
        "css" => "text/css",
        "js" => "text/javascript",
        "png" => "image/png",
        _ => "text/html",
    };
    let content_type = response.header("content-type").unwrap_or_default();
    assert!(content_type.starts_with(expected), "{path} is {content_type}");
    String::from_utf8_lossy(&response.bytes().await).into_owned()
}

#[tokio::test]
async fn the_page_needs_nothing_from_elsewhere_and_its_policy_lets_it_work() {
    let app = TestApp::start().await;
    let client = app.stranger();
    let page = asset(&client, "/docs/").await;
    // The policy allows scripts from files alone: one in the page would be dead.
    for script in page.split("<script").skip(1) {
        let (tag, rest) = script.split_once('>').unwrap();
        assert!(tag.contains("src="), "an inline script: <script{tag}>");
        assert!(rest.trim_start().starts_with("</script>"), "code beside src: {rest:.80}");
    }
    assert!(!page.contains(" onload=") && !page.contains(" onclick="), "inline handlers");
    let references = references(&page);
    assert!(references.iter().any(|one| is(one, "js")), "{references:?}");
    assert!(references.iter().any(|one| is(one, "css")), "{references:?}");
    let mut initializer = None;
    for reference in references {
        let relative = reference.trim_start_matches("./");
        assert!(!relative.contains("//") && !relative.starts_with('/'), "elsewhere: {reference}");
        let text = asset(&client, &format!("/docs/{relative}")).await;
        assert!(!text.is_empty(), "{reference}");
        if is(relative, "css") {
            for url in fetched_by_css(&text) {
                assert!(url.starts_with("data:"), "{reference} fetches {url}");
            }
        }
        if relative.contains("initializer") {
            initializer = Some(text);
        }
    }
    let initializer = initializer.expect("the script that names the document");
    assert!(initializer.contains("\"/openapi.json\""), "{initializer}");
    // Else the page asks a server of Swagger's to validate the document.
    assert!(initializer.contains("\"validatorUrl\": \"none\""), "{initializer}");
    assert!(!initializer.contains("http"), "it names another server: {initializer}");
    app.shutdown().await;
}

#[tokio::test]
async fn a_page_that_there_is_not_is_an_error_like_any_other() {
    let app = TestApp::start().await;
    let response = app.stranger().get("/docs/none.js").send().await;
    assert_eq!(response.status, 404);
    assert_eq!(response.header("content-type"), Some("application/problem+json"));
    assert_eq!(response.json().await["code"], "not_found");
    app.shutdown().await;
}
