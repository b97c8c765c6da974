//! The scripts, and a call of one.

use redis::{Cmd, Script, cmd};

use crate::domain::CallId;

/// Without it Redis lets a script run where it may not write, until it writes.
const HEAD: &str = "#!lua\n";
const BUCKET: &str = include_str!("bucket.lua");

/// A script for each thing that a ledger does.
#[derive(Debug)]
pub(super) struct Scripts {
    pub(super) reserve: Source,
    pub(super) depart: Source,
    pub(super) settle: Source,
    pub(super) abandon: Source,
    pub(super) renew: Source,
    pub(super) standings: Source,
}

/// A script's text, and the hash that Redis knows it by.
#[derive(Debug)]
pub(super) struct Source {
    text: String,
    hash: String,
}

impl Scripts {
    /// `clock` is Lua that defines `clock()`.
    pub(super) fn new(clock: &str) -> Self {
        let source = |body: &str| {
            let text = [HEAD, clock, BUCKET, body].concat();
            Source { hash: Script::new(&text).get_hash().to_owned(), text }
        };
        Self {
            reserve: source(include_str!("reserve.lua")),
            depart: source(include_str!("depart.lua")),
            settle: source(include_str!("settle.lua")),
            abandon: source(include_str!("abandon.lua")),
            renew: source(include_str!("renew.lua")),
            standings: source(include_str!("standings.lua")),
        }
    }
}

/// One argument.
#[derive(Debug, Clone, Copy)]
pub(super) enum Word {
    Text(&'static str),
    Number(u64),
    Id(CallId),
}

/// A script to run.
#[derive(Debug)]
pub(super) struct Call<'a> {
    pub(super) source: &'a Source,
    pub(super) keys: Vec<String>,
    pub(super) words: Vec<Word>,
}

impl Call<'_> {
    pub(super) fn by_hash(&self) -> Cmd {
        self.command("EVALSHA", &self.source.hash)
    }

    /// Leaves the script with the server.
    pub(super) fn by_source(&self) -> Cmd {
        self.command("EVAL", &self.source.text)
    }

    fn command(&self, name: &str, script: &str) -> Cmd {
        let mut command = cmd(name);
        command.arg(script).arg(self.keys.len()).arg(&self.keys);
        for word in &self.words {
            match word {
                Word::Text(text) => command.arg(text),
                Word::Number(number) => command.arg(number),
                Word::Id(id) => {
                    let mut buffer = [0; uuid::fmt::Hyphenated::LENGTH];
                    command.arg(&*id.as_uuid().hyphenated().encode_lower(&mut buffer))
                }
            };
        }
        command
    }
}
