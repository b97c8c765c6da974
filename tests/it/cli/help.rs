//! What the binary says of itself.

use std::{io::Read, process::Stdio};

use super::Shell;
use crate::contract;

/// The names under `Commands:` in a help text.
fn subcommands(help: &str) -> Vec<String> {
    let lines = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let names = lines.take_while(|line| !line.is_empty());
    let names = names.filter_map(|line| line.split_whitespace().next()).map(str::to_owned);
    names.filter(|name| name != "help").collect()
}

fn each_command(shell: &Shell, path: &[&str], see: &mut impl FnMut(&[&str], &str)) {
    let help = shell.run(&[path, &["--help"]].concat()).ok();
    see(path, &help);
    for name in subcommands(&help) {
        each_command(shell, &[path, &[&name]].concat(), see);
    }
}

#[test]
fn the_help_of_every_command_has_an_example_of_it() {
    let shell = Shell::new();
    let mut seen = Vec::new();
    each_command(&shell, &[], &mut |path, help| {
        let command = format!("tollgate {}", path.join(" "));
        let examples = help.split_once("Example").map(|(_, examples)| examples);
        let examples = examples.unwrap_or_else(|| panic!("{command} --help has no example"));
        assert!(examples.contains(command.trim()), "{command} --help shows another's example");
        seen.push(path.join(" "));
    });
    let expected = [
        "",
        "serve",
        "dev",
        "check-config",
        "mint-token",
        "redact",
        "migrate",
        "openapi",
        "audit",
        "audit tail",
        "audit export",
        "audit verify",
        "audit public-key",
        "budget",
        "budget show",
    ];
    assert_eq!(seen, expected);
}

#[test]
fn every_option_says_what_it_is() {
    let shell = Shell::new();
    each_command(&shell, &[], &mut |path, help| {
        let options = help.split_once("Options:\n").map_or("", |(_, options)| options);
        let options = options.split_once("\n\n").map_or(options, |(options, _)| options);
        let lines: Vec<&str> = options.lines().collect();
        for (index, line) in lines.iter().enumerate().filter(|(_, line)| line.contains("--")) {
            let (_, option) = line.split_once("--").unwrap();
            let told =
                option.split_once("  ").is_some_and(|(_, text)| !text.trim().starts_with('['));
            // A long option has its text on the next line.
            let below = lines.get(index + 1).is_some_and(|next| !next.contains("--"));
            assert!(told || below, "tollgate {} --help says nothing of --{option}", path.join(" "));
        }
    });
}

#[test]
fn without_a_command_there_is_the_help() {
    let shell = Shell::new();
    let help = shell.run(&["--help"]).ok();
    let err = shell.run(&[]).fails(2);
    assert_eq!(subcommands(&err), subcommands(&help));
    assert!(err.contains("tollgate dev"), "{err}");
    let version = shell.run(&["--version"]).ok();
    assert_eq!(version, format!("tollgate {}\n", env!("CARGO_PKG_VERSION")));
}

#[test]
fn an_unknown_command_or_option_is_named() {
    let shell = Shell::new();
    assert!(shell.run(&["serv"]).fails(2).contains("'serve'"));
    assert!(shell.run(&["dev", "--lisen", "x"]).fails(2).contains("'--listen'"));
    assert!(shell.run(&["dev", "--listen", "8080"]).fails(2).contains("--listen"));
}

#[test]
fn openapi_prints_the_committed_document() {
    let printed: serde_json::Value =
        serde_json::from_str(&Shell::new().run(&["openapi"]).ok()).unwrap();
    assert!(printed == contract::committed(), "run `make openapi`");
}

#[test]
fn a_reader_that_goes_away_is_no_failure() {
    let shell = Shell::new();
    shell.run(&["migrate"]).ok();
    let key = shell.path("data/dev-issuer.pem");
    tollgate::auth::mint::SigningKey::generate_file(&key).unwrap();
    for args in [
        &["openapi"][..],
        &["--help"],
        &["mint-token"],
        &["migrate"],
        &["audit", "tail"],
        &["audit", "tail", "--json"],
    ] {
        let mut child =
            shell.command(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        // As `head` does, only sooner: nobody ever reads.
        drop(child.stdout.take());
        let mut err = String::new();
        child.stderr.take().unwrap().read_to_string(&mut err).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(0), "{args:?}: {err}");
        assert_eq!(err, "", "{args:?}");
    }
}
