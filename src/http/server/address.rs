//! How many connections each address has open.

use std::{
    collections::{HashMap, hash_map::Entry},
    net::IpAddr,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use ipnet::IpNet;

use crate::http::context::customer;

/// Connections open, by the address that they come from: one address must not take every place.
///
/// An address without a connection has no entry, so there are never more entries than
/// connections.
#[derive(Debug)]
pub struct Addresses {
    max_of_one: usize,
    /// Through a proxy come the connections of all of its clients.
    trusted_proxies: Vec<IpNet>,
    open: Mutex<HashMap<IpAddr, usize>>,
    refused: AtomicU64,
}

/// A connection's place among those of its address, until it is dropped.
#[derive(Debug)]
pub struct AddressPlace {
    /// `None` if it is not counted.
    counted: Option<(Arc<Addresses>, IpAddr)>,
}

impl Addresses {
    #[must_use]
    pub fn new(max_of_one: usize, trusted_proxies: Vec<IpNet>) -> Self {
        Self {
            max_of_one,
            trusted_proxies,
            open: Mutex::new(HashMap::new()),
            refused: AtomicU64::new(0),
        }
    }

    /// A place for one more connection of `peer`; `None` if it has as many as it may.
    #[must_use]
    pub fn take(self: &Arc<Self>, peer: IpAddr) -> Option<AddressPlace> {
        // A listener for both versions has IPv4 peers as `::ffff:a.b.c.d`, all of one /64.
        let peer = peer.to_canonical();
        if self.trusted_proxies.iter().any(|network| network.contains(&peer)) {
            return Some(AddressPlace { counted: None });
        }
        let customer = customer(peer);
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let count = open.get(&customer).copied().unwrap_or(0);
        if count >= self.max_of_one {
            self.refused.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        open.insert(customer, count + 1);
        Some(AddressPlace { counted: Some((Arc::clone(self), customer)) })
    }

    /// Connections that got no place, so far.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    /// How many addresses have connections open.
    #[must_use]
    pub fn entries(&self) -> usize {
        self.open.lock().unwrap_or_else(PoisonError::into_inner).len()
    }
}

impl Drop for AddressPlace {
    fn drop(&mut self) {
        let Some((addresses, customer)) = self.counted.take() else { return };
        let mut open = addresses.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Entry::Occupied(mut count) = open.entry(customer) {
            if *count.get() > 1 {
                *count.get_mut() -= 1;
            } else {
                count.remove();
            }
        }
    }
}
