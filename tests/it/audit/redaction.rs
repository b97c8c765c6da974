//! No secret reaches a sink, whoever made the entry.

use std::{collections::BTreeMap, sync::Arc};

use tokio_util::task::TaskTracker;
use tollgate::{
    audit::{Audit, Entry, EntryKind, spool::Spool},
    config::{OwnRuleConfig, RedactionConfig},
    domain::Caller,
    redact::{LiveRedactor, Redactor},
    storage::sqlite::{self, AuditReader},
};

use super::{
    fake_disk::FakeDisk,
    handle::{LONG, SETTINGS},
    support::{TempDir, caller, denial, intent, settle},
};
use crate::support::{
    leak::{Planted, files_of},
    secret::whole,
};

fn live() -> LiveRedactor {
    let live = LiveRedactor::default();
    live.set(Arc::new(Redactor::new(&RedactionConfig::default()).unwrap()));
    live
}

/// An entry with a secret in every text that is not ours.
fn full(entry: Entry, planted: &Planted) -> Entry {
    let at = |place: &str| planted.at(&format!("{place} of {:?}", entry.kind));
    let caller = Caller {
        subject: at("subject"),
        issuer: at("issuer"),
        tier: at("tier"),
        agent: Some(at("agent")),
        extra: BTreeMap::from([("cost_center".to_owned(), at("extra"))]),
        ..(*caller()).clone()
    };
    Entry {
        request_id: at("request_id"),
        caller: Some(Arc::new(caller)),
        model: Some(at("model")),
        provider: Some(at("provider")),
        provider_model: Some(at("provider_model")),
        finish_reason: Some(at("finish_reason")),
        run_id: Some(at("run_id")),
        tool: Some(at("tool")),
        detail: Some(format!("There is no model `{}`.", at("detail"))),
        ..entry
    }
}

#[tokio::test]
async fn no_text_of_an_entry_is_written_with_a_secret() {
    let dir = TempDir::new();
    let sink = Arc::new(sqlite::open(&dir.file()).await.unwrap());
    let disk = Arc::new(FakeDisk::default());
    let spool = Spool::open(disk.clone(), SETTINGS).unwrap();
    let tasks = TaskTracker::new();
    let audit = Audit::start(spool, sink.clone(), live(), &tasks).unwrap();
    let planted = Planted::default();
    let call = full(intent(), &planted);
    audit.intent(call.clone()).await.unwrap();
    audit.record(full(settle(&call), &planted)).await;
    audit.denied(full(denial(), &planted));
    // Given up once it was written: the writer makes its end.
    let given_up = full(intent(), &planted);
    drop(futures_util::poll!(std::pin::pin!(audit.intent(given_up))));
    let other = Entry {
        detail: Some("password = Kx81-vTqz-77pL".to_owned()),
        ..Entry::new(EntryKind::Reload, "reload", "r")
    };
    audit.record(other).await;
    audit.flush(LONG).await.unwrap();
    for name in disk.names() {
        planted.assert_not_in(&name, &disk.bytes_of(&name));
    }
    audit.shutdown(LONG).await.unwrap();
    // The store is still open, else its log might go from one file to the other while they are read.
    let bytes = files_of(dir.file().parent().unwrap());
    planted.assert_not_in("the store", &bytes);
    for absent in ["Kx81-vTqz-77pL", &whole("ghp_⁞")] {
        assert!(memchr::memmem::find(&bytes, absent.as_bytes()).is_none(), "{absent}");
    }
    // Short, and often there: a text may be cut in two where a page of the file ends.
    assert!(memchr::memmem::find_iter(&bytes, b"[REDACTED:").count() > 10);
    drop(sink);
}

#[tokio::test]
async fn what_was_clean_is_looked_through_again_when_there_are_other_rules() {
    let dir = TempDir::new();
    let sink = Arc::new(sqlite::open(&dir.file()).await.unwrap());
    let spool = Spool::open(Arc::new(FakeDisk::default()), SETTINGS).unwrap();
    let (redactor, tasks) = (live(), TaskTracker::new());
    let audit = Audit::start(spool, sink, redactor.clone(), &tasks).unwrap();
    let name = "acme_012345678901".to_owned();
    let caller = Arc::new(Caller { subject: name.clone(), ..(*caller()).clone() });
    let call = || Entry {
        caller: Some(Arc::clone(&caller)),
        model: Some(name.clone()),
        provider: Some(name.clone()),
        ..intent()
    };
    // Twice, as it is the second time that nothing is looked at.
    for _ in 0..2 {
        audit.intent(call()).await.unwrap();
    }
    let rule = OwnRuleConfig {
        name: "acme-key".to_owned(),
        prefixes: vec!["acme_".to_owned()],
        pattern: "acme_[0-9]{12}".to_owned(),
        max: None,
        boundary: true,
        needs: Vec::new(),
        entropy: None,
        allow: Vec::new(),
        source: None,
    };
    let config = RedactionConfig { rules: vec![rule], ..RedactionConfig::default() };
    redactor.set(Arc::new(Redactor::new(&config).unwrap()));
    for _ in 0..2 {
        audit.intent(call()).await.unwrap();
    }
    audit.flush(LONG).await.unwrap();
    audit.shutdown(LONG).await.unwrap();

    let mut reader = AuditReader::open(&dir.file()).await.unwrap();
    let rows = reader.after(0).await.unwrap();
    assert_eq!(rows.len(), 4);
    for (at, row) in rows.iter().enumerate() {
        for text in [&row.subject, &row.model, &row.provider] {
            let text = text.as_deref().unwrap();
            let is_redacted = text.starts_with("[REDACTED:acme-key:");
            assert_eq!((is_redacted, text == name), (at >= 2, at < 2), "{at}: {text}");
        }
    }
}
