//! Registered memory as a port: the peer names our application's bytes, so they are I/O.

use bitflags::bitflags;
use roce_wire::{PayloadCrc, Qpn};
use thiserror::Error;

use crate::{PdHandle, WindowBinding};

/// Registered memory, as the engine uses it.
///
/// The engine decides which bytes are accessed; an implementation checks and copies them:
/// [`Regions`](crate::Regions) in bytes of its own, `roce-verbs` in those of the process. Local and remote keys share
/// one number space.
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
///     fn write(&mut self, grant: usize, offset: u64, bytes: &[u8]) -> Result<(), MemoryFault> {
///         self.0[grant + offset as usize..][..bytes.len()].copy_from_slice(bytes);
///         Ok(())
///     }
///     fn read(&self, grant: usize, offset: u64, into: &mut [u8]) -> Result<(), MemoryFault> {
///         into.copy_from_slice(&self.0[grant + offset as usize..][..into.len()]);
///         Ok(())
///     }
///     fn atomic(&mut self, grant: usize, change: AtomicChange) -> Result<u64, MemoryFault> {
///         let word = self.0[grant..].first_chunk_mut().unwrap();
///         let original = u64::from_ne_bytes(*word);
///         *word = change.apply(original).to_ne_bytes();
///         Ok(original)
///     }
///     fn invalidate(&mut self, _: Accessor, _: u32) -> Result<(), MemoryFault> {
///         Err(MemoryFault::NotInvalidatable)
///     }
/// }
/// ```
pub trait Memory {
    /// A checked permission, made by [`check`](Self::check) only. The engine uses it before it returns
    /// to its caller, since a region may be deregistered later.
    type Grant: Copy;

    /// Checks that the queue pair `by` may access `len` bytes at `address` with `key`. For
    /// [`Access::RemoteAtomic`] the word must also be aligned in host memory, which its remote address
    /// need not show: [`MemoryFault::Misaligned`]. The same holds for [`Access::RemoteAtomicWrite`]. Of
    /// several faults that of the bounds is the last to be found.
    ///
    /// # Errors
    /// [`MemoryFault`]: the access is not allowed.
    fn check(
        &self,
        by: Accessor,
        key: u32,
        address: u64,
        len: u64,
        access: Access,
    ) -> Result<Self::Grant, MemoryFault>;

    /// Checks that the queue pair `by` may access the region of `key`, of which it names no bytes.
    ///
    /// # Errors
    /// [`MemoryFault`]: the access is not allowed.
    fn check_region(&self, by: Accessor, key: u32, access: Access) -> Result<(), MemoryFault> {
        match self.check(by, key, 0, 0, access) {
            Ok(_) | Err(MemoryFault::OutOfBounds) => Ok(()),
            Err(fault) => Err(fault),
        }
    }

    /// Stores `bytes`, `offset` bytes behind the start of the grant.
    ///
    /// # Errors
    /// [`MemoryFault::NotPresent`]: a page of the range cannot be written. Bytes before it may have
    /// been.
    fn write(&mut self, grant: Self::Grant, offset: u64, bytes: &[u8]) -> Result<(), MemoryFault>;

    /// Loads `into.len()` bytes, `offset` bytes behind the start of the grant.
    ///
    /// # Errors
    /// [`MemoryFault::NotPresent`]: a page of the range cannot be read; what `into` holds then is not
    /// defined.
    fn read(&self, grant: Self::Grant, offset: u64, into: &mut [u8]) -> Result<(), MemoryFault>;

    /// Loads the payload of one packet, as [`read`](Self::read). Returns its CRC if the payload is a
    /// whole path MTU and one pass for both is cheaper; with `None`, the sealer computes the CRC.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    fn read_summed(
        &self,
        grant: Self::Grant,
        offset: u64,
        into: &mut [u8],
    ) -> Result<Option<PayloadCrc>, MemoryFault> {
        self.read(grant, offset, into).map(|()| None)
    }

    /// Changes an aligned 8-byte word in host byte order atomically, also for threads of the
    /// application. Returns its original value.
    ///
    /// # Errors
    /// [`MemoryFault::NotPresent`]: the page of the word cannot be written, and nothing has changed.
    fn atomic(&mut self, grant: Self::Grant, change: AtomicChange) -> Result<u64, MemoryFault>;

    /// Invalidates `key`, for the peer or for a local request.
    ///
    /// # Errors
    /// If the key is unknown, of another protection domain, or may not be invalidated.
    fn invalidate(&mut self, by: Accessor, key: u32) -> Result<(), MemoryFault>;

    /// Binds a memory window, for a local request. Memory without windows has only this.
    ///
    /// # Errors
    /// If the window or the region is unknown, the region does not give the right, or the window is not
    /// in a state to be bound.
    fn bind_window(&mut self, _by: Accessor, _to: &WindowBinding) -> Result<(), MemoryFault> {
        Err(MemoryFault::UnknownKey)
    }
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
    /// A local request loads its payload.
    LocalRead,
    /// A local request stores received data.
    LocalWrite,
    /// A READ of the peer.
    RemoteRead,
    /// A WRITE of the peer.
    RemoteWrite,
    /// An atomic of the peer.
    RemoteAtomic,
    /// An ATOMIC WRITE of the peer.
    RemoteAtomicWrite,
    /// A FLUSH of the peer that makes bytes globally visible.
    RemoteFlushGlobal,
    /// A FLUSH of the peer that makes bytes persistent.
    RemoteFlushPersistent,
}

