//! Work requests.

use alloc::vec::Vec;

use roce_wire::{Feth, FlushExtent, Psn, Trailer};
use smallvec::SmallVec;

use crate::completion::CompletionOperation;
use crate::{SgList, WindowBinding};

/// A request to be posted to a send queue.
///
/// ```
/// use roce_transport::{WrData, SgList, SendOperation, SendWr, Sge};
/// let hello = SendWr {
///     wr_id: 1,
///     operation: SendOperation::Send { immediate: None, invalidate: None },
///     data: WrData::Inline(b"hello".into()),
///     signaled: true,
///     solicited: false,
///     fence: false,
///     defer_ack: false,
/// };
/// assert_eq!(hello.data.len(), 5);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SendWr {
    /// Number chosen by the application, returned in the completion.
    pub wr_id: u64,
    /// Operation.
    pub operation: SendOperation,
    /// Local bytes.
    pub data: WrData,
    /// A completion reports success too, not only failure.
    pub signaled: bool,
    /// The peer's completion is solicited. For SEND, and WRITE with immediate.
    pub solicited: bool,
    /// Starts after all earlier READs and atomics.
    pub fence: bool,
    /// The ACK of this SEND or WRITE is deferred: it is requested only when the send queue, the
    /// window or the peer's receives would run short otherwise, or after the ACK timeout. A loss is
    /// found as late as that, or when a request follows.
    pub defer_ack: bool,
}

/// What a request in a send queue does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendOperation {
    /// Sends a message to the peer's next posted receive.
    Send {
        /// Four bytes for the peer's completion.
        immediate: Option<[u8; 4]>,
        /// A key of the peer to be invalidated. Not together with `immediate`.
        invalidate: Option<u32>,
    },
    /// Writes into the peer's memory.
    Write {
        /// Where.
        remote: RemoteAddr,
        /// Four bytes for the peer's completion; uses up one of its posted receives.
        immediate: Option<[u8; 4]>,
    },
    /// Reads from the peer's memory.
    Read {
        /// Where.
        remote: RemoteAddr,
    },
    /// Stores `swap` in a word of the peer's if it holds `compare`; brings what it held.
    CompareSwap {
        /// The word, aligned to 8 bytes.
        remote: RemoteAddr,
        /// What the word must hold.
        compare: u64,
        /// What it holds afterwards.
        swap: u64,
    },
    /// Adds to a word of the peer's; brings what it held.
    FetchAdd {
        /// The word, aligned to 8 bytes.
        remote: RemoteAddr,
        /// What to add, modulo 2^64.
        add: u64,
    },
    /// Stores a word at the peer in one step. The request has no local bytes.
    AtomicWrite {
        /// The word, aligned to 8 bytes.
        remote: RemoteAddr,
        /// What it holds afterwards, in the byte order of this host.
        value: u64,
    },
    /// Completes once everything that was written before is placed as asked. The request has no local
    /// bytes.
    Flush {
        /// First of the bytes that are placed.
        remote: RemoteAddr,
        /// Their number, at most 2^31.
        len: u32,
        /// Where they are placed: any of [`Feth::GLOBAL`] and [`Feth::PERSISTENT`].
        placement: u8,
        /// Whether these bytes are meant or all of their region.
        extent: FlushExtent,
    },
    /// Ends the life of a key of our own, once everything before is complete.
    LocalInvalidate {
        /// The key.
        key: u32,
    },
    /// Binds a memory window to a part of a region, once everything before is complete.
    BindWindow(WindowBinding),
}

/// Address in the peer's memory. The length is that of the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RemoteAddr {
    /// Virtual address of the first byte.
    pub addr: u64,
    /// The peer's key.
    pub rkey: u32,
}

/// The local bytes of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WrData {
    /// Registered memory. It must stay as it is until the request is complete.
    Sges(SgList),
    /// Bytes that were copied when the request was made.
    Inline(InlineData),
}

/// Bytes carried in the request itself; up to [`MAX_LEN_WITHOUT_ALLOCATION`] need no allocation.
///
/// [`MAX_LEN_WITHOUT_ALLOCATION`]: Self::MAX_LEN_WITHOUT_ALLOCATION
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InlineData(SmallVec<[u8; InlineData::MAX_LEN_WITHOUT_ALLOCATION]>);

