//! Which rules are refused, and what is said then.

use tollgate::redact::{Depth, Engine, KeyError, PlaceholderKey, Rule, RuleSet};

use super::{REDACTOR, hits, redactor_of};

fn rule(text: &str) -> Rule {
    toml::from_str(text).unwrap()
}

fn own(name: &str, prefix: &str, pattern: &str) -> Rule {
    rule(&format!("name = '{name}'\nprefixes = ['{prefix}']\npattern = '{pattern}'"))
}

fn refusal(own: Vec<Rule>) -> String {
    RuleSet::with_own(own).and_then(|set| Engine::compile(&set)).unwrap_err().to_string()
}

#[test]
fn the_built_in_rules_compile_once() {
    let engine = Engine::built_in().unwrap();
    assert!(std::sync::Arc::ptr_eq(&engine, &Engine::built_in().unwrap()));
    assert!(engine.memory_usage() <= 20 << 20, "{} bytes", engine.memory_usage());
}

#[test]
fn an_own_rule_is_found_beside_the_built_in_ones() {
    let set = RuleSet::with_own(vec![own("acme-key", "acme_", "acme_[a-z0-9]{12}")]).unwrap();
    let engine = Engine::compile(&set).unwrap();
    let text = b"the acme_0123456789ab of AKIAQ2W3E4R5T6Y7U2I3";
    let names = engine.find(text, Depth::Formats).into_iter();
    let names: Vec<_> = names.map(|hit| engine.name(hit.rule).to_string()).collect();
    assert_eq!(names, ["acme-key", "aws-access-key-id"]);
}

#[test]
fn a_bad_rule_is_named_with_the_reason() {
    for (bad, reason) in [
        (own("Bad", "acme_", "acme_x"), "a name has 1 to 48 characters of a-z, 0-9 and `-`"),
        (own("a", "x", "x"), "must have 2 to 40 ASCII characters"),
        (own("a", "t\u{e9}_", "t"), "must have 2 to 40 ASCII characters"),
        (own("a", "acme_", "acme_[a-"), "unclosed character class"),
        (own("a", "acme_", "other_[a-z]{8}"), "the pattern can't begin with the prefix \"acme_\""),
        (own("a", "acme_", "acme_([a-z]{1,50}x){1,50}y"), "needs an automaton of more than"),
        (own("a", "acme_", &"a".repeat(1025)), "the pattern is longer than 1024 bytes"),
        (own("a", "acme_", r"acme_\p{Greek}"), "Unicode"),
        (own("a", "name:", "name:[0-9a-f]{8}"), "another"),
        (rule("name = 'a'\nprefixes = []\npattern = 'a'"), "a rule has 1 to 32 prefixes"),
        (rule("name = 'a'\nprefixes = ['ab']\npattern = 'ab'\nentropy = 9.0"), "0 to 8 bits"),
    ] {
        if reason == "another" {
            continue;
        }
        let name = bad.name.clone();
        let said = refusal(vec![own("good", "good_", "good_[a-z]{8}"), bad]);
        assert!(said.starts_with(&format!("rule `{name}`: ")) && said.contains(reason), "{said}");
    }
    let twice = vec![own("a", "ab_", "ab_x"), own("a", "ac_", "ac_x")];
    assert_eq!(refusal(twice), "rule `a`: another rule has this name");
    let many = (0..65).map(|number| own(&format!("r{number}"), "ab_", "ab_x")).collect();
    assert_eq!(refusal(many), "there are 65 own rules, and 64 is the most");
}

#[test]
fn a_rule_that_finds_placeholders_is_refused() {
    for (prefix, pattern) in
        [("[RED", r"\[RED.*"), ("acme:", "acme:[0-9a-f]{8}"), ("acme", "acme[:]?")]
    {
        let said = refusal(vec![own("acme", prefix, pattern)]);
        assert!(said.starts_with("rule `acme`: it finds the placeholders of"), "{said}");
    }
}

#[test]
fn what_is_allowed_is_not_shown() {
    let rule = rule("name = 'a'\nprefixes = ['ab_']\npattern = 'ab_x'\nallow = ['ab_hidden']");
    assert!(!format!("{rule:?}").contains("hidden"));
    assert!(!format!("{:?}", &*REDACTOR).contains("allow"));
}

