//! `tollgate audit tail`, as it prints.

use std::{
    io::{self, Write},
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use tollgate::{
    audit::{Entry, FIELDS},
    cli::audit::{Tail, TailError, tail},
    storage::sqlite::{self, SqliteSink},
};

use super::support::{TempDir, append, denial, intent, settle};

/// What was printed, seen from beside.
#[derive(Clone, Default)]
struct Screen(Arc<Mutex<Vec<u8>>>);

impl Screen {
    fn lines(&self) -> Vec<String> {
        let bytes = self.0.lock().unwrap().clone();
        String::from_utf8(bytes).unwrap().lines().map(str::to_owned).collect()
    }

    /// Waits until there are `count` lines.
    async fn wait_for(&self, count: usize) -> Vec<String> {
        let deadline = Instant::now() + Duration::from_secs(10);
        while self.lines().len() < count {
            assert!(Instant::now() < deadline, "{count} lines: {:#?}", self.lines());
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        self.lines()
    }
}

impl Write for Screen {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

async fn open(directory: &TempDir) -> SqliteSink {
    sqlite::open(&directory.file()).await.unwrap()
}

fn asked(directory: &TempDir) -> Tail {
    Tail { path: directory.file(), count: 10, follow: false, json: false }
}

#[tokio::test]
async fn a_line_says_who_did_what_and_what_came_of_it() {
    let directory = TempDir::new();
    let sink = open(&directory).await;
    let call = intent();
    append(&sink, &[call.clone(), settle(&call), denial()]).await.unwrap();
    let mut screen = Screen::default();
    tail(&asked(&directory), &mut screen).await.unwrap();

    let lines = screen.lines();
    assert_eq!(lines.len(), 4);
    let words = |line: &String| line.split_whitespace().skip(1).map(str::to_owned).collect();
    let call_id = call.call_id.unwrap().to_string();
    let expected: [Vec<&str>; 4] = [
        "KIND OUTCOME SUBJECT TIER MODEL PROVIDER TOKENS COST LATENCY CALL".split(' ').collect(),
        vec!["intent", "-", "user-1", "pro", "demo", "-", "-", "-", "-", &call_id],
        vec![
            "settle",
            "ok",
            "user-1",
            "pro",
            "demo",
            "scripted",
            "312+118",
            "$0.000198",
            "1234",
            "ms",
            &call_id,
        ],
        vec!["denied", "missing_token", "-", "-", "-", "-", "-", "-", "-", "-"],
    ];
    for (line, expected) in lines.iter().zip(expected) {
        let words: Vec<String> = words(line);
        assert_eq!(words, expected);
    }
    let at = |line: &str, word: &str| line.find(word).unwrap();
    assert_eq!(at(&lines[0], "OUTCOME"), at(&lines[2], "ok "));
    assert_eq!(at(&lines[0], "CALL"), at(&lines[2], &call_id));
    assert!(lines[1].starts_with("20") && &lines[1][19..20] == "." && &lines[1][23..24] == "Z");
}

#[tokio::test]
async fn json_lines_hold_every_field_that_is_set() {
    let directory = TempDir::new();
    let sink = open(&directory).await;
    let call = intent();
    let end = settle(&call);
    append(&sink, &[denial(), end.clone()]).await.unwrap();
    let mut screen = Screen::default();
    tail(&Tail { json: true, ..asked(&directory) }, &mut screen).await.unwrap();

    let lines: Vec<serde_json::Value> =
        screen.lines().iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 2);
    assert_eq!(lines[0].get("subject"), None);
    assert_eq!(lines[1]["seq"], 2);
    assert_eq!(lines[1]["id"], end.id.to_string());
    assert_eq!(lines[1]["cost_micro_usd"], 198);
    assert_eq!(lines[1]["extra"]["cost_center"], "42");
    assert_eq!(lines[1].as_object().unwrap().len(), FIELDS.len() + 1);
    let time: jiff::Timestamp = lines[1]["time"].as_str().unwrap().parse().unwrap();
    assert_eq!(time.as_microsecond(), end.time.as_microsecond());
}

#[tokio::test]
async fn the_newest_are_shown_oldest_first_and_as_many_as_asked_for() {
    let directory = TempDir::new();
    let sink = open(&directory).await;
    let numbered = |number: usize| Entry { request_id: number.to_string(), ..denial() };
    let entries: Vec<_> = (1..=2_500).map(numbered).collect();
    append(&sink, &entries).await.unwrap();
    for (count, expected) in [(0, 0), (3, 3), (2_100, 2_100), (2_500, 2_500), (9_999, 2_500)] {
        let mut screen = Screen::default();
        tail(&Tail { json: true, count, ..asked(&directory) }, &mut screen).await.unwrap();
        let lines = screen.lines();
        assert_eq!(lines.len(), expected);
        for (line, number) in lines.iter().zip(2_501 - expected..) {
            assert!(line.contains(&format!("\"request_id\":\"{number}\"")), "{line}");
        }
    }
}

#[tokio::test]
async fn following_shows_new_rows_once_as_they_come() {
    let directory = TempDir::new();
    let sink = open(&directory).await;
    append(&sink, &[denial(), denial()]).await.unwrap();
    let screen = Screen::default();
    let asked = Tail { count: 1, follow: true, ..asked(&directory) };
    let mut out = screen.clone();
    let following = tokio::spawn(async move { tail(&asked, &mut out).await });
    screen.wait_for(2).await;
    let call = intent();
    append(&sink, std::slice::from_ref(&call)).await.unwrap();
    assert!(screen.wait_for(3).await[2].contains(" intent "));
    append(&sink, &[settle(&call)]).await.unwrap();
    let lines = screen.wait_for(4).await;
    assert!(lines[3].contains(" settle "));
    assert_eq!(lines.len(), 4);
    assert!(!following.is_finished());
    following.abort();
}

#[tokio::test]
async fn following_an_empty_trail_shows_the_first_row() {
    let directory = TempDir::new();
    let sink = open(&directory).await;
    let screen = Screen::default();
    let asked = Tail { follow: true, ..asked(&directory) };
    let mut out = screen.clone();
    let following = tokio::spawn(async move { tail(&asked, &mut out).await });
    screen.wait_for(1).await;
    append(&sink, &[denial()]).await.unwrap();
    screen.wait_for(2).await;
    following.abort();
}

#[tokio::test]
async fn the_trail_is_shown_when_no_gateway_runs() {
    let directory = TempDir::new();
    append(&open(&directory).await, &[denial()]).await.unwrap();
    let mut screen = Screen::default();
    tail(&asked(&directory), &mut screen).await.unwrap();
    assert_eq!(screen.lines().len(), 2);
}

#[tokio::test]
async fn what_strangers_sent_cannot_steer_the_terminal() {
    let directory = TempDir::new();
    let sink = open(&directory).await;
    let model = Some("\u{1b}[2J\u{9b}31m\r\nfake line".to_owned());
    append(&sink, &[Entry { model, ..intent() }]).await.unwrap();
    let mut screen = Screen::default();
    tail(&asked(&directory), &mut screen).await.unwrap();
    let lines = screen.lines();
    assert_eq!(lines.len(), 2);
    assert!(!lines[1].chars().any(char::is_control), "{:?}", lines[1]);
}

#[tokio::test]
async fn a_reader_that_has_gone_is_no_error_and_a_full_disk_is() {
    struct Broken(io::ErrorKind);

    impl Write for Broken {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(self.0.into())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    let directory = TempDir::new();
    append(&open(&directory).await, &[denial()]).await.unwrap();
    for json in [true, false] {
        let asked = Tail { json, follow: true, ..asked(&directory) };
        tail(&asked, &mut Broken(io::ErrorKind::BrokenPipe)).await.unwrap();
        let error = tail(&asked, &mut Broken(io::ErrorKind::StorageFull)).await.unwrap_err();
        assert!(matches!(error, TailError::Output(_)), "{error}");
    }
}

#[tokio::test]
async fn a_missing_database_is_named_with_what_to_do() {
    let directory = TempDir::new();
    let error = tail(&asked(&directory), &mut Screen::default()).await.unwrap_err().to_string();
    assert!(error.contains("start tollgate first, or pass --config or --path"), "{error}");
}
