//! The chain: each link is a hash over all that came before.

use aws_lc_rs::digest::{SHA256, digest};
use tollgate::audit::{Chain, Link};
use uuid::Uuid;

fn origin() -> Link {
    Link { epoch: 3, ..Link::origin(Uuid::from_u128(7)) }
}

fn hash(link: &Link, previous: [u8; 32], record: &[u8]) -> Vec<u8> {
    let mut bytes = b"tollgate-audit-1\0".to_vec();
    bytes.extend(link.writer.as_bytes());
    bytes.extend(link.epoch.to_be_bytes());
    bytes.extend(link.seq.to_be_bytes());
    bytes.extend(previous);
    bytes.extend(record);
    digest(&SHA256, &bytes).as_ref().to_vec()
}

#[test]
fn a_link_is_what_its_definition_says() {
    let mut chain = Chain::after(origin());
    let (first, record) = chain.link(|out| out.extend(b"one"));
    assert_eq!((first.writer, first.epoch, first.seq), (Uuid::from_u128(7), 3, 1));
    assert_eq!(record, b"one");
    let first = *first;
    assert_eq!(first.hash, *hash(&first, [0; 32], b"one"));
    let second = *chain.link(|out| out.extend(b"two")).0;
    assert_eq!(second.hash, *hash(&second, first.hash, b"two"));
    assert_eq!(chain.last(), &second);
}

#[test]
fn any_change_changes_every_later_link() {
    let last = |start: Link, records: &[&[u8]]| {
        let mut chain = Chain::after(start);
        for record in records {
            chain.link(|out| out.extend(*record));
        }
        chain.last().hash
    };
    let records: [&[u8]; 3] = [b"a", b"b", b"c"];
    let good = last(origin(), &records);
    assert_eq!(good, last(origin(), &records));
    let others = [
        last(Link { writer: Uuid::from_u128(8), ..origin() }, &records),
        last(Link { epoch: 4, ..origin() }, &records),
        last(Link { seq: 1, ..origin() }, &records),
        last(Link { hash: [1; 32], ..origin() }, &records),
        last(origin(), &[b"x", b"b", b"c"]),
        last(origin(), &[b"b", b"a", b"c"]),
        last(origin(), &[b"a", b"c"]),
        last(origin(), &[b"a", b"", b"b", b"c"]),
    ];
    assert!(others.iter().all(|other| *other != good));
}

#[test]
fn a_chain_that_goes_back_goes_on_as_if_nothing_had_been() {
    let mut chain = Chain::after(origin());
    let first = *chain.link(|out| out.extend(b"one")).0;
    chain.link(|out| out.extend(b"lost"));
    chain.reset(first);
    let second = *chain.link(|out| out.extend(b"two")).0;
    assert_eq!(second.hash, *hash(&second, first.hash, b"two"));
}