/// A request to be posted to a receive queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecvWr {
    /// Number chosen by the application, returned in the completion.
    pub wr_id: u64,
    /// Memory for the message.
    pub sg_list: SgList,
}

/// The longest message that a peer may send, in bytes.
pub const MAX_MESSAGE_LEN: u64 = 1 << 31;

/// The longest message that a program may post, in bytes, whatever its operation and path MTU: as many packets of
/// 256 bytes as a READ may have.
pub const MAX_POSTED_LEN: u64 = MAX_READ_PACKETS as u64 * 256;

/// The maximum number of response packets of one READ: more could not be told from old packets.
pub const MAX_READ_PACKETS: u32 = Psn::HALF - 1;

impl SendOperation {
    /// Returns the operation that its completion reports.
    pub const fn completion_operation(&self) -> CompletionOperation {
        match self {
            Self::Send { .. } => CompletionOperation::Send,
            Self::Write { .. } => CompletionOperation::Write,
            Self::Read { .. } => CompletionOperation::Read,
            Self::CompareSwap { .. } => CompletionOperation::CompareSwap,
            Self::FetchAdd { .. } => CompletionOperation::FetchAdd,
            Self::AtomicWrite { .. } => CompletionOperation::AtomicWrite,
            Self::Flush { .. } => CompletionOperation::Flush,
            Self::LocalInvalidate { .. } => CompletionOperation::LocalInvalidate,
            Self::BindWindow(_) => CompletionOperation::BindWindow,
        }
    }

    /// Returns true for READs and atomics, which a response with data completes.
    pub const fn returns_data(&self) -> bool {
        matches!(self, Self::Read { .. } | Self::CompareSwap { .. } | Self::FetchAdd { .. })
    }

    /// Returns true for FLUSH and ATOMIC WRITE, which an empty response completes and which have no local
    /// bytes.
    pub const fn has_empty_response(&self) -> bool {
        matches!(self, Self::AtomicWrite { .. } | Self::Flush { .. })
    }

    /// Returns true for atomics, which bring the value of before; ATOMIC WRITE is none.
    pub const fn is_atomic(&self) -> bool {
        matches!(self, Self::CompareSwap { .. } | Self::FetchAdd { .. })
    }

    /// Returns true if it is one packet that draws a response of its own.
    pub(crate) const fn is_single_request(&self) -> bool {
        self.is_atomic() || self.has_empty_response()
    }

    /// Returns true if it is executed here and sends no packet.
    #[inline]
    pub const fn is_local(&self) -> bool {
        matches!(self, Self::LocalInvalidate { .. } | Self::BindWindow(_))
    }

    /// Returns the immediate data that it carries.
    #[inline]
    pub(crate) const fn immediate(&self) -> Option<[u8; 4]> {
        match self {
            Self::Send { immediate, .. } | Self::Write { immediate, .. } => *immediate,
            _ => None,
        }
    }

    /// Returns true if it consumes a receive of the peer's.
    pub(crate) const fn takes_receive(&self) -> bool {
        matches!(self, Self::Send { .. } | Self::Write { immediate: Some(_), .. })
    }

    pub(crate) const fn trailer(&self) -> Trailer {
        match self {
            Self::Send { immediate: Some(_), .. } | Self::Write { immediate: Some(_), .. } => {
                Trailer::Immediate
            }
            Self::Send { invalidate: Some(_), .. } => Trailer::InvalidateKey,
            _ => Trailer::None,
        }
    }
}

impl SendWr {
    /// A request over registered memory that reports errors only.
    ///
    /// ```
    /// use roce_transport::{SendOperation, SendWr, Sge};
    ///
    /// let piece = Sge { lkey: 7, addr: 0x1000, len: 64 };
    /// let work = SendWr::new(1, SendOperation::send(), [piece]).signaled().fenced();
    /// assert!(work.signaled && work.fence && !work.solicited);
    /// ```
    #[inline]
    pub fn new(wr_id: u64, operation: SendOperation, data: impl Into<SgList>) -> Self {
        let data = WrData::Sges(data.into());
        let (signaled, solicited, fence, defer_ack) = (false, false, false, false);
        Self { wr_id, operation, data, signaled, solicited, fence, defer_ack }
    }