impl Access {
    /// Returns the access flags that a region needs for it.
    ///
    /// ```
    /// use roce_transport::{Access, AccessFlags};
    /// assert_eq!(Access::RemoteRead.required_flags(), AccessFlags::REMOTE_READ);
    /// assert!(Access::LocalRead.required_flags().is_empty());
    /// ```
    #[inline]
    pub const fn required_flags(self) -> AccessFlags {
        match self {
            Self::LocalRead => AccessFlags::empty(),
            Self::LocalWrite => AccessFlags::LOCAL_WRITE,
            Self::RemoteRead => AccessFlags::REMOTE_READ,
            //= rule rc-atomic-write-right: rxe_resp.c: check_rkey
            //# An ATOMIC WRITE needs the right to write, and not that of atomics.
            Self::RemoteWrite | Self::RemoteAtomicWrite => AccessFlags::REMOTE_WRITE,
            Self::RemoteAtomic => AccessFlags::REMOTE_ATOMIC,
            Self::RemoteFlushGlobal => AccessFlags::FLUSH_GLOBAL,
            Self::RemoteFlushPersistent => AccessFlags::FLUSH_PERSISTENT,
        }
    }

    /// Returns true if it changes a word in one step, which has to be aligned in host memory.
    #[inline]
    pub const fn is_of_word(self) -> bool {
        matches!(self, Self::RemoteAtomic | Self::RemoteAtomicWrite)
    }
}

/// Reason why an access to memory is refused.
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
    /// A byte is outside the region.
    #[error("the range leaves the memory region")]
    OutOfBounds,
    /// The key was not registered as one that a peer may invalidate.
    #[error("the key cannot be invalidated")]
    NotInvalidatable,
    /// The memory window belongs to another queue pair.
    #[error("the memory window is bound through another queue pair")]
    WrongQueuePair,
    /// The memory window is bound already, or its type does not allow this binding.
    #[error("the memory window cannot be bound like this")]
    NotBindable,
    /// The word of an atomic or ATOMIC WRITE is not aligned to 8 bytes.
    #[error("the word is not aligned to 8 bytes")]
    Misaligned,
    /// The key opens the bytes, but the process has no such page: it was unmapped or protected since
    /// the registration, lies behind the end of its file, or cannot be paged in.
    #[error("the memory of the region is not mapped, or not for this access")]
    NotPresent,
}

/// The change of a word by an atomic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AtomicChange {
    /// Adds, modulo 2^64.
    Add(u64),
    /// Stores, whatever the word holds.
    Store(u64),
    /// Stores `new` if the word holds `expected`.
    SwapIf {
        /// Value that the word must have.
        expected: u64,
        /// Value after the change.
        new: u64,
    },
}

impl AtomicChange {
    /// Returns the value after the change of `original`.
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
            Self::Store(new) => new,
            Self::SwapIf { expected, new } if expected == original => new,
            Self::SwapIf { .. } => original,
        }
    }
}

bitflags! {
    /// Accesses that a region or a queue pair allows, with the numbers of `ibv_access_flags`.
    ///
    /// Reading by the local side is always allowed.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct AccessFlags: u32 {
        /// Local requests may store received data.
        const LOCAL_WRITE = 1;
        /// The peer may write.
        const REMOTE_WRITE = 1 << 1;
        /// The peer may read.
        const REMOTE_READ = 1 << 2;
        /// The peer may change words atomically.
        const REMOTE_ATOMIC = 1 << 3;
        /// Memory windows may be bound to the region.
        const MW_BIND = 1 << 4;
        /// Peers address the first byte of a memory window as 0. Of no meaning for regions and queue
        /// pairs.
        const ZERO_BASED = 1 << 5;
        /// The peer may make bytes that it wrote globally visible, by FLUSH.
        const FLUSH_GLOBAL = 1 << 8;
        /// The peer may make bytes that it wrote persistent, by FLUSH. Only memory that survives a
        /// loss of power can give this right.
        const FLUSH_PERSISTENT = 1 << 9;
    }
}

impl AccessFlags {
    /// Everything.
    pub const ALL: Self = Self::all();
}
