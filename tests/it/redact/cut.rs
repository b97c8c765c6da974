//! However a text is cut, the same comes out; and what comes out stays as it is.

use proptest::{prelude::*, sample::Index};
use tollgate::redact::{Depth, Redactor};

use super::{REDACTOR, SMALL, pieces, redactor_of, stream, whole};

/// Texts of what the small rules are about, each with another snare.
const SNARES: &[&str] = &[
    "ab_ab1ab1 and ab_ab1ab1a, ab_ab1ab1",
    "x-ab-b-ab1ab ab-b-b-b-b_ab_ab1ab1",
    "b-fake1b-ab1 b-aaa b-1b1 b-1b1b",
    "ab1a1abab1a1abbbbb",
    "a b=1234@a b=12@ b=x\u{e9}y@b a b=\u{200b}1\u{200b}2@b!",
    "--a--ab1\nab1--b --a-ab1ab--c --a",
    "a1-ab.ab-1.1 a1ab.ab.x a1-a1-a1-a1.1ab",
    "a\u{200b}b\u{feff}_a\u{ad}b1\u{2060}ab\u{200c}1\u{200b} \u{200d}ab-\u{200b}1111\u{200b}",
    "a\u{200b}\u{200b}\u{200b}\u{200b}\u{200b}\u{200b}\u{200b}\u{200b}\u{200b}\u{200b}b-1111 a\u{200b}ab-1111",
    "\\nab-ab11\\\\nab-11ab \\tab_ab1ab1\\rb-1b1b\\xab-ab11",
    "b\u{e9}-ab-ab1\u{1f511}ab_ab1ab1\u{4e2d}b-111",
    "ab-[REDACTED:open:00000000] b=[REDACTED:part:12345678]@a",
    "//ab-1111:bb@ //ab_ab1ab1:ab_ab1ab1@a1ab.ab //b=1@a:11@ //b-1b1b1:[REDACTED:behind:00000000]@",
    "//ab1-b-1111-:\u{200b}1\u{200b}@ //1a1bbb:a //1a1bbb:a\n",
    "ab-ab",
    "ab-ab1a",
    "x a ",
];

fn same_however_it_is_cut(redactor: &Redactor, text: &str, cuts: &[usize]) {
    let cut = pieces(text, cuts);
    assert_eq!(stream(redactor, cut.iter().copied()), whole(redactor, text), "{cut:?}");
}

#[test]
fn one_cut_and_two_cuts_anywhere_change_nothing() {
    for text in SNARES {
        for first in 0..=text.len() {
            for second in first..=text.len() {
                same_however_it_is_cut(&SMALL, text, &[first, second]);
            }
        }
    }
}

#[test]
fn a_character_at_a_time_changes_nothing() {
    let every: Vec<usize> = (0..40_000).collect();
    for text in SNARES {
        same_however_it_is_cut(&SMALL, text, &every);
        let long = text.repeat(400);
        same_however_it_is_cut(&SMALL, &long, &every);
    }
}

#[test]
fn what_outgrows_the_bound_is_swallowed_wherever_it_is_cut() {
    for (head, body, tail) in [
        ("ab-", "ab1-", ".ab-1111"),
        ("x --a-", "ab1\n", "--b ab_ab1ab1"),
        ("b=", "\u{e9}1", "@a b=12@b"),
        ("b=", "\u{e9}1\u{200b}", " b=12@b"),
        ("a1", "ab-", ".ab1.1 a1ab.ab"),
        ("a1ab.a1", "ab-", ".ab1.1 a1ab.ab"),
        ("b-", "ab-", "1 b-1b1b"),
        // Nothing matched by then.
        ("a1", "ab-", " a1ab.ab ab_ab1ab1"),
        ("x a1", "ab1\u{200b}-", ".\u{e9}.ab1.1 b-1b1b"),
        ("b=", "\u{e9}1", " b=12@b"),
        ("//", "ab1-", ":secret ab-1111"),
        ("ab-ab1 //ab1:", "\u{1f511}1", " //a:12@"),
        ("a b=", "b=1", "@b"),
    ] {
        for length in [8_180, 8_190, 8_200, 20_000] {
            let text = format!("{head}{}{tail}", body.repeat(length / body.len()));
            let near = |at: usize| (at.saturating_sub(12)..at + 12).filter(|at| *at <= text.len());
            for cut in near(head.len()).chain(near(8_192)).chain(near(text.len() - tail.len())) {
                same_however_it_is_cut(&SMALL, &text, &[cut]);
            }
            let often: Vec<usize> = (0..text.len()).step_by(7).collect();
            same_however_it_is_cut(&SMALL, &text, &often);
        }
    }
}

/// Pieces of the small rules' language, and what gets between them.
fn small_text() -> impl Strategy<Value = String> {
    let part = prop_oneof![
        8 => "[ab1_.-]{1,8}",
        4 => prop::sample::select(vec![
            "ab_", "ab-", "ab-b-", "b-", "1a1", "b=", "a b=", "--a", "--b", "a1", "@a", "fake", "b-1b1", "//", ":",
        ]).prop_map(str::to_owned),
        2 => prop::sample::select(vec![
            " ", "\n", "\\", "\\n", "\\\\t", "n", "@", "[", "]", "[REDACTED:open:00000000]",
        ]).prop_map(str::to_owned),
        1 => prop::sample::select(vec![
            "password=", "token: ", "\"secret\": \"", "\"", "\\\"", "q9w8e7r6t5",
        ]).prop_map(str::to_owned),
        2 => "[\u{200b}\u{200c}\u{200d}\u{2060}\u{feff}\u{ad}]{1,3}",
        1 => "[\u{e9}\u{a0}\u{2014}\u{4e2d}\u{1f511}\u{fefe}]",
    ];
    prop::collection::vec(part, 0..40).prop_map(|parts| parts.concat())
}

