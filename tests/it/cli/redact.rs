//! `tollgate redact`.

use std::{
    io::{BufRead, BufReader, Write},
    process::Stdio,
};

use super::{Ran, Shell, check, mode};
use crate::support::secret::{aws_key, github_token};

/// An own rule and an allow-list, in a whole configuration.
fn config(rest: &str) -> String {
    let rule = "[[redaction.rules]]\nname = \"acme-key\"\nprefixes = [\"acme_\"]\n\
                pattern = 'acme_[0-9]{12}'\nsource = \"https://acme.example/keys\"\n";
    format!("{}\n{rule}\n{rest}", check::GOOD)
}

impl Shell {
    fn redact(&self, args: &[&str], text: &[u8]) -> Ran {
        let args = [&["redact"], args].concat();
        let mut command = self.command(&args);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        let text = text.to_vec();
        let writing = std::thread::spawn(move || stdin.write_all(&text));
        let output = child.wait_with_output().unwrap();
        // It need not read all that there is.
        let _ = writing.join().unwrap();
        Ran::new(&args, &output)
    }
}

/// The placeholder's `hmac8`.
fn tag(redacted: &str) -> &str {
    let end = redacted.find(']').expect("a placeholder");
    &redacted[end - 8..end]
}

#[test]
fn what_is_no_secret_comes_out_byte_for_byte() {
    let shell = Shell::new();
    for text in ["", "a", "no end of line", "für 10 €\n\n\ttabs\r\n"] {
        for args in [&[][..], &["--tier", "1"], &["--tier", "2"], &["--tier", "all"]] {
            assert_eq!(shell.redact(args, text.as_bytes()).ok(), text, "{args:?}");
        }
    }
}

#[test]
fn a_secret_is_replaced_from_stdin_and_from_a_file() {
    let shell = Shell::new();
    let (aws, github) = (aws_key(), github_token());
    let text = format!("a = {aws}\nb: \"{github}\"\n");
    shell.write("prompt.txt", &text);
    for out in [
        shell.redact(&[], text.as_bytes()).ok(),
        shell.redact(&["--tier", "1"], text.as_bytes()).ok(),
        shell.run(&["redact", "prompt.txt"]).ok(),
        shell.run(&["redact", "--tier", "1", "prompt.txt"]).ok(),
    ] {
        assert!(!out.contains(&aws) && !out.contains(&github), "{out}");
        assert_eq!(out.matches("[REDACTED:").count(), 2, "{out}");
        assert!(out.starts_with("a = [REDACTED:aws") && out.ends_with("]\"\n"), "{out}");
    }
    let err = shell.run(&["redact", "gone.txt"]).fails(1);
    assert!(err.contains("gone.txt"), "{err}");
}

#[test]
fn bytes_that_are_no_text_stay() {
    let shell = Shell::new();
    let aws = aws_key();
    let text = [b"\xff\xfe ", aws.as_bytes(), b" \xe2\x82 ", "€".as_bytes(), b"\xe2\x82"].concat();
    for args in [&["redact"][..], &["redact", "--tier", "1"]] {
        std::fs::write(shell.path("bytes"), &text).unwrap();
        let output = shell.command(&[args, &["bytes"]].concat()).output().unwrap();
        let out = output.stdout;
        assert!(out.starts_with(b"\xff\xfe [REDACTED:"), "{out:?}");
        assert!(out.ends_with(b"] \xe2\x82 \xe2\x82\xac\xe2\x82"), "{out:?}");
    }
}

#[test]
fn a_long_stream_is_cut_nowhere() {
    let shell = Shell::new();
    let line = format!("{}: {} – ordinary\n", "x".repeat(77), github_token());
    let text = line.repeat(4_000);
    let out = shell.redact(&["--tier", "1"], text.as_bytes()).ok();
    let lines: Vec<&str> = out.lines().collect();
    assert_eq!(lines.len(), 4_000);
    assert!(lines[0].contains("[REDACTED:") && !lines[0].contains("ghp_"), "{}", lines[0]);
    assert!(lines.iter().all(|line| *line == lines[0]), "equal secrets, equal placeholders");
}

