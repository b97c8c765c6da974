//! Secrets that are not spelled as they are.

use base64::{Engine as _, engine::general_purpose as alphabet};
use bytes::Bytes;
use serde_json::{Value, json};
use tollgate::redact::{Counts, Depth};

use super::request::{
    ALPHA, BEARER, BETA, BLOCK, REDACTOR, SECRETS, hidden, placeholder, redacted,
};

/// A content, redacted, as who reads it sees it.
fn content(text: &str) -> (String, Counts) {
    let body = json!({ "messages": [{ "content": text, "after": 1.50 }] }).to_string();
    let (out, counts) = redacted(&body);
    let out: Value = serde_json::from_str(&out).expect("it is still JSON");
    assert_eq!(out["messages"][0]["after"], 1.5);
    (out["messages"][0]["content"].as_str().unwrap().to_owned(), counts)
}

/// Is what `spell` makes of a secret replaced as a whole, wherever it stands?
fn assert_replaced(rule: &str, secret: &str, spell: impl Fn(&str) -> String) {
    let spelled = spell(secret);
    for (before, after) in
        [("", ""), ("x ", " y"), ("url=", "&a=1"), ("é\"", "\"é"), ("(", ")"), ("\n", "\n")]
    {
        let (shown, counts) = content(&format!("{before}{spelled}{after}"));
        let expected = format!("{before}{}{after}", placeholder(rule, secret));
        assert_eq!(shown, expected, "{spelled}");
        assert_eq!(counts[rule], 1);
    }
}

fn percent(text: &str, chosen: impl Fn(usize) -> bool) -> String {
    let spell = |(at, byte): (usize, u8)| {
        if chosen(at) { format!("%{byte:02X}") } else { char::from(byte).to_string() }
    };
    text.bytes().enumerate().map(spell).collect()
}

fn escaped(text: &str, chosen: impl Fn(usize) -> bool) -> String {
    let spell = |(at, c): (usize, char)| {
        if c == '\\' || chosen(at) { format!("\\u{:04x}", c as u32) } else { c.to_string() }
    };
    text.chars().enumerate().map(spell).collect()
}

#[test]
fn percent_encoding_hides_no_secret() {
    for (rule, secret) in [("alpha", ALPHA), ("beta", BETA), ("block", BLOCK)] {
        assert_replaced(rule, secret, |secret| percent(secret, |_| true));
        assert_replaced(rule, secret, |secret| percent(secret, |at| at == 0));
        assert_replaced(rule, secret, |secret| percent(secret, |at| at % 5 == 2));
        assert_replaced(rule, secret, |secret| {
            percent(&percent(secret, |at| at % 2 == 0), |_| true)
        });
    }
    let (shown, _) = content(&format!(
        "https://h/?auth={}&b",
        percent(BEARER, |at| !BEARER.as_bytes()[at].is_ascii_alphanumeric())
    ));
    assert_eq!(shown, format!("https://h/?auth=Bearer%20{}&b", placeholder("bearer", BEARER)));
}

#[test]
fn escapes_in_any_mixture_hide_no_secret() {
    for (rule, secret) in [("alpha", ALPHA), ("beta", BETA)] {
        assert_replaced(rule, secret, |secret| escaped(secret, |at| at % 3 == 0));
        assert_replaced(rule, secret, |secret| {
            percent(&escaped(secret, |at| at % 3 == 0), |at| at % 4 == 1)
        });
        assert_replaced(rule, secret, |secret| {
            escaped(&percent(secret, |at| at % 3 == 0), |at| at % 4 == 1)
        });
        assert_replaced(rule, secret, |secret| {
            escaped(&escaped(&escaped(secret, |at| at % 7 == 0), |at| at % 5 == 0), |_| true)
        });
    }
}

