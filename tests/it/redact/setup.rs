//! Own rules, and what may pass.

use std::collections::BTreeMap;

use tollgate::{
    config::{OwnRuleConfig, RedactionConfig},
    redact::{Counts, Depth, PlaceholderKey, Redactor},
};

use crate::support::secret::{aws_key, github_token};

fn own(name: &str, prefix: &str, pattern: &str) -> OwnRuleConfig {
    OwnRuleConfig {
        name: name.to_owned(),
        prefixes: vec![prefix.to_owned()],
        pattern: pattern.to_owned(),
        max: None,
        boundary: true,
        needs: Vec::new(),
        entropy: None,
        allow: Vec::new(),
        source: None,
    }
}

fn redactor(config: &RedactionConfig) -> Redactor {
    let key = PlaceholderKey::from_bytes(&[7; 32]).unwrap();
    Redactor::with_key(config, key).unwrap()
}

fn refusal(rules: Vec<OwnRuleConfig>) -> String {
    let config = RedactionConfig { rules, ..RedactionConfig::default() };
    Redactor::new(&config).expect_err("it should be refused").to_string()
}

fn redacted(config: &RedactionConfig, text: &str) -> String {
    redactor(config).redact_text(text, Depth::Formats, &mut Counts::new()).into_owned()
}

#[test]
fn own_rules_stand_beside_the_built_in_ones() {
    let rules = vec![own("acme-key", "acme_", "acme_[0-9]{12}")];
    let config = RedactionConfig { rules, ..RedactionConfig::default() };
    let out = redacted(&config, &format!("acme_012345678901 {}", aws_key()));
    assert!(out.starts_with("[REDACTED:acme-key:") && out.contains("[REDACTED:aws"), "{out}");
}

#[test]
fn what_is_wrong_with_own_rules_is_said_at_once() {
    let told = refusal(vec![
        own("jwt", "ab", "ab[0-9]"),
        own("fine", "ab", "ab[0-9]{20}"),
        own("twice", "ab", "ab[0-9]{20}"),
        own("twice", "ab", "ab[0-9]{20}"),
        own("a_b", "ab", "ab[0-9]"),
        own("prefix", "a", "a[0-9]"),
        own("unclosed", "ab", "ab[0-9"),
        own("other", "ab", "cd[0-9]"),
        own("huge", "ab", "ab[a-z]{1000}{1000}"),
        own("long", "ab", &"a".repeat(2_000)),
    ]);
    let expected = [
        ("redaction.rules[0]: rule `jwt`: ", "built-in"),
        ("redaction.rules[3]: rule `twice`: ", "another rule"),
        ("redaction.rules[4]: rule `a_b`: ", "a name has"),
        ("redaction.rules[5]: rule `prefix`: ", "must have 2 to 40"),
        ("redaction.rules[6]: rule `unclosed`: ", "unclosed"),
        ("redaction.rules[7]: rule `other`: ", "can't begin with"),
        ("redaction.rules[8]: rule `huge`: ", "exceeded limit"),
        ("redaction.rules[9]: rule `long`: ", "longer than"),
    ];
    let lines: Vec<&str> = told.lines().collect();
    for (start, reason) in expected {
        let is_it = |line: &&str| line.starts_with(start) && line.contains(reason);
        assert!(lines.iter().any(is_it), "{start}…{reason} in\n{told}");
    }
    assert_eq!(lines.len(), expected.len(), "{told}");
}

#[test]
fn what_is_longer_than_a_rule_says_is_none_of_its_secrets() {
    let mut rule = own("acme-key", "acme_", "acme_[0-9]+");
    rule.max = Some(15);
    let config = RedactionConfig { rules: vec![rule], ..RedactionConfig::default() };
    let out = redacted(&config, "acme_0123456789 acme_01234567890");
    assert!(out.starts_with("[REDACTED:acme-key:"), "{out}");
    assert!(out.ends_with("] acme_01234567890"), "{out}");
}

#[test]
fn rules_are_bounded_in_number() {
    let rules = |count: usize| {
        let rule = |n| own(&format!("r{n}"), &format!("acme{n}_"), &format!("acme{n}_[0-9]{{12}}"));
        (0..count).map(rule).collect::<Vec<_>>()
    };
    let config = RedactionConfig { rules: rules(64), ..RedactionConfig::default() };
    let out = redacted(&config, "acme63_012345678901");
    assert!(out.starts_with("[REDACTED:r63:"), "{out}");
    let told = refusal(rules(65));
    assert!(told.starts_with("redaction.rules: there are 65 own rules"), "{told}");
}

#[test]
fn an_allow_list_lets_just_its_secrets_past_just_its_rule() {
    let (aws, github) = (aws_key(), github_token());
    let other = aws.replace('Q', "R");
    let text = format!("{aws} {other} {github}");
    let all = redacted(&RedactionConfig::default(), &text);
    let tag = all[all.find(']').unwrap() - 8..].get(..8).unwrap().to_owned();
    for allowed in [aws.clone(), tag.clone(), tag.to_uppercase()] {
        let allow = |rule: &str| RedactionConfig {
            allow: BTreeMap::from([(rule.to_owned(), vec![allowed.clone().into()])]),
            ..RedactionConfig::default()
        };
        let out = redacted(&allow("aws-access-key-id"), &text);
        assert!(out.starts_with(&format!("{aws} [REDACTED:")), "{out}");
        assert_eq!(out.matches("[REDACTED:").count(), 2, "{out}");
        assert_eq!(redacted(&allow("jwt"), &text), all, "another rule's list");
    }
}

#[test]
fn an_own_rule_has_a_list_too_and_nothing_of_it_is_shown() {
    let mut rule = own("acme-key", "acme_", "acme_[0-9]{12}");
    rule.allow = vec!["acme_000000000000".to_owned().into()];
    let config = RedactionConfig { rules: vec![rule], ..RedactionConfig::default() };
    let out = redacted(&config, "acme_000000000000 acme_000000000001");
    assert!(out.starts_with("acme_000000000000 [REDACTED:"), "{out}");
    assert!(!format!("{config:?} {:?}", redactor(&config)).contains("acme_000000000000"));
}
