//! Registered memory as a port: the peer names our application's bytes, so they are I/O.

use bitflags::bitflags;
use roce_wire::{PayloadCrc, Qpn};
use thiserror::Error;

use crate::PdHandle;

/// Registered memory as the engine sees it: a port, like the network and the clock.
///
/// The engine decides *whether* and *where*; this trait moves the bytes. Tests implement
/// it over a `Vec<u8>`, `roce-verbs` over real regions, and only there is a pointer ever
/// followed. Local and remote keys are one set of numbers.
///
/// ```
/// use roce_transport::{Access, Accessor, AtomicChange, Memory, MemoryFault};
///
/// /// One region, readable and writable by all, with key 7 at address 0.
/// struct Bytes(Vec<u8>);
///
/// impl Memory for Bytes {
///     type Grant = usize;
///
///     fn check(
///         &self, _: Accessor, key: u32, address: u64, len: u64, _: Access,
///     ) -> Result<usize, MemoryFault> {
///         if key != 7 {
///             return Err(MemoryFault::UnknownKey);
///         }
///         let end = address.checked_add(len).ok_or(MemoryFault::OutOfBounds)?;
///         if end > self.0.len() as u64 {
///             return Err(MemoryFault::OutOfBounds);
///         }
///         Ok(address as usize)
///     }
///     fn write(&mut self, grant: usize, offset: u64, bytes: &[u8]) {
///         self.0[grant + offset as usize..][..bytes.len()].copy_from_slice(bytes);
///     }
///     fn read(&self, grant: usize, offset: u64, into: &mut [u8]) {
///         into.copy_from_slice(&self.0[grant + offset as usize..][..into.len()]);
///     }
///     fn atomic(&mut self, grant: usize, change: AtomicChange) -> u64 {
///         let word = self.0[grant..].first_chunk_mut().unwrap();
///         let original = u64::from_ne_bytes(*word);
///         *word = change.apply(original).to_ne_bytes();
///         original
///     }
///     fn invalidate(&mut self, _: Accessor, _: u32) -> Result<(), MemoryFault> {
///         Err(MemoryFault::NotInvalidatable)
///     }
/// }
/// ```
pub trait Memory {
    /// A permission that was checked. Only [`check`](Self::check) makes one, and the engine
    /// uses it before it returns to its caller: a region may be deregistered any time later.
    type Grant: Copy;

    /// Proves that `len` bytes at `address` under `key` may be used for `access` by the
    /// queue pair `by`. For [`Access::RemoteAtomic`] that includes that the word is
    /// aligned where it lies, which its address need not show: [`MemoryFault::Misaligned`].
    ///
    /// # Errors
    /// [`MemoryFault`]; then no byte may be touched.
    fn check(
        &self,
        by: Accessor,
        key: u32,
        address: u64,
        len: u64,
        access: Access,
    ) -> Result<Self::Grant, MemoryFault>;

    /// Stores `bytes`, `offset` bytes behind the start of what was granted.
    fn write(&mut self, grant: Self::Grant, offset: u64, bytes: &[u8]);

    /// Loads `into.len()` bytes, `offset` bytes behind the start of what was granted.
    fn read(&self, grant: Self::Grant, offset: u64, into: &mut [u8]);

    /// As [`read`](Self::read) of the payload of one packet; and its CRC, if it is a whole path MTU
    /// and making the CRC on the way costs less than a pass of its own. `None`: the sealer of the
    /// packet makes it.
    fn read_summed(&self, grant: Self::Grant, offset: u64, into: &mut [u8]) -> Option<PayloadCrc> {
        self.read(grant, offset, into);
        None
    }

    /// Changes one aligned word of 8 bytes, in the machine's own byte order, in a single
    /// step, and returns what was there: the application may touch it meanwhile.
    fn atomic(&mut self, grant: Self::Grant, change: AtomicChange) -> u64;

    /// Ends the life of `key`, on behalf of the peer or of a local request.
    ///
    /// # Errors
    /// The key is unknown, of another domain, or not one that may be invalidated.
    fn invalidate(&mut self, by: Accessor, key: u32) -> Result<(), MemoryFault>;
}

/// The queue pair that accesses registered memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Accessor {
    /// Protection domain of the queue pair.
    pub pd: PdHandle,
    /// Number of the queue pair.
    pub qpn: Qpn,
}

/// An access to registered memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Access {
    /// A request of our own reads what it sends.
    LocalRead,
    /// A request of our own stores what it received.
    LocalWrite,
    /// The peer reads.
    RemoteRead,
    /// The peer writes.
    RemoteWrite,
    /// The peer changes a word atomically.
    RemoteAtomic,
}

/// Why memory may not be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Error)]
#[non_exhaustive]
pub enum MemoryFault {
    /// No region has this key, or it was invalidated.
    #[error("no memory region has this key")]
    UnknownKey,
    /// The region belongs to another protection domain than the queue pair.
    #[error("the memory region belongs to another protection domain")]
    WrongDomain,
    /// The region was not registered for this kind of access.
    #[error("the memory region was not registered for this access")]
    NoPermission,
    /// Some byte lies outside the region.
    #[error("the range leaves the memory region")]
    OutOfBounds,
    /// The key was not registered as one that a peer may invalidate.
    #[error("the key cannot be invalidated")]
    NotInvalidatable,
    /// The word of an atomic is not aligned to 8 bytes.
    #[error("the word is not aligned to 8 bytes")]
    Misaligned,
}

/// What an atomic does to a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AtomicChange {
    /// Adds, modulo 2^64.
    Add(u64),
    /// Stores `new` if the word holds `expected`.
    SwapIf {
        /// What the word must hold.
        expected: u64,
        /// What it holds afterwards.
        new: u64,
    },
}

impl AtomicChange {
    /// What the word holds afterwards if it held `original` before.
    ///
    /// ```
    /// use roce_transport::AtomicChange;
    /// assert_eq!(AtomicChange::Add(2).apply(u64::MAX), 1);
    /// assert_eq!(AtomicChange::SwapIf { expected: 1, new: 9 }.apply(1), 9);
    /// assert_eq!(AtomicChange::SwapIf { expected: 1, new: 9 }.apply(2), 2);
    /// ```
    pub const fn apply(self, original: u64) -> u64 {
        match self {
            Self::Add(add) => original.wrapping_add(add),
            Self::SwapIf { expected, new } if expected == original => new,
            Self::SwapIf { .. } => original,
        }
    }
}

bitflags! {
    /// What a region or a queue pair allows, with the numbers of `ibv_access_flags`.
    ///
    /// Reading by the local side is always allowed.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct AccessFlags: u32 {
        /// Requests of our own may store into it.
        const LOCAL_WRITE = 1;
        /// The peer may write.
        const REMOTE_WRITE = 1 << 1;
        /// The peer may read.
        const REMOTE_READ = 1 << 2;
        /// The peer may change words atomically.
        const REMOTE_ATOMIC = 1 << 3;
    }
}

impl AccessFlags {
    /// Everything.
    pub const ALL: Self = Self::all();
}
