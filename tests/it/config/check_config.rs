//! `tollgate check-config`.

use std::process::ExitCode;

use tollgate::cli::check_config;

use super::{BASE, TempFile};

fn run(text: &str) -> (bool, String, String) {
    let file = TempFile::new(text);
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let code = check_config::run(file.path(), [], &mut out, &mut err);
    // An exit code can't be compared, only shown.
    let is_success = format!("{code:?}") == format!("{:?}", ExitCode::SUCCESS);
    (is_success, String::from_utf8(out).unwrap(), String::from_utf8(err).unwrap())
}

#[test]
fn a_right_configuration_is_summed_up() {
    let (is_success, out, _) = run(BASE);
    assert!(is_success);
    assert!(out.ends_with(": ok (1 issuer, 1 provider, 1 model, 1 tool, 1 tier)\n"), "{out}");
}

#[test]
fn a_wrong_one_lists_every_error_and_fails() {
    let (is_success, out, err) = run("");
    assert!(!is_success);
    assert!(out.is_empty());
    assert!(err.ends_with("\n3 errors\n"), "{err}");
    assert_eq!(err.lines().count(), 4, "{err}");
}
