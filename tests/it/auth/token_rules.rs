//! The form of a token (RFC 7515 §7.1).

use tollgate::auth::{Reason, UnverifiedToken};

use super::support::{Draft, Gate, TestKey, b64, invalid, passes, refusal, refusal_of_text};

#[tokio::test]
async fn a_good_token_passes() {
    let caller = passes(|draft| draft).await;
    assert_eq!(caller.subject, "user-1");
}

#[tokio::test]
async fn two_parts_are_refused() {
    let error = refusal_of_text(|draft| {
        let token = draft.sign();
        token.rsplit_once('.').unwrap().0.to_owned()
    });
    assert_eq!(error.await, invalid(Reason::NotThreeParts));
}

#[tokio::test]
async fn four_parts_are_refused() {
    let error = refusal_of_text(|draft| draft.sign() + ".e30").await;
    assert_eq!(error, invalid(Reason::NotThreeParts));
}

#[tokio::test]
async fn five_parts_as_of_an_encrypted_token_are_refused() {
    let error = refusal_of_text(|draft| draft.sign() + ".e30.e30").await;
    assert_eq!(error, invalid(Reason::NotThreeParts));
}

#[tokio::test]
async fn an_empty_signature_is_refused() {
    let error = refusal_of_text(|draft| {
        let token = draft.sign();
        format!("{}.", token.rsplit_once('.').unwrap().0)
    });
    assert_eq!(error.await, invalid(Reason::NotThreeParts));
}

#[tokio::test]
async fn padding_is_refused() {
    let error = refusal_of_text(|draft| draft.sign() + "==").await;
    assert_eq!(error, invalid(Reason::BadBase64));
}

#[tokio::test]
async fn padding_in_a_signed_part_is_refused() {
    let error = refusal_of_text(|draft| {
        let mut json = draft.header.to_string();
        while json.len() % 3 != 1 {
            json.push(' ');
        }
        let header = b64(json);
        draft.key.sign_parts(&(header + "=="), &b64(draft.claims.to_string()))
    });
    assert_eq!(error.await, invalid(Reason::BadBase64));
}

#[tokio::test]
async fn the_other_base64_alphabet_is_refused() {
    let error = refusal_of_text(|draft| {
        // "~~~" and "???" encode to characters in which the two alphabets differ.
        let draft = draft.claim("note", "~~~???>>>~~~???>>>");
        let payload = b64(draft.claims.to_string());
        let other = payload.replace('-', "+").replace('_', "/");
        assert_ne!(payload, other);
        draft.key.sign_parts(&b64(draft.header.to_string()), &other)
    });
    assert_eq!(error.await, invalid(Reason::BadBase64));
}

#[tokio::test]
async fn non_zero_trailing_bits_are_refused() {
    let error = refusal_of_text(|draft| {
        // 64 bytes of signature leave four unused bits in its last character.
        let mut token = draft.sign();
        let last = token.pop().unwrap();
        let next = match last {
            'A' => 'B',
            'Q' => 'R',
            'g' => 'h',
            'w' => 'x',
            other => panic!("{other} has its low bits set"),
        };
        token.push(next);
        token
    });
    assert_eq!(error.await, invalid(Reason::BadBase64));
}

#[tokio::test]
async fn whitespace_within_is_refused() {
    let error = refusal_of_text(|draft| draft.sign().replacen('.', ". ", 1)).await;
    assert_eq!(error, invalid(Reason::BadBase64));
}

#[tokio::test]
async fn whitespace_after_is_refused() {
    let token = TestKey::ed25519("key-1").token() + " ";
    assert_eq!(UnverifiedToken::parse(token.as_bytes()).unwrap_err(), Reason::BadBase64);
}

#[tokio::test]
async fn bytes_that_are_no_text_are_refused() {
    let mut token = TestKey::ed25519("key-1").token().into_bytes();
    token.push(0xff);
    assert_eq!(UnverifiedToken::parse(&token).unwrap_err(), Reason::BadBase64);
}