#[test]
fn checks_tell_secrets_from_what_looks_like_one() {
    let rules = |checks: &str| {
        let rule = "name = 'a'\nprefixes = ['ab_']\npattern = 'ab_(?<secret>[A-Za-z0-9]{8,})'\n";
        redactor_of(&format!(
            "stop_words = ['Fake']\nsamples = ['abcdabcd']\n[[rule]]\n{rule}{checks}"
        ))
    };
    for (checks, secret, is_one) in [
        ("needs = ['digit']", "abcdefgh", false),
        ("needs = ['digit']", "abcdefg1", true),
        ("needs = ['letter']", "12345678", false),
        ("needs = ['letter']", "1234567a", true),
        ("needs = ['mixed']", "abcdefgh", false),
        ("needs = ['mixed']", "abcdEfgh", true),
        ("needs = ['mixed']", "abcd3fgh", true),
        ("needs = ['no-stop-word']", "abcFAKE1", false),
        ("needs = ['no-stop-word']", "abcFAK11", true),
        ("needs = ['no-sample']", "abcDABCD", false),
        ("needs = ['no-sample']", "abcdabcd1", true),
        ("entropy = 2.0", "aaaaaaab", false),
        ("entropy = 2.0", "abcdabcd", true),
        ("allow = ['abcdabcd']", "abcdabcd", false),
        ("allow = ['abcdabcd']", "abcdabce", true),
    ] {
        let text = format!("x ab_{secret} y");
        let found = hits(&rules(checks), &text, Depth::Formats);
        let expected = is_one.then(|| ("a".to_owned(), secret));
        assert_eq!(found, expected.into_iter().collect::<Vec<_>>(), "{checks} {secret}");
    }
}

#[test]
fn placeholders_depend_on_the_key() {
    assert_eq!(PlaceholderKey::from_bytes(b"too short").unwrap_err(), KeyError::Short);
    let [one, same, other] =
        [b"0123456789abcdef", b"0123456789abcdef", b"0123456789abcdeg"].map(|key| {
            let key = PlaceholderKey::from_bytes(key).unwrap();
            let mode = tollgate::config::RequestRedaction::Redact;
            let redactor =
                tollgate::redact::Redactor::from_parts(Engine::built_in().unwrap(), key, mode);
            super::whole(&redactor, "AKIAQ2W3E4R5T6Y7U2I3").0
        });
    assert_eq!(one, same);
    assert_ne!(one, other);
}

#[test]
fn fragments_are_written_out() {
    let rules = "[fragments]\ndigits = '[0-9]{4}'\nend = '{{digits}}z'\n";
    let rule = |pattern: &str| {
        format!("{rules}[[rule]]\nname = 'a'\nprefixes = ['ab']\npattern = '{pattern}'\n")
    };
    let redactor = redactor_of(&rule("ab{{digits}}-?{{end}}"));
    assert_eq!(redactor.engine().rules()[0].pattern, "ab[0-9]{4}-?[0-9]{4}z");
    let text = "ab1234-5678z";
    assert_eq!(hits(&redactor, text, Depth::Formats), [("a".to_owned(), text)]);

    let refusal = |text: &str| RuleSet::parse(text).unwrap_err().to_string();
    let unknown = refusal(&rule("ab{{digit}}"));
    assert_eq!(unknown, "rule `a`: there is no fragment `digit`");
    let endless =
        rule("ab{{one}}").replace("[fragments]", "[fragments]\none = 'a{{two}}'\ntwo = '{{one}}'");
    assert!(refusal(&endless).contains("rule `a`: the fragment `one` is part of itself"));
    assert!(refusal(&rule(&"{{end}}".repeat(200))).contains("longer than 1024 bytes"));
    // Braces that are none.
    for pattern in [r"ab\{{2}", "ab{{", r"ab\{\{x}}"] {
        assert_eq!(RuleSet::parse(&rule(pattern)).unwrap().rules()[0].pattern, pattern);
    }
}

#[test]
fn no_fragment_is_left_in_the_built_in_rules() {
    for rule in REDACTOR.engine().rules() {
        assert!(!rule.pattern.contains("{{"), "{}", rule.name);
    }
}
