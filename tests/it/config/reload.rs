//! A new configuration while running.

use std::{process::Command, time::Duration};

use tokio::{
    signal::unix::{SignalKind, signal},
    sync::mpsc,
    task::JoinHandle,
    time::timeout,
};
use tokio_util::sync::CancellationToken;
use tollgate::config::{
    self,
    reload::{Outcome, Reload, Reloader, watch},
};

use super::{BASE, TempFile, base_with};

fn start(text: &str) -> (TempFile, Reloader) {
    let file = TempFile::new(text);
    let running = config::load(file.path(), []).unwrap();
    let reloader = Reloader::new(file.path(), [], running);
    (file, reloader)
}

fn changed(outcome: Outcome) -> Reload {
    match outcome {
        Outcome::Changed(reload) => *reload,
        other => panic!("{other:?}"),
    }
}

fn refusal(outcome: Outcome) -> String {
    match outcome {
        Outcome::Refused(errors) => errors.to_string(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_file_that_stays_as_it_is_changes_nothing() {
    let (_file, mut reloader) = start(BASE);
    for asked in [false, false, true] {
        assert!(matches!(reloader.look(asked), Outcome::Unchanged));
    }
}

#[test]
fn what_only_looks_different_changes_nothing() {
    let (file, mut reloader) = start(BASE);
    file.write(&format!("# a comment\n{BASE}"));
    assert!(matches!(reloader.look(false), Outcome::Unchanged));
}

#[test]
fn what_is_live_is_handed_on() {
    let (file, mut reloader) = start(BASE);
    let text = base_with("upstream-m", "upstream-n")
        .replace("a-provider-key", "another-key")
        .replace("requests_per_minute = 60", "requests_per_minute = 61")
        .replace("fleet_ps", "fleet_top")
        .replace("leeway_s = 30", "leeway_s = 30\ndeny = { sub = [\"mallory\"] }");
    file.write(&format!("{text}\n[redaction]\nrequests = \"block\"\n"));
    let reload = changed(reloader.look(false));
    assert!(reload.needs_restart.is_empty(), "{:?}", reload.needs_restart);
    assert_eq!(reload.config.models[0].routes[0].model, "upstream-n");
    assert_eq!(reload.config.auth.deny.sub, ["mallory"]);
    assert_eq!(reload.config, config::load(file.path(), []).unwrap());
    assert!(matches!(reloader.look(true), Outcome::Unchanged), "it is what runs now");
}

#[test]
fn a_change_between_start_and_the_first_look_is_seen() {
    let (file, mut reloader) = start(BASE);
    file.write(&base_with("upstream-m", "upstream-n"));
    changed(reloader.look(false));
}

#[test]
fn a_secret_alone_is_a_change() {
    let (file, mut reloader) = start(BASE);
    file.write(&base_with("a-provider-key", "a-provider-kez"));
    changed(reloader.look(false));
}

#[test]
fn each_section_that_is_fixed_is_named_and_kept() {
    let cases = [
        ("[server]\n", "[server]\ndrain_s = 5\n", "server"),
        ("[auth]\n", "[admission]\nmax_in_flight = 5\n[auth]\n", "admission"),
        ("[auth]\n", "[budget]\nqueue_wait_ms = 5\n[auth]\n", "budget"),
        ("[auth]\n", "[audit]\npath = \"other.db\"\n[auth]\n", "audit"),
        ("[auth]\n", "[stream]\nkeepalive_s = 5\n[auth]\n", "stream"),
        ("[auth]\n", "[telemetry]\nlog = \"debug\"\n[auth]\n", "telemetry"),
        ("leeway_s = 30", "leeway_s = 31", "auth"),
        ("[\"tollgate\"]", "[\"tollgate\", \"b\"]", "auth.issuers"),
    ];
    for (piece, other, section) in cases {
        let (file, mut reloader) = start(BASE);
        let running = config::load(file.path(), []).unwrap();
        file.write(&base_with(piece, other));
        let reload = changed(reloader.look(false));
        assert_eq!(reload.needs_restart, [section]);
        assert_eq!(reload.config, running, "{section} is kept");
        assert!(matches!(reloader.look(false), Outcome::Unchanged), "said once");
        assert_eq!(changed(reloader.look(true)).needs_restart, [section], "said when asked");
    }
}

#[test]
fn what_claims_may_spend_is_live_and_the_rest_of_budgets_is_not() {
    let mapped = "audience = [\"tollgate\"]\nclaims.extra = { team = \"team\" }";
    let base = base_with("audience = [\"tollgate\"]", mapped);
    let (file, mut reloader) = start(&base);
    let claims = "[[budget.claims]]\nclaim = \"team\"\nvalue = \"*\"\nusd_per_day = 5\n";
    file.write(&format!("{base}\n[budget]\nqueue_limit = 5\n{claims}"));
    let reload = changed(reloader.look(false));
    assert_eq!(reload.needs_restart, ["budget"]);
    assert_eq!(reload.config.budget.claims.len(), 1);
    assert_eq!(reload.config.budget.queue_limit, 1_000);
}

#[test]
fn what_is_live_goes_on_beside_what_waits_for_a_restart() {
    let (file, mut reloader) = start(BASE);
    file.write(&base_with("leeway_s = 30", "leeway_s = 31").replace("upstream-m", "upstream-n"));
    let reload = changed(reloader.look(false));
    assert_eq!(reload.config.models[0].routes[0].model, "upstream-n");
    assert_eq!(reload.config.auth.leeway_s, 30);
}

#[test]
fn a_file_that_only_fits_after_a_restart_is_refused() {
    let issuer = "audience = [\"tollgate\"]\ndefaults = { tier = \"pro\" }";
    let text = base_with("audience = [\"tollgate\"]", issuer);
    let (file, mut reloader) = start(&text);
    file.write(&text.replace("\"pro\"", "\"gold\""));
    let refusal = refusal(reloader.look(false));
    assert!(refusal.contains("auth.issuers, which only a restart changes"), "{refusal}");
    assert!(refusal.contains("auth.issuers[0].defaults.tier: there is no tier"), "{refusal}");
}

#[test]
fn a_bad_file_is_refused_with_all_its_errors_and_once() {
    let (file, mut reloader) = start(BASE);
    file.write(
        &base_with("leeway_s = 30", "leeway_s = 301").replace("\"up\", model", "\"x\", model"),
    );
    let refusal = refusal(reloader.look(false));
    assert_eq!(refusal.lines().count(), 2, "{refusal}");
    assert!(matches!(reloader.look(false), Outcome::Unchanged), "the same file is not told again");
    file.write(&base_with("upstream-m", "upstream-n"));
    changed(reloader.look(false));
}

#[test]
fn a_file_that_goes_away_is_told_and_picked_up_again() {
    let (file, mut reloader) = start(BASE);
    std::fs::remove_file(file.path()).unwrap();
    assert!(refusal(reloader.look(false)).contains("can't be read"));
    assert!(matches!(reloader.look(false), Outcome::Unchanged));
    file.write(&base_with("upstream-m", "upstream-n"));
    changed(reloader.look(false));
}

#[test]
fn a_swapped_symbolic_link_is_a_change() {
    let (one, other) = (TempFile::new(BASE), TempFile::new(&base_with("upstream-m", "n")));
    let link = TempFile(std::env::temp_dir().join(format!("tollgate-{}", uuid::Uuid::new_v4())));
    std::os::unix::fs::symlink(one.path(), link.path()).unwrap();
    let running = config::load(link.path(), []).unwrap();
    let mut reloader = Reloader::new(link.path(), [], running);
    assert!(matches!(reloader.look(false), Outcome::Unchanged));
    std::fs::remove_file(link.path()).unwrap();
    std::os::unix::fs::symlink(other.path(), link.path()).unwrap();
    changed(reloader.look(false));
}

struct Watched {
    changes: mpsc::Receiver<Reload>,
    stop: CancellationToken,
    task: JoinHandle<std::io::Result<()>>,
}

impl Watched {
    fn start(reloader: Reloader, period: Duration) -> Self {
        let (sender, changes) = mpsc::channel(16);
        let stop = CancellationToken::new();
        let on_change = move |reload| sender.try_send(reload).unwrap();
        let task = tokio::spawn(watch(reloader, period, stop.clone(), on_change));
        Self { changes, stop, task }
    }

    async fn next(&mut self, patience: Duration) -> Option<Reload> {
        timeout(patience, self.changes.recv()).await.ok().flatten()
    }

    async fn stop(self) {
        self.stop.cancel();
        timeout(Duration::from_secs(10), self.task).await.unwrap().unwrap().unwrap();
    }
}

#[tokio::test]
async fn watching_hands_on_good_files_and_passes_over_bad_ones() {
    let (file, reloader) = start(BASE);
    let mut watched = Watched::start(reloader, Duration::from_millis(5));
    file.write("not = [toml");
    file.write(&base_with("upstream-m", "upstream-n"));
    let reload = watched.next(Duration::from_secs(10)).await.unwrap();
    assert_eq!(reload.config.models[0].routes[0].model, "upstream-n");
    watched.stop().await;
}

#[tokio::test]
async fn sighup_looks_at_once() {
    // So that the signal never finds the process without a handler, and kills it.
    let _handler = signal(SignalKind::hangup()).unwrap();
    let (file, reloader) = start(BASE);
    let mut watched = Watched::start(reloader, Duration::from_hours(1));
    file.write(&base_with("upstream-m", "upstream-n"));
    let pid = std::process::id().to_string();
    let mut reload = None;
    for _ in 0..100 {
        assert!(Command::new("kill").args(["-HUP", &pid]).status().unwrap().success());
        reload = watched.next(Duration::from_millis(100)).await;
        if reload.is_some() {
            break;
        }
    }
    assert_eq!(reload.unwrap().config.models[0].routes[0].model, "upstream-n");
    watched.stop().await;
}
