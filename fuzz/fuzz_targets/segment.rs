//! A segment of the audit spool after a crash, or after anything else: reading it takes whatever is
//! there, believes only what was written, and stops where it should.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tollgate::audit::{
    Record,
    spool::{read_frame, scan},
};

fuzz_target!(|input: (u64, Vec<u8>)| {
    let (first, bytes) = input;
    let found = scan(&bytes, first);
    assert!(found.good <= bytes.len());
    let again = scan(&bytes[..found.good], first);
    assert_eq!((again.last, again.good), (found.last, found.good));
    assert!(!again.is_damaged);
    if let Ok(frame) = read_frame(&bytes) {
        assert!(frame.length <= bytes.len());
        if let Ok(record) = Record::decode(frame.record) {
            let mut again = Vec::new();
            record.encode(&mut again);
            assert_eq!(again, frame.record);
        }
    }
    if let Ok(record) = Record::decode(&bytes) {
        let mut again = Vec::new();
        record.encode(&mut again);
        assert_eq!(again, bytes);
    }
});