    /// A request that carries its bytes itself and reports errors only.
    pub fn inline(wr_id: u64, operation: SendOperation, bytes: impl Into<InlineData>) -> Self {
        let data = WrData::Inline(bytes.into());
        Self { data, ..Self::new(wr_id, operation, []) }
    }

    /// The same, reporting success too.
    #[inline]
    #[must_use]
    pub fn signaled(mut self) -> Self {
        self.signaled = true;
        self
    }

    /// The same, waking a peer that waits for solicited completions only.
    #[must_use]
    pub fn solicited(mut self) -> Self {
        self.solicited = true;
        self
    }

    /// The same, with a fence: starts after earlier READs and atomics are complete.
    #[must_use]
    pub fn fenced(mut self) -> Self {
        self.fence = true;
        self
    }

    /// The same, acknowledged when it suits: see [`defer_ack`](Self#structfield.defer_ack). It
    /// makes no difference to a request that reports its success.
    #[inline]
    #[must_use]
    pub fn defer_ack(mut self) -> Self {
        self.defer_ack = true;
        self
    }
}

impl RecvWr {
    /// A receive for one message.
    pub fn new(wr_id: u64, sg_list: impl Into<SgList>) -> Self {
        Self { wr_id, sg_list: sg_list.into() }
    }
}

impl SendOperation {
    /// A SEND without immediate or invalidate.
    pub const fn send() -> Self {
        Self::Send { immediate: None, invalidate: None }
    }

    /// A WRITE without immediate.
    pub const fn write(remote: RemoteAddr) -> Self {
        Self::Write { remote, immediate: None }
    }

    /// A READ.
    pub const fn read(remote: RemoteAddr) -> Self {
        Self::Read { remote }
    }

    /// An ATOMIC WRITE.
    pub const fn atomic_write(remote: RemoteAddr, value: u64) -> Self {
        Self::AtomicWrite { remote, value }
    }

    /// A FLUSH that makes `len` bytes globally visible.
    pub const fn flush(remote: RemoteAddr, len: u32) -> Self {
        let (placement, extent) = (Feth::GLOBAL, FlushExtent::Range);
        Self::Flush { remote, len, placement, extent }
    }
}

impl WrData {
    /// Bytes.
    pub fn len(&self) -> u64 {
        match self {
            Self::Sges(list) => list.total_len(),
            Self::Inline(bytes) => bytes.0.len() as u64,
        }
    }

    /// Returns true for inline data with memory of their own.
    #[inline]
    pub fn is_allocated_inline(&self) -> bool {
        matches!(self, Self::Inline(bytes) if bytes.is_allocated())
    }

    /// Returns true if there is no byte.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl InlineData {
    /// Most bytes that are kept in the request itself.
    pub const MAX_LEN_WITHOUT_ALLOCATION: usize = 64;

    /// The bytes.
    pub fn as_slice(&self) -> &[u8] {
        &self.0
    }

    /// Appends bytes.
    pub fn extend_from_slice(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    /// Appends `len` bytes that `fill` writes; they are zeros before.
    #[inline]
    pub fn extend_with(&mut self, len: usize, fill: impl FnOnce(&mut [u8])) {
        let before = self.0.len();
        self.0.resize(before + len, 0);
        fill(&mut self.0[before..]);
    }

    /// Returns true if the bytes are, or were, too many to be kept without an allocation.
    #[inline]
    pub fn is_allocated(&self) -> bool {
        self.0.spilled()
    }

    /// Removes the bytes. Their memory is kept for others.
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }
}

impl From<&[u8]> for InlineData {
    fn from(bytes: &[u8]) -> Self {
        Self(SmallVec::from_slice(bytes))
    }
}

impl<const N: usize> From<&[u8; N]> for InlineData {
    fn from(bytes: &[u8; N]) -> Self {
        Self::from(bytes.as_slice())
    }
}

impl From<Vec<u8>> for InlineData {
    fn from(bytes: Vec<u8>) -> Self {
        Self(bytes.into())
    }
}