/// The same of what the built-in rules are about: prefixes, cut and changed tokens.
fn built_in_text() -> impl Strategy<Value = String> {
    let rules = REDACTOR.engine().rules();
    let prefixes: Vec<String> = rules.iter().flat_map(|rule| rule.prefixes.clone()).collect();
    let part = prop_oneof![
        4 => (prop::sample::select(prefixes), 1..41_usize)
            .prop_map(|(prefix, length)| prefix.chars().take(length).collect()),
        4 => "[A-Za-z0-9_-]{1,60}",
        2 => "[ \\\\\"':=@/.,\n-]{1,3}",
        1 => "[A-Z0-9]{16}|[a-f0-9]{32}|[A-Za-z0-9+/=\n]{64}",
        1 => "(\\\\u00[2-7][0-9a-f]|\\\\n|%3[ad]|[\u{200b}\u{feff}\u{e9}\u{4e2d}])",
    ];
    prop::collection::vec(part, 0..24).prop_map(|parts| parts.concat())
}

fn cuts() -> impl Strategy<Value = Vec<Index>> {
    prop::collection::vec(any::<Index>(), 0..12)
}

fn resolve(cuts: &[Index], text: &str) -> Vec<usize> {
    cuts.iter().map(|cut| cut.index(text.len() + 1)).collect()
}

/// What tier 2 takes out may have been all that kept a format from matching around it, as the `@` in
/// `b=password=x@y\@a`: so at both tiers a text comes to rest within some turns.
fn again_changes_nothing(redactor: &Redactor, text: &str, depth: Depth) {
    let mut counts = tollgate::redact::Counts::new();
    let mut redact = |text: &str| redactor.redact_text(text, depth, &mut counts).into_owned();
    let turns = if depth == Depth::Formats { 1 } else { 4 };
    let last = (0..turns).fold(text.to_owned(), |text, _| redact(&text));
    assert_eq!(last, redact(&last), "{text:?}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn any_cuts_of_any_text_change_nothing(text in small_text(), cuts in cuts()) {
        same_however_it_is_cut(&SMALL, &text, &resolve(&cuts, &text));
    }

    #[test]
    fn any_cuts_change_nothing_with_the_built_in_rules(text in built_in_text(), cuts in cuts()) {
        same_however_it_is_cut(&REDACTOR, &text, &resolve(&cuts, &text));
    }

    #[test]
    fn to_redact_again_changes_nothing(small in small_text(), built_in in built_in_text()) {
        for depth in [Depth::Formats, Depth::Complete] {
            again_changes_nothing(&SMALL, &small, depth);
            again_changes_nothing(&REDACTOR, &built_in, depth);
        }
    }
}

/// Found by fuzzing: what was seen of one secret depended on another one's placeholder.
#[test]
fn to_redact_again_what_holds_several_changes_nothing() {
    for text in [
        "*X-Vault-Token':'*X-Vault-Token':'d:*PWD=AspNetCore.Cookies=PWD=AspNetCore.Cookies=\
         authorizationjdbc:PWD=\u{1}3**]jdbc:PWD=X-Vault-Token'",
        "jdbc:jdbc:/\u{11}jdbc:jdbc:?PWD=jdbc:jdbc:jdbc:/\u{11}jdbc:jdbc:?PWD=jdbc:PWD=clickhouse/",
    ] {
        for depth in [Depth::Formats, Depth::Complete] {
            again_changes_nothing(&SMALL, text, depth);
            again_changes_nothing(&REDACTOR, text, depth);
        }
    }
}

#[test]
fn of_two_database_urls_side_by_side_both_passwords_go() {
    let url = |password: &str| {
        format!("jdbc:sqlserver://db:1433;packetSize=8192;passwordMode=x;user=app;PWD={password};")
    };
    let text = format!("{}{}", url("qT7-vXz2-pL9k"), url("mB4-wRc8-sN1h"));
    let (redacted, counts) = whole(&REDACTOR, &text);
    assert_eq!(counts["jdbc-password"], 2, "{redacted}");
    assert!(!redacted.contains("vXz2") && !redacted.contains("wRc8"), "{redacted}");
}

#[test]
fn many_rules_of_one_prefix_change_nothing() {
    let rule = |number: usize| {
        format!(
            "[[rule]]\nname = \"r{number}\"\nprefixes = [\"ab\"]\nneeds = [\"digit\"]\n\
             pattern = 'ab[a-z]{{{number},{}}}1?'\n",
            number * 2
        )
    };
    let redactor = redactor_of(&(1..20).map(rule).collect::<String>());
    for length in 1..45 {
        let text = format!("x ab{}1 ab{}", "c".repeat(length), "d".repeat(length));
        for cut in 0..=text.len() {
            same_however_it_is_cut(&redactor, &text, &[cut]);
        }
    }
}
