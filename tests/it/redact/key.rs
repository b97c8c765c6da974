//! The key of the placeholders, and its file.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    sync::Arc,
};

use tollgate::{
    config::RedactionConfig,
    redact::{Counts, Depth, KeptKey, KeySource, KeySourceError, Redactor},
};

use crate::support::secret::aws_key;

/// A directory that goes away with its test.
struct Directory(PathBuf);

impl Directory {
    fn new() -> Self {
        let path = std::env::temp_dir().join(format!("tollgate-key-{}", uuid::Uuid::now_v7()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    /// The source of a configuration that says nothing of keys.
    fn source(&self) -> KeySource {
        KeySource::new(&RedactionConfig::default(), &self.0.join("data/audit.db"))
    }

    fn file(&self) -> PathBuf {
        self.0.join("data/redaction.key")
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// What tells keys apart.
fn placeholder(key: &KeptKey) -> String {
    let redactor = Redactor::with_key(&RedactionConfig::default(), key.key().clone()).unwrap();
    redactor.redact_text(&aws_key(), Depth::Formats, &mut Counts::new()).into_owned()
}

fn given(key: &str) -> KeySource {
    let config = RedactionConfig { key: Some(key.to_owned().into()), ..RedactionConfig::default() };
    KeySource::new(&config, Path::new("audit.db"))
}

#[test]
fn the_file_is_made_once_for_its_owner_alone() {
    let directory = Directory::new();
    let first = directory.source().open().unwrap();
    let metadata = fs::metadata(directory.file()).unwrap();
    assert_eq!(metadata.permissions().mode() & 0o777, 0o600);
    let again = directory.source().open().unwrap();
    assert_eq!(placeholder(&first), placeholder(&again));
    assert_eq!(fs::read_dir(directory.0.join("data")).unwrap().count(), 1, "no draft is left");
    let other = Directory::new().source().open().unwrap();
    assert_ne!(placeholder(&first), placeholder(&other));
}

#[test]
fn of_many_that_make_it_at_once_all_have_one() {
    let directory = Arc::new(Directory::new());
    let open = |_| {
        let directory = Arc::clone(&directory);
        std::thread::spawn(move || placeholder(&directory.source().open().unwrap()))
    };
    let threads: Vec<_> = (0..8).map(open).collect();
    let mut made: Vec<String> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
    made.dedup();
    assert_eq!(made.len(), 1);
}

#[test]
fn a_given_key_and_a_file_with_it_are_the_same() {
    let directory = Directory::new();
    let text = "0123456789abcdef".repeat(4);
    fs::create_dir_all(directory.0.join("data")).unwrap();
    fs::write(directory.file(), format!("{text}\n")).unwrap();
    fs::set_permissions(directory.file(), fs::Permissions::from_mode(0o640)).unwrap();
    let file = directory.source().open().unwrap();
    assert_eq!(placeholder(&file), placeholder(&given(&text).open().unwrap()));
}

#[test]
fn looking_makes_nothing() {
    let directory = Directory::new();
    directory.source().peek().unwrap();
    assert!(!directory.0.join("data").exists());
}

#[test]
fn each_error_names_the_key_and_what_to_do() {
    let directory = Directory::new();
    let told = |source: KeySource| source.open().unwrap_err().to_string();
    assert!(told(given("short")).starts_with("redaction.key is too short"));

    fs::create_dir_all(directory.0.join("data")).unwrap();
    fs::write(directory.file(), "0f".repeat(32)).unwrap();
    fs::set_permissions(directory.file(), fs::Permissions::from_mode(0o644)).unwrap();
    let exposed = told(directory.source());
    assert!(exposed.starts_with("redaction.key_file: ") && exposed.ends_with("chmod 600 it"));

    fs::set_permissions(directory.file(), fs::Permissions::from_mode(0o600)).unwrap();
    fs::write(directory.file(), "secret-but-short").unwrap();
    let error = directory.source().open().unwrap_err();
    assert!(matches!(error, KeySourceError::Content { .. }));
    let error = error.to_string();
    assert!(error.contains("redaction.key") && error.contains("too short"), "{error}");
    assert!(!error.contains("secret-but-short"));

    // A file where the directory should be.
    let config = RedactionConfig {
        key_file: Some(directory.file().join("key")),
        ..RedactionConfig::default()
    };
    let error = told(KeySource::new(&config, Path::new("audit.db")));
    assert!(
        error.contains("redaction.key_file: ") && error.contains("set redaction.key"),
        "{error}"
    );
}

#[test]
fn a_key_outlives_its_file_while_the_gateway_runs() {
    let directory = Directory::new();
    let running = directory.source().open().unwrap();
    fs::remove_file(directory.file()).unwrap();
    let reloaded = running.of(directory.source()).unwrap();
    assert_eq!(placeholder(&running), placeholder(&reloaded));
    let given = running.of(given(&"0f".repeat(32))).unwrap();
    assert_ne!(placeholder(&running), placeholder(&given));
}
