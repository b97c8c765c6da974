//! `[budget]`.

use tollgate::config::{BudgetConfig, Config, LedgerKind, validate};

use super::{refused, taken};
use crate::config::{BASE, base_with, keys_of, load};

const HERE: &str = "[capabilities]";
const URL: &str = "notify_url = \"https://hitl.example/budgets\"";
const SECRET: &str = "notify_secret = \"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\"";

fn budget(lines: &str) -> String {
    format!("[budget]\n{lines}\n\n[capabilities]")
}

#[test]
fn a_store_of_its_own_has_a_url() {
    let url = |url: &str| budget(&format!("store = \"redis\"\nredis_url = \"{url}\""));
    for fine in [
        "redis://redis",
        "redis://127.0.0.1:6379/0",
        "rediss://user:pass%23word@redis.example:6380/15",
        "redis://:password@[::1]:6379",
    ] {
        taken(HERE, &url(fine));
    }
    for (wrong, message) in [
        ("", "must begin with"),
        ("http://redis", "must begin with"),
        ("unix:///run/redis.sock", "must begin with"),
        ("redis://", "not a URL"),
        ("redis:///0", "not a URL"),
        ("redis://:pass word@h", "not a URL"),
        ("redis://h/first", "the database's number"),
        ("rediss://h/#insecure", "no fragment"),
    ] {
        refused(HERE, &url(wrong), "budget.redis_url", message);
    }
    refused(HERE, &budget("store = \"redis\""), "budget.redis_url", "is missing");
    taken(HERE, &budget("redis_url = \"redis://h\""));
    taken(HERE, &budget("on_store_failure = \"static-share\"\nreplicas = 3"));
}

#[test]
fn a_notice_goes_where_nobody_listens_in() {
    let url = |url: &str| budget(&format!("notify_url = \"{url}\"\n{SECRET}"));
    for fine in [
        "https://h",
        "https://h:8443/a?b=c",
        "http://127.0.0.1:1/",
        "http://[::1]",
        "http://localhost",
    ] {
        taken(HERE, &url(fine));
    }
    for (wrong, message) in [
        ("http://hitl.example/", "must be https"),
        ("http://localhost.example/", "must be https"),
        ("https://user:word@hitl.example/", "holds credentials"),
        ("https://word@hitl.example/", "holds credentials"),
        ("https://h/#part", "fragment"),
        ("ftp://h/", "must begin with"),
        ("", "not a URL"),
    ] {
        refused(HERE, &url(wrong), "budget.notify_url", message);
    }
}

#[test]
fn its_secret_is_long_enough_and_of_one_of_two_forms() {
    let secret = |secret: &str| budget(&format!("{URL}\nnotify_secret = \"{secret}\""));
    let whsec = |bytes: usize| format!("whsec_{}", "AAAA".repeat(bytes / 3));
    for fine in [&*"x".repeat(24), &"x".repeat(200), &whsec(24), &whsec(63)] {
        taken(HERE, &secret(fine));
    }
    for (wrong, message) in [
        ("", "too short"),
        (&*"x".repeat(23), "too short"),
        (&format!("{}\\n", "x".repeat(24)), "a line's end"),
        (&whsec(21), "24 to 64 bytes"),
        (&whsec(66), "24 to 64 bytes"),
        ("whsec_", "24 to 64 bytes"),
        ("whsec_not*base64", "no base64"),
    ] {
        refused(HERE, &secret(wrong), "budget.notify_secret", message);
    }
}

#[test]
fn leases_are_of_a_shared_store_and_short() {
    taken(HERE, &budget("lease_ms = 0"));
    refused(HERE, &budget("lease_ms = 1"), "budget.lease_ms", "store = \"memory\" has none");
    for (lease_ms, fine) in [(1, true), (50, true), (51, false)] {
        let mut config = load(BASE, &[]).expect("a configuration");
        config.budget = BudgetConfig { store: LedgerKind::Redis, lease_ms, ..config.budget };
        let errors = validate(&config).err().map(|errors| errors.to_string()).unwrap_or_default();
        assert_eq!(!errors.contains("budget.lease_ms"), fine, "{lease_ms}: {errors}");
    }
}

#[test]
fn the_url_and_the_secret_go_together() {
    taken(HERE, &budget(&format!("{URL}\n{SECRET}")));
    refused(HERE, &budget(URL), "budget.notify_secret", "is missing");
    refused(HERE, &budget(SECRET), "budget.notify_secret", "signs nothing");
    // What follows from a value that could not be read is not told.
    let unset = budget("notify_url = \"https://h\"\nnotify_secret = \"${NONE}\"");
    let errors = load(&base_with(HERE, &unset), &[]).expect_err("NONE is not set");
    assert_eq!(errors.iter().count(), 1, "{errors}");
    let unread = base_with(HERE, &budget(&format!("notify_url = 5\n{SECRET}")));
    assert_eq!(keys_of(&unread), ["budget.notify_url"]);

    let mut config = Config::from_toml_str(BASE).unwrap();
    config.budget.notify_url = Some("https://h".to_owned());
    assert!(validate(&config).is_err());
}