#[test]
fn characters_that_nobody_sees_hide_no_secret() {
    for unseen in [
        '\u{200b}', '\u{200c}', '\u{200d}', '\u{200e}', '\u{2060}', '\u{2066}', '\u{feff}',
        '\u{fe0f}', '\u{ad}', '\u{202e}',
    ] {
        for (rule, secret) in [("alpha", ALPHA), ("beta", BETA)] {
            assert_replaced(rule, secret, |secret| {
                format!("{}{unseen}{}", &secret[..1], &secret[1..])
            });
            let all = |secret: &str| {
                let mut spelled = String::new();
                for c in secret.chars() {
                    spelled
                        .extend(spelled.chars().next().map(|_| [unseen; 3]).into_iter().flatten());
                    spelled.push(c);
                }
                spelled
            };
            assert_replaced(rule, secret, all);
            let named = format!("\\u{:04x}", unseen as u32);
            assert_replaced(rule, secret, |secret| {
                format!("{}{named}{}", &secret[..3], &secret[3..])
            });
        }
    }
    // What is nowhere near a secret stays: emoji are joined by such characters.
    let family = "\u{1F468}\u{200d}\u{1F469} \u{2764}\u{fe0f} soft\u{ad}hyphen";
    assert_eq!(content(family), (family.to_owned(), Counts::new()));
}

#[test]
fn base64_of_a_whole_secret_is_replaced_as_a_whole() {
    for (rule, secret) in SECRETS {
        for engine in [
            alphabet::STANDARD,
            alphabet::STANDARD_NO_PAD,
            alphabet::URL_SAFE,
            alphabet::URL_SAFE_NO_PAD,
        ] {
            let spell = |secret: &str| engine.encode(secret);
            // `Bearer` goes with the rest: the run is replaced whole.
            assert_replaced(rule, secret, spell);
            assert_replaced(rule, secret, |secret| engine.encode(format!("{secret}\n")));
            assert_replaced(rule, secret, |secret| {
                escaped(&engine.encode(secret), |at| at % 6 == 1)
            });
            assert_replaced(rule, secret, |secret| {
                percent(&engine.encode(secret), |at| at % 6 == 1)
            });
        }
    }
    let path = alphabet::URL_SAFE_NO_PAD.encode(BETA);
    let (shown, _) = content(&format!("https://host/c2V0/{path}/more/{path}?x={path}"));
    let gone = placeholder("beta", BETA);
    assert_eq!(shown, format!("https://host/c2V0/{gone}/more/{gone}?x={gone}"));
}

#[test]
fn base64_in_lines_is_one_run() {
    for (width, end) in [(64, "\n"), (76, "\n"), (76, "\r\n")] {
        let lines = |secret: &str| {
            let encoded = alphabet::STANDARD.encode(secret);
            let lines: Vec<&str> = encoded
                .as_bytes()
                .chunks(width)
                .map(|line| std::str::from_utf8(line).unwrap())
                .collect();
            assert!(lines.len() > 1);
            lines.join(end)
        };
        assert_replaced("block", BLOCK, lines);
    }
    // A line that begins like a secret and is none hides no later one.
    let decoy = alphabet::STANDARD.encode("BK, of which there is more to say, as it is no secret.");
    let decoy = &decoy[..64];
    let secret = alphabet::STANDARD.encode(BETA);
    let (shown, _) = content(&format!("{decoy}\n{secret}\n"));
    assert_eq!(shown, format!("{decoy}\n{}\n", placeholder("beta", BETA)));
}

#[test]
fn a_run_that_goes_on_for_long_is_decoded_as_far_as_a_secret_may_reach() {
    let long = format!("{BETA} {}", "and so on ".repeat(20_000));
    let (shown, counts) = content(&alphabet::STANDARD.encode(&long));
    assert_eq!(shown, placeholder("beta", BETA));
    assert_eq!(counts["beta"], 1);
}

/// As `view`'s documentation says.
#[test]
fn what_is_not_covered_passes() {
    let inside = alphabet::STANDARD.encode(format!("user:{BETA}"));
    let twice = alphabet::STANDARD.encode(alphabet::STANDARD.encode(BETA));
    let hex: String =
        BETA.bytes().flat_map(|byte| format!("{byte:02x}").into_bytes()).map(char::from).collect();
    let (one, other) = BETA.split_at(8);
    for text in [inside, twice, hex, format!("[\"{one}\",\"{other}\"]")] {
        assert_eq!(content(&text), (text.clone(), Counts::new()));
    }
}

