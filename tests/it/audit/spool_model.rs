//! The spool over a disk that fails at random: what it said yes to comes out, once, in order, with
//! a chain that holds.

use std::{
    collections::{BTreeMap, HashSet},
    sync::Arc,
};

use proptest::prelude::*;
use tollgate::audit::{
    Chain, Entry, Link, Record,
    spool::{Spool, SpoolReader, SpoolSettings, SpoolState, SpoolWriter},
};

use super::{
    fake_disk::{FakeDisk, Fault},
    support::denial,
};

#[derive(Debug, Clone)]
enum Step {
    /// A group of so many entries.
    Write(usize),
    Sync,
    /// So many batches to the store; of the last one the store's answer is lost.
    Ship(usize),
    /// The next calls of the disk fail so.
    Faults(Vec<Option<Fault>>),
    Kill,
    LosePower {
        kept: u8,
        zeros: bool,
    },
    Close,
}

fn fault() -> impl Strategy<Value = Option<Fault>> {
    prop_oneof![
        3 => Just(None),
        1 => Just(Some(Fault::Before)),
        2 => any::<u8>().prop_map(|share| Some(Fault::Midway(share))),
        1 => Just(Some(Fault::After)),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        12 => (1_usize..6).prop_map(Step::Write),
        3 => Just(Step::Sync),
        3 => (1_usize..4).prop_map(Step::Ship),
        3 => prop::collection::vec(fault(), 1..8).prop_map(Step::Faults),
        1 => Just(Step::Kill),
        1 => (any::<u8>(), any::<bool>()).prop_map(|(kept, zeros)| Step::LosePower { kept, zeros }),
        1 => Just(Step::Close),
    ]
}

/// The spool, and beside it what should be in it.
struct Model {
    disk: Arc<FakeDisk>,
    settings: SpoolSettings,
    writer: Option<SpoolWriter>,
    reader: SpoolReader,
    state: Arc<SpoolState>,
    /// What was said to be written: numbers and ids.
    written: BTreeMap<u64, String>,
    /// Ids that were said not to be. After a crash they may be there all the same.
    refused: HashSet<String>,
    has_crashed: bool,
    store: BTreeMap<u64, (Link, Vec<u8>)>,
}

impl Model {
    fn new(is_strict: bool) -> Self {
        let disk = Arc::new(FakeDisk::default());
        let settings = SpoolSettings { limit_bytes: 1 << 20, segment_bytes: 1_000, is_strict };
        let Spool { writer, reader, state } = Spool::open(disk.clone(), settings).unwrap();
        Self {
            disk,
            settings,
            writer: Some(writer),
            reader,
            state,
            written: BTreeMap::new(),
            refused: HashSet::new(),
            has_crashed: false,
            store: BTreeMap::new(),
        }
    }

    fn write(&mut self, count: usize) {
        let entries: Vec<Entry> = (0..count).map(|_| denial()).collect();
        let writer = self.writer.as_mut().unwrap();
        let next = self.state.committed() + 1;
        for entry in &entries {
            writer.add(entry);
        }
        let ids = entries.iter().map(|entry| entry.id.to_string());
        match writer.commit() {
            Ok(()) => self.written.extend((next..).zip(ids)),
            Err(_) => self.refused.extend(ids),
        }
        assert_eq!(writer.group_bytes(), 0);
    }

    /// False once there is nothing more, or the disk fails.
    fn ship(&mut self, is_acknowledged: bool) -> bool {
        if !self.reader.read().is_ok_and(|records| records > 0) {
            return false;
        }
        for linked in self.reader.batch().unwrap() {
            let mut record = Vec::new();
            linked.record.encode(&mut record);
            let row = (linked.link, record);
            let before = self.store.insert(linked.link.seq, row.clone());
            assert!(before.is_none_or(|before| before == row), "one record for a number");
        }
        if is_acknowledged {
            self.reader.acknowledge();
        }
        is_acknowledged
    }

    fn restart(&mut self) {
        // What a reader was promised to find, whatever happened.
        let synced = self.state.synced();
        self.disk.start();
        let spool = Spool::open(self.disk.clone(), self.settings).unwrap();
        (self.writer, self.reader, self.state) = (Some(spool.writer), spool.reader, spool.state);
        self.has_crashed = true;
        let found = self.state.committed();
        assert!(found >= synced, "what was synced is there");
        self.written.retain(|seq, _| *seq <= found);
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Write(count) => self.write(count),
            Step::Sync => _ = self.state.sync(),
            Step::Ship(batches) => {
                let _ = (0..batches).all(|_| self.ship(true));
                self.ship(false);
            }
            Step::Faults(faults) => self.disk.plan(faults),
            Step::Kill => {
                let committed = self.state.committed();
                let bad = |disk: &FakeDisk| disk.names().iter().filter(|name| is_bad(name)).count();
                let before = bad(&self.disk);
                self.disk.kill();
                self.restart();
                assert_eq!(bad(&self.disk), before, "a torn write is no damage");
                assert!(self.state.committed() >= committed, "what was written is there");
            }
            Step::LosePower { kept, zeros } => {
                let committed = self.state.committed();
                // Nobody was promised that these are there, nor that what was taken back before
                // them is not.
                let unsynced = self.written.split_off(&(self.state.synced() + 1));
                self.refused.extend(unsynced.into_values());
                self.disk.lose_power(kept, zeros);
                self.restart();
                assert!(!self.settings.is_strict || self.state.committed() >= committed);
            }
            Step::Close => {
                self.disk.start();
                self.writer.take().unwrap().close().unwrap();
                while self.ship(true) {}
                self.reader.remove_finished().unwrap();
                assert_eq!((self.state.unshipped(), self.state.bytes()), (0, 0));
                assert!(self.disk.names().iter().all(|name| name == "head" || is_bad(name)));
                self.restart();
            }
        }
    }

    /// Ships all, and compares.
    fn finish(mut self) {
        self.step(Step::Close);
        let ids = self.store.iter().map(|(seq, (_, record))| {
            let record = Record::decode(record).unwrap();
            (*seq, record.get("id").text().unwrap().to_owned())
        });
        let stored: BTreeMap<u64, String> = ids.collect();
        for (seq, id) in &self.written {
            assert_eq!(stored.get(seq), Some(id), "what was written is in the store");
        }
        for (seq, id) in &stored {
            let is_known = self.written.get(seq) == Some(id)
                || (self.has_crashed && self.refused.contains(id));
            assert!(is_known, "nothing is invented");
        }
        verify(self.store.values());
    }
}

fn is_bad(name: &str) -> bool {
    name.contains(".bad")
}

/// Each record is linked to the one before, from the first on, without a gap.
fn verify<'a>(rows: impl Iterator<Item = &'a (Link, Vec<u8>)>) {
    let mut chain: Option<Chain> = None;
    for (link, record) in rows {
        let before = chain.as_ref().map_or(Link::origin(link.writer), |chain| *chain.last());
        let mut next = Chain::after(Link { epoch: link.epoch, ..before });
        assert!(before.epoch <= link.epoch);
        assert_eq!(next.link(|to| to.extend(record)).0, link);
        chain = Some(next);
    }
}

fn run(is_strict: bool, steps: Vec<Step>) {
    let mut model = Model::new(is_strict);
    for step in steps {
        model.step(step);
    }
    model.finish();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

    #[test]
    fn what_was_said_to_be_written_comes_out_and_nothing_else(
        is_strict in any::<bool>(), steps in prop::collection::vec(step(), 1..40)
    ) {
        run(is_strict, steps);
    }
}
