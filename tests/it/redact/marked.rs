//! Texts in which secrets are marked: `⟦…⟧` about what must go, `⁞` so that no scanner of a source
//! host sees a secret, `⏎` for a line's end.

use std::{collections::BTreeMap, ops::Range};

use serde::Deserialize;

/// A text, and where its secret is.
#[derive(Debug)]
pub struct Marked {
    pub text: String,
    pub secret: Option<Range<usize>>,
}

impl Marked {
    pub fn parse(marked: &str) -> Self {
        let (mut text, mut start, mut secret) = (String::new(), None, None);
        for c in marked.chars() {
            match c {
                '⁞' => {}
                '⏎' => text.push('\n'),
                '⟦' => start = Some(text.len()),
                '⟧' => secret = start.map(|start| start..text.len()),
                c => text.push(c),
            }
        }
        Self { text, secret }
    }
}

/// What one rule must find, and what it must let pass.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Lists {
    positive: Vec<String>,
    negative: Vec<String>,
}

/// The vectors of a rule.
#[derive(Debug)]
pub struct Vectors {
    pub rule: String,
    pub positive: Vec<Marked>,
    pub negative: Vec<Marked>,
}

/// Of all rules.
pub fn vectors() -> Vec<Vectors> {
    let lists: BTreeMap<String, Lists> = toml::from_str(include_str!("vectors.toml")).unwrap();
    let parse = |texts: &[String]| texts.iter().map(|text| Marked::parse(text)).collect();
    let vectors = lists.into_iter().map(|(rule, lists)| Vectors {
        rule,
        positive: parse(&lists.positive),
        negative: parse(&lists.negative),
    });
    vectors.collect()
}