/// A good token of exactly `len` bytes, made so by spaces after its JSON.
fn of_len(draft: &Draft, len: usize) -> String {
    let claims = draft.claims.to_string();
    // No text is 4n + 1 characters of base64, so the header takes up the slack.
    let fits = (0..3).find_map(|spaces| {
        let header = b64(draft.header.to_string() + &" ".repeat(spaces));
        let payload_len = len - header.len() - ".".len() - ".".len() - 86;
        (payload_len % 4 != 1).then_some((header, payload_len * 3 / 4))
    });
    let (header, payload_len) = fits.unwrap();
    let payload = format!("{claims}{}", " ".repeat(payload_len - claims.len()));
    let token = draft.key.sign_parts(&header, &b64(payload));
    assert_eq!(token.len(), len);
    token
}

#[tokio::test]
async fn the_longest_token_is_8192_bytes() {
    let key = TestKey::ed25519("key-1");
    let gate = Gate::with_keys([&key]).await;
    gate.try_token(of_len(&key.draft(), 8_192)).await.expect("8192 bytes pass");
    let longer = of_len(&key.draft(), 8_193);
    assert_eq!(gate.try_token(&longer).await.unwrap_err(), invalid(Reason::TooLarge));
    let parsed = UnverifiedToken::parse(longer.as_bytes());
    assert_eq!(parsed.unwrap_err(), Reason::TooLarge);
}

#[tokio::test]
async fn claims_that_are_no_object_are_refused() {
    for payload in ["[]", "\"text\"", "1", "null", "", "{", "{} {}", "\u{feff}{}"] {
        let error = refusal_of_text(|draft| {
            let payload = if payload.is_empty() { " " } else { payload };
            draft.key.sign_text(&draft.header.to_string(), payload)
        });
        assert_eq!(error.await, invalid(Reason::BadPayload), "{payload}");
    }
}

#[tokio::test]
async fn a_claim_that_is_there_twice_is_refused() {
    let error = refusal_of_text(|draft| {
        let payload = draft.claims.to_string().replacen('{', "{\"sub\":\"user-1\",", 1);
        draft.key.sign_text(&draft.header.to_string(), &payload)
    });
    assert_eq!(error.await, invalid(Reason::BadPayload));
}

#[tokio::test]
async fn a_name_that_is_there_twice_deep_within_the_claims_is_refused() {
    let error = refusal_of_text(|draft| {
        let twice = "{\"deep\":[{\"a\":1,\"\\u0061\":2}],";
        let payload = draft.claims.to_string().replacen('{', twice, 1);
        draft.key.sign_text(&draft.header.to_string(), &payload)
    });
    assert_eq!(error.await, invalid(Reason::BadPayload));
}

#[tokio::test]
async fn claims_nested_beyond_reason_are_refused() {
    let error = refusal_of_text(|draft| {
        let deep = format!("{{\"deep\":{}{},", "[".repeat(1_000), "]".repeat(1_000));
        let payload = draft.claims.to_string().replacen('{', &deep, 1);
        draft.key.sign_text(&draft.header.to_string(), &payload)
    });
    assert_eq!(error.await, invalid(Reason::BadPayload));
}

#[tokio::test]
async fn claims_that_are_not_utf_8_are_refused() {
    let error = refusal_of_text(|draft| {
        let mut payload = draft.claims.to_string().into_bytes();
        let at = payload.windows(6).position(|window| window == b"user-1").unwrap();
        payload[at] = 0xff;
        draft.key.sign_parts(&b64(draft.header.to_string()), &b64(payload))
    });
    assert_eq!(error.await, invalid(Reason::BadPayload));
}

#[tokio::test]
async fn a_changed_payload_is_refused() {
    let error = refusal_of_text(|draft| {
        let token = draft.sign();
        let parts: Vec<&str> = token.split('.').collect();
        let other = draft.claim("tier", "enterprise").claims.to_string();
        format!("{}.{}.{}", parts[0], b64(other), parts[2])
    });
    assert_eq!(error.await, invalid(Reason::BadSignature));
}

#[tokio::test]
async fn a_signature_of_the_wrong_length_is_refused() {
    for signature in ["AA".to_owned(), b64([0; 63]), b64([0; 65]), b64([0; 64])] {
        let error = refusal_of_text(|draft| {
            let token = draft.sign();
            format!("{}.{signature}", token.rsplit_once('.').unwrap().0)
        });
        assert_eq!(error.await, invalid(Reason::BadSignature));
    }
}

#[tokio::test]
async fn another_key_of_the_same_name_is_refused() {
    let error = refusal(|mut draft| {
        draft.key = TestKey::ed25519("key-1");
        draft
    });
    assert_eq!(error.await, invalid(Reason::BadSignature));
}