#[test]
fn a_stream_goes_on_while_its_writer_does() {
    let shell = Shell::new();
    let mut command = shell.command(&["redact", "--tier", "1"]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap()).lines();
    for round in 0..3 {
        // In a line's middle and at its end: nothing after the line is waited for.
        for rest in [" and on", ""] {
            writeln!(stdin, "line {round} {}{rest}", aws_key()).unwrap();
            let line = out.next().unwrap().unwrap();
            assert!(line.starts_with(&format!("line {round} [REDACTED:")), "{line}");
            assert!(line.ends_with(&format!("]{rest}")), "{line}");
        }
    }
    drop(stdin);
    assert!(child.wait().unwrap().success());
}

#[test]
fn explain_says_where_and_why_and_never_what() {
    let shell = Shell::new();
    let (aws, github) = (aws_key(), github_token());
    let text = format!("first\nö {aws}\n{github} {aws}\n");
    let ran = shell.redact(&["--explain", "--tier", "1"], text.as_bytes());
    assert_eq!(ran.code, Some(0));
    let lines: Vec<&str> = ran.err.lines().collect();
    assert!(lines[0].starts_with("stdin:2:3: aws"), "{}", ran.err);
    assert!(lines[0].contains(": 20 bytes, the format of \"AKIA\"…"), "{}", ran.err);
    assert!(lines[1].starts_with("stdin:3:1: github"), "{}", ran.err);
    assert!(lines[2].starts_with("stdin:3:42: aws"), "{}", ran.err);
    assert!(lines.contains(&"      3 secrets in stdin"), "{}", ran.err);
    assert!(lines.iter().any(|line| line.starts_with("      2 aws")), "{}", ran.err);
    for part in [&aws[4..], &github[4..]] {
        assert!(!ran.err.contains(part) && !ran.out.contains(part), "{ran:?}");
    }
    let none = shell.redact(&["--explain"], b"nothing here\n");
    assert_eq!(none.err, "      0 secrets in stdin\n");
}

#[test]
fn check_is_for_scripts() {
    let shell = Shell::new();
    let secret = format!("x {}\n", aws_key());
    for tier in ["1", "all"] {
        let args = ["--check", "--tier", tier];
        assert_eq!(shell.redact(&args, secret.as_bytes()).code, Some(1));
        assert_eq!(shell.redact(&args, b"nothing\n").code, Some(0));
    }
    assert_eq!(shell.redact(&[], secret.as_bytes()).code, Some(0));
    assert_eq!(shell.redact(&["--tier", "3"], b"").code, Some(2));
}

#[test]
fn a_configuration_brings_its_rules_its_allow_list_and_its_key() {
    let shell = Shell::new().with_env("UP_KEY", "k");
    shell.write("jwks.json", check::JWKS);
    let own = format!("acme_{}", "0123456789".repeat(2));
    let text = format!("{} {} {own}\n", aws_key(), github_token());
    let key = "0123456789abcdef".repeat(4);
    let allowed = aws_key();
    let settings = format!(
        "[redaction]\nkey = \"{key}\"\n[redaction.allow]\naws-access-key-id = [\"{allowed}\"]\n"
    );
    shell.write("tollgate.toml", &config(&settings));
    let run = || shell.redact(&["--config", "tollgate.toml"], text.as_bytes()).ok();
    let (out, again) = (run(), run());
    assert_eq!(out, again, "the key is kept");
    assert!(out.starts_with(&format!("{allowed} [REDACTED:github")), "{out}");
    assert!(out.contains("[REDACTED:acme-key:") && out.ends_with("]23456789\n"), "{out}");

    // By its tag the other may pass too.
    let tag = tag(&out).to_owned();
    let list = format!("{settings}github-token = [\"{tag}\"]\n");
    shell.write("tollgate.toml", &config(&list));
    let out = run();
    assert!(out.starts_with(&format!("{allowed} {} [REDACTED:acme-key:", github_token())), "{out}");
    assert!(!shell.path("data").exists(), "nothing is made");
}