#[test]
fn data_urls_are_left_alone() {
    let data = |bytes: usize| {
        let bytes: Vec<u8> = (0..bytes).map(|at| u8::try_from(at * 7 % 251).unwrap()).collect();
        alphabet::STANDARD.encode(bytes)
    };
    // What would be found if it were looked for.
    let hides = format!("{}/{BETA}/{}", data(48), data(300));
    for url in [
        format!("data:image/png;base64,{hides}"),
        format!("DATA:;base64,{}", alphabet::STANDARD.encode(BLOCK)),
        format!("data:text/plain;charset=utf-8;base64,{hides}=="),
        format!("see ![x](data:image/svg+xml;base64,{hides}) and data:a/b;base64,{hides}"),
    ] {
        for body in [
            json!({ "messages": [{ "content": [{ "type": "image_url", "image_url": { "url": url } }] }] }),
            json!([json!({ "nested": url }).to_string(), url]),
        ] {
            for body in [body.to_string(), body.to_string().replace('/', "\\/")] {
                let body = Bytes::from(body);
                let (out, counts) = REDACTOR.redact_json(&body, Depth::Complete);
                assert_eq!((out.as_ptr(), counts), (body.as_ptr(), Counts::new()), "{body:?}");
            }
        }
        let (shown, _) = content(&format!("{BETA} {url} {ALPHA}"));
        assert_eq!(
            shown,
            format!("{} {url} {}", placeholder("beta", BETA), placeholder("alpha", ALPHA))
        );
    }
}

#[test]
fn what_only_looks_like_a_data_url_is_looked_through() {
    for (head, secret) in [
        ("data:text/plain,", BETA),
        ("data:image/png;base64,", BETA),
        ("data:image/png;base64,", ALPHA),
        ("data: image/png;base64,", BETA),
        (";base64,", BETA),
    ] {
        let (shown, counts) = content(&format!("{head}{secret}"));
        assert!(!shown.contains(hidden(secret)) && !counts.is_empty(), "{head} {shown}");
    }
    let long = format!("x;base64,{}/{BETA}", "QUJD".repeat(40));
    assert!(!content(&long).0.contains(BETA));
}

#[test]
fn texts_that_are_full_of_escapes_and_beginnings_come_to_an_end() {
    let form = &alphabet::STANDARD.encode(BETA)[..4];
    let size = 64 << 10;
    for piece in [
        "\\",
        "%",
        "%25",
        "\\\\",
        "\\u005c",
        "\u{200b}",
        "\u{200b}%41",
        "=",
        "/",
        "data:;base64,",
        "[",
        "\"",
        "{\"a\":",
    ]
    .map(str::to_owned)
    .into_iter()
    .chain([
        format!("{form}/"),
        format!("{form}="),
        format!("{form}\n"),
        format!("{form}{}\n", "A".repeat(60)),
    ]) {
        let text = piece.repeat(size / piece.len());
        let (shown, counts) = content(&format!("{text} {ALPHA}"));
        assert!(!shown.contains(ALPHA), "{piece}");
        assert_eq!(counts.len(), 1, "{piece}");
    }
}

#[test]
fn sound_in_base64_is_left_alone() {
    let sound = |bytes: usize| {
        let bytes: Vec<u8> = (0..bytes).map(|at| u8::try_from(at * 7 % 251).unwrap()).collect();
        let mut sound = format!("{}/{BETA}/", alphabet::STANDARD_NO_PAD.encode(bytes));
        sound.extend(std::iter::repeat_n('A', (4 - sound.len() % 4) % 4));
        sound
    };
    let body = |data: &str| {
        let part =
            json!({ "type": "input_audio", "input_audio": { "data": data, "format": "wav" } });
        Bytes::from(json!({ "messages": [{ "content": [part] }] }).to_string())
    };
    let long = body(&sound(30_000));
    let (out, counts) = REDACTOR.redact_json(&long, Depth::Complete);
    assert_eq!((out.as_ptr(), counts), (long.as_ptr(), Counts::new()));

    // What is short, or is not all base64, is a text.
    for text in [sound(300), format!("{} ", sound(30_000)), format!("{}-", sound(30_000))] {
        let (_, counts) = REDACTOR.redact_json(&body(&text), Depth::Complete);
        assert_eq!(counts["beta"], 1);
    }
}
