//! Which module may know of which (DESIGN §3): read from the sources, so that it stays so.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use super::root;

/// The middle layer: each knows of `domain` and `config`, not of its neighbours.
const MIDDLE: &[&str] = &["auth", "budget", "redact", "provider", "stream", "audit"];

/// Which modules a module may name. `domain`, `config` and `offload` are open to all above them.
fn allowed(module: &str) -> BTreeSet<&'static str> {
    let above: &[&str] = match module {
        "main" => return BTreeSet::from(["cli"]),
        // The words that all others speak; threads to compute on, whatever it is.
        "domain" | "offload" | "fail_point" => return BTreeSet::new(),
        "config" => return BTreeSet::from(["domain"]),
        "cli" => &["app", "http", "storage", "telemetry"],
        "app" => &["http", "pipeline", "storage", "telemetry"],
        "http" => &["pipeline", "telemetry"],
        "pipeline" => &["telemetry"],
        // What strangers said is taken out of lines and spans before they are written.
        "telemetry" => &["redact"],
        // Its adapters implement the audit's traits.
        "storage" => &["audit"],
        _ => &[],
    };
    let middle: &[&str] =
        if matches!(module, "cli" | "app" | "http" | "pipeline") { MIDDLE } else { &[] };
    ["domain", "config", "offload", "fail_point"]
        .iter()
        .chain(above)
        .chain(middle)
        .copied()
        .collect()
}

/// Edges between neighbours of the middle layer, each with the reason why it may be.
const SIDEWAYS: &[(&str, &str, &str)] = &[
    (
        "stream",
        "provider",
        "an outlet writes what a provider's stream brings: its events and the view of a chunk",
    ),
    ("audit", "redact", "no secret reaches a sink, whoever made the entry that it is in"),
];

/// Crates that stand for a boundary, and the modules that may know of them.
const CRATES: &[(&str, &[&str])] = &[
    ("axum", &["http"]),
    // `provider` speaks to its servers over hyper's client.
    ("hyper", &["http", "provider"]),
    ("hyper_util", &["http", "provider"]),
    ("hyper_rustls", &["provider"]),
    ("h2", &["provider"]),
    ("tower_governor", &["http"]),
    ("tower_http", &["http"]),
    ("utoipa", &["http"]),
    ("utoipa_axum", &["http"]),
    ("utoipa_swagger_ui", &["http"]),
    ("sqlx", &["storage"]),
    ("redis", &["budget"]),
    // `budget` tells of what busted: a POST to `budget.notify_url`, in `notice::webhook` alone.
    ("reqwest", &["provider", "auth", "tool", "budget"]),
    ("jsonwebtoken", &["auth"]),
    ("opentelemetry", &["telemetry"]),
    ("opentelemetry_otlp", &["telemetry"]),
    ("opentelemetry_sdk", &["telemetry"]),
    ("tracing_opentelemetry", &["telemetry"]),
    // `config` checks `telemetry.log` with the parser of such filters.
    ("tracing_subscriber", &["telemetry", "config"]),
    ("tiktoken", &["budget"]),
    ("clap", &["cli"]),
    ("rustix", &["cli", "fail_point"]),
];

/// A file of `src/`, its module at the top level, and its code without comments and literals.
struct Source {
    path: String,
    module: String,
    code: String,
    lines: usize,
}

fn sources() -> Vec<Source> {
    let mut files = Vec::new();
    walk(&root().join("src"), &mut files);
    files.sort();
    let read = |path: &PathBuf| {
        let text = fs::read_to_string(path).unwrap();
        let relative = path.strip_prefix(root().join("src")).unwrap().display().to_string();
        let module = relative.split('/').next().unwrap().trim_end_matches(".rs").to_owned();
        Source { module, code: code_of(&text), lines: text.lines().count(), path: relative }
    };
    files.iter().map(read).collect()
}

fn walk(directory: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            walk(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
}

/// Blanks comments, strings and characters, so that only names remain.
fn code_of(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut code = String::with_capacity(text.len());
    let mut at = 0;
    while at < bytes.len() {
        let rest = &text[at..];
        let skipped = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("/*") {
            rest.find("*/").map_or(rest.len(), |end| end + 2)
        } else if let Some(hashes) = raw_string(rest, code.chars().last()) {
            let end = format!("\"{}", "#".repeat(hashes));
            let opened = hashes + 2;
            rest[opened..].find(&end).map_or(rest.len(), |found| opened + found + end.len())
        } else if rest.starts_with('"') {
            quoted(rest, b'"')
        } else if is_character(rest) {
            quoted(rest, b'\'')
        } else {
            0
        };
        if skipped > 0 {
            code.push(' ');
            at += skipped;
        } else {
            let next = rest.chars().next().unwrap();
            code.push(next);
            at += next.len_utf8();
        }
    }
    code
}

/// The number of `#` if a raw string begins here.
fn raw_string(rest: &str, before: Option<char>) -> Option<usize> {
    if before.is_some_and(|c| c.is_alphanumeric() && c != 'b' || c == '_') {
        return None;
    }
    let after = rest.strip_prefix('r')?;
    let hashes = after.bytes().take_while(|byte| *byte == b'#').count();
    after[hashes..].starts_with('"').then_some(hashes)
}

/// The length of a literal between these quotes, escapes and all.
fn quoted(rest: &str, quote: u8) -> usize {
    let bytes = rest.as_bytes();
    let mut at = 1;
    while at < bytes.len() && bytes[at] != quote {
        at += if bytes[at] == b'\\' { 2 } else { 1 };
    }
    at + 1
}

/// A character, not a lifetime.
fn is_character(rest: &str) -> bool {
    let mut chars = rest.chars();
    chars.next() == Some('\'')
        && match chars.next() {
            Some('\\') => true,
            Some(_) => chars.next() == Some('\''),
            None => false,
        }
}

/// Whole words of `code`.
fn words(code: &str) -> BTreeSet<&str> {
    code.split(|c: char| !c.is_alphanumeric() && c != '_').collect()
}

/// The modules of the top level that `code` names: `crate::x`, and each of `crate::{x, y::{…}}`.
fn edges(code: &str) -> BTreeSet<String> {
    let compact: String =
        code.split_whitespace().collect::<Vec<_>>().join(" ").replace(":: ", "::");
    let mut found = BTreeSet::new();
    // `tollgate::` is how main.rs, a crate of its own, names the library.
    for prefix in ["crate::", "tollgate::"] {
        for (start, _) in compact.match_indices(prefix) {
            let rest = compact[start + prefix.len()..].trim_start();
            match rest.strip_prefix('{') {
                Some(group) => found.extend(first_names(group)),
                None => found.extend(name_at(rest)),
            }
        }
    }
    found
}

fn name_at(text: &str) -> Option<String> {
    let name: String = text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
    (!name.is_empty()).then_some(name)
}

/// The first name of each path of a `use` group, to its closing brace.
fn first_names(group: &str) -> Vec<String> {
    let (mut names, mut depth, mut start) = (Vec::new(), 0, true);
    for (at, c) in group.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            ',' if depth == 0 => start = true,
            c if start && !c.is_whitespace() => {
                names.extend(name_at(&group[at..]));
                start = false;
            }
            _ => {}
        }
    }
    names
}

