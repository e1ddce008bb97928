//! The buffer that all ports of a switch share, and its accounts.

use crate::CLASSES;

/// Bytes in the buffer, by the port and class that they came in by, and which of them lie in the
/// headroom.
///
/// The shared pool has a dynamic threshold: an account may hold `alpha` times the bytes that are
/// free. Headroom is apart from the pool, and belongs to one port and class.
#[derive(Debug)]
pub(crate) struct SharedBuffer {
    pool: u64,
    alpha: f64,
    used: u64,
    accounts: Vec<[Account; CLASSES]>,
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Account {
    pub(crate) shared: u64,
    pub(crate) headroom: u64,
}

impl SharedBuffer {
    pub(crate) fn new(pool: u64, alpha: f64, ports: usize) -> Self {
        Self { pool, alpha, used: 0, accounts: vec![[Account::default(); CLASSES]; ports] }
    }

    pub(crate) fn account(&self, port: usize, class: usize) -> Account {
        self.accounts[port][class]
    }

    /// Returns the bytes that one account or queue may hold now.
    pub(crate) fn threshold(&self) -> u64 {
        (self.free() as f64 * self.alpha) as u64
    }

    pub(crate) fn free(&self) -> u64 {
        self.pool - self.used
    }

    pub(crate) fn take_shared(&mut self, port: usize, class: usize, len: u64) {
        self.used += len;
        self.accounts[port][class].shared += len;
    }

    pub(crate) fn take_headroom(&mut self, port: usize, class: usize, len: u64) {
        self.accounts[port][class].headroom += len;
    }

    /// Frees the bytes of a frame that left: those of the headroom first, so that it is whole
    /// when the link resumes.
    pub(crate) fn release(&mut self, port: usize, class: usize, len: u64) {
        let account = &mut self.accounts[port][class];
        let from_headroom = len.min(account.headroom);
        let from_pool = len - from_headroom;
        account.headroom -= from_headroom;
        account.shared -= from_pool;
        self.used -= from_pool;
    }
}