#[test]
fn without_a_key_that_is_kept_placeholders_are_of_one_run() {
    let shell = Shell::new();
    let text = format!("{0} {0}\n", aws_key());
    let (one, other) =
        (shell.redact(&[], text.as_bytes()).ok(), shell.redact(&[], text.as_bytes()).ok());
    let (first, second) = one.trim_end().split_once(' ').unwrap();
    assert_eq!(first, second);
    assert_ne!(one, other);
}

#[test]
fn bad_rules_are_all_named_by_each_command() {
    let shell = Shell::new().with_env("UP_KEY", "k");
    shell.write("jwks.json", check::JWKS);
    let rule = |name: &str, pattern: &str| {
        format!(
            "[[redaction.rules]]\nname = \"{name}\"\nprefixes = [\"acme_\"]\npattern = '{pattern}'\n"
        )
    };
    let bad = [
        rule("Acme", "acme_[0-9]{12}"),
        rule("acme-a", "acme_[0-9"),
        rule("acme-b", "beta_[0-9]{12}"),
        "[redaction.allow]\naws-acess-key-id = [\"x\"]\nnobody = [\"x\"]\n".to_owned(),
    ];
    shell.write("tollgate.toml", &format!("{}\n{}", check::GOOD, bad.join("\n")));
    let checked = shell.run(&["check-config"]).fails(1);
    for error in [
        "tollgate.toml:25:1: redaction.rules[0]: rule `Acme`: a name has 1 to 48",
        "tollgate.toml:30:1: redaction.rules[1]: rule `acme-a`: ",
        "tollgate.toml:35:1: redaction.rules[2]: rule `acme-b`: the pattern can't begin with",
        "tollgate.toml:40:12: redaction.allow: there is no rule \"aws-acess-key-id\"; did you mean \"aws-access-key-id\"?",
        "tollgate.toml:40:12: redaction.allow: there is no rule \"nobody\"; `tollgate redact --rules` lists",
    ] {
        assert_eq!(
            checked.lines().filter(|line| line.starts_with(error)).count(),
            1,
            "{error}\n{checked}"
        );
    }
    assert!(checked.ends_with("\n5 errors\n"), "{checked}");
    let served = shell.run(&["serve"]).fails(1);
    let redacted = shell.run(&["redact", "--config", "tollgate.toml"]).fails(1);
    for told in [served, redacted] {
        assert!(told.contains("redaction.rules[1]: rule `acme-a`"), "{told}");
        assert!(told.contains("redaction.allow: there is no rule \"nobody\""), "{told}");
    }
}

#[test]
fn the_rules_are_listed() {
    let shell = Shell::new().with_env("UP_KEY", "k");
    let out = shell.run(&["redact", "--rules"]).ok();
    assert!(out.lines().count() > 20, "{out}");
    assert!(out.contains("1     aws-access-key-id"), "{out}");
    assert!(out.lines().any(|line| line.starts_with("2     ")), "{out}");
    shell.write("jwks.json", check::JWKS);
    shell.write("tollgate.toml", &config(""));
    let own = shell.run(&["redact", "--rules", "--config", "tollgate.toml"]).ok();
    let line = own.lines().find(|line| line.contains("acme-key")).expect("the own rule");
    assert!(line.contains("\"acme_\"") && line.ends_with("https://acme.example/keys"), "{line}");
}

#[test]
fn the_key_is_made_once_beside_the_audit_database() {
    let shell = Shell::new();
    let dev = shell.dev(&[]);
    let path = shell.path("data/redaction.key");
    let key = std::fs::read_to_string(&path).unwrap();
    assert_eq!((mode(&path), key.trim_end().len()), (0o600, 64));
    dev.stop();
    shell.dev(&[]).stop();
    assert_eq!(std::fs::read_to_string(&path).unwrap(), key);
    let left = std::fs::read_dir(shell.path("data")).unwrap();
    let drafts =
        left.filter(|file| file.as_ref().unwrap().path().extension().is_some_and(|e| e == "new"));
    assert_eq!(drafts.count(), 0);
}