#[test]
fn dependencies_point_down() {
    let sources = sources();
    let modules: BTreeSet<&str> = sources.iter().map(|source| &*source.module).collect();
    let mut used = BTreeSet::new();
    let mut wrong = Vec::new();
    for source in &sources {
        // lib.rs names the modules; that is its work.
        if source.module == "lib" {
            continue;
        }
        let allowed = allowed(&source.module);
        for to in edges(&source.code) {
            if to == source.module || !modules.contains(&*to) || allowed.contains(&*to) {
                continue;
            }
            let edge = (source.module.clone(), to);
            if SIDEWAYS.iter().any(|(from, to, _)| edge == ((*from).to_owned(), (*to).to_owned())) {
                used.insert(edge);
            } else {
                wrong.push(format!("src/{} names crate::{}", source.path, edge.1));
            }
        }
    }
    assert!(wrong.is_empty(), "DESIGN §3 has no such edges:\n{}", wrong.join("\n"));
    assert_eq!(used.len(), SIDEWAYS.len(), "of SIDEWAYS there are only {used:?}");
    for (from, to, reason) in SIDEWAYS {
        assert!(MIDDLE.contains(from) && MIDDLE.contains(to) && reason.len() > 20, "{from} → {to}");
    }
}

#[test]
fn every_module_has_its_place_in_the_order() {
    let placed = [
        "main",
        "lib",
        "cli",
        "app",
        "http",
        "pipeline",
        "storage",
        "telemetry",
        "config",
        "offload",
        "fail_point",
        "domain",
    ];
    for source in sources() {
        let module = &*source.module;
        assert!(
            placed.contains(&module) || MIDDLE.contains(&module),
            "src/{}: say in this test where `{module}` stands",
            source.path
        );
    }
}

#[test]
fn crates_that_are_boundaries_are_named_behind_them_only() {
    for source in sources() {
        let words = words(&source.code);
        for (name, homes) in CRATES {
            assert!(
                !words.contains(name) || homes.contains(&&*source.module),
                "src/{} names `{name}`, which belongs in {homes:?}",
                source.path
            );
        }
    }
}

#[test]
fn nothing_is_unsafe_and_no_file_is_long() {
    for source in sources() {
        assert!(!words(&source.code).contains("unsafe"), "src/{} is unsafe", source.path);
        assert!(source.lines <= 500, "src/{} has {} lines: split it", source.path, source.lines);
    }
    let manifest = fs::read_to_string(root().join("Cargo.toml")).unwrap();
    assert!(manifest.contains("unsafe_code = \"forbid\""));
    let mut tests = Vec::new();
    walk(&root().join("tests"), &mut tests);
    for path in tests {
        let lines = fs::read_to_string(&path).unwrap().lines().count();
        assert!(lines <= 500, "{} has {lines} lines: split it", path.display());
    }
}

#[test]
fn the_reader_of_sources_sees_what_is_there() {
    let code = code_of(
        "//! crate::nothing\nuse crate::{\n  a::{b, crate_c},\n  d, e as f,\n};\nlet x = \"crate::no\";\n\
         let y = r#\"crate::\"no\"\"#; let z = '\"'; fn g<'a>() { crate::h::i() } // crate::no\n\
         let c = '\\''; crate::k();",
    );
    let expected = ["a", "d", "e", "h", "k"].map(str::to_owned);
    assert_eq!(edges(&code), BTreeSet::from(expected), "{code}");
    assert_eq!(edges("use tollgate::cli;"), BTreeSet::from(["cli".to_owned()]));
    let every: BTreeMap<String, usize> =
        sources().iter().map(|one| (one.module.clone(), edges(&one.code).len())).collect();
    assert!(every["http"] > 0 && every["main"] == 1, "{every:?}");
}

#[test]
fn the_map_of_the_house_has_every_room() {
    let map = fs::read_to_string(root().join("src/lib.rs")).unwrap();
    let rooms = map.lines().filter_map(|line| line.strip_prefix("pub mod "));
    for room in rooms.map(|room| room.trim_end_matches(';')) {
        assert!(map.contains(&format!("//! | [`{room}`] | ")), "{room} is not in lib.rs's map");
    }
}
