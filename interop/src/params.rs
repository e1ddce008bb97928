//! The words of the matrix: operations, regions, queue pairs, settings, work, completions.

use std::fmt;

use roce_verbs::Service;
use roce_verbs::exchange::QpDest;

/// An operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// SEND.
    Send,
    /// SEND with immediate.
    SendImmediate,
    /// SEND with invalidate.
    SendInvalidate,
    /// RDMA WRITE.
    Write,
    /// RDMA WRITE with immediate.
    WriteImmediate,
    /// RDMA READ.
    Read,
    /// Atomic compare and swap.
    CompareSwap,
    /// Atomic fetch and add.
    FetchAdd,
    /// ATOMIC WRITE, of Linux 6.2.
    AtomicWrite,
    /// FLUSH, of Linux 6.2.
    Flush,
}

impl Operation {
    /// Those that not every kernel has.
    pub const NEWER: [Self; 2] = [Self::AtomicWrite, Self::Flush];

    /// Those that every kernel has.
    pub const ALL: [Self; 8] = [
        Self::Send,
        Self::SendImmediate,
        Self::SendInvalidate,
        Self::Write,
        Self::WriteImmediate,
        Self::Read,
        Self::CompareSwap,
        Self::FetchAdd,
    ];

    /// Its name in the guest's program and in the table.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Send => "send",
            Self::SendImmediate => "send_imm",
            Self::SendInvalidate => "send_inv",
            Self::Write => "write",
            Self::WriteImmediate => "write_imm",
            Self::Read => "read",
            Self::CompareSwap => "cmp_swap",
            Self::FetchAdd => "fetch_add",
            Self::AtomicWrite => "atomic_write",
            Self::Flush => "flush",
        }
    }

    /// Returns true if a service has it.
    pub const fn exists_for(self, service: Service) -> bool {
        match service {
            Service::Uc => {
                matches!(self, Self::Send | Self::SendImmediate)
                    || matches!(self, Self::Write | Self::WriteImmediate)
            }
            Service::Ud => matches!(self, Self::Send | Self::SendImmediate),
            _ => true,
        }
    }

    /// Whether it lands in memory that the responder posted.
    pub const fn is_send(self) -> bool {
        matches!(self, Self::Send | Self::SendImmediate | Self::SendInvalidate)
    }

    /// Whether it completes a receive of the responder.
    pub const fn takes_receive(self) -> bool {
        self.is_send() || matches!(self, Self::WriteImmediate)
    }

    /// Whether it carries an immediate value.
    pub const fn has_immediate(self) -> bool {
        matches!(self, Self::SendImmediate | Self::WriteImmediate)
    }

    /// Whether it changes eight bytes in one step and brings what they were.
    pub const fn is_atomic(self) -> bool {
        matches!(self, Self::CompareSwap | Self::FetchAdd)
    }

    /// Whether it is of eight aligned bytes.
    pub const fn is_of_word(self) -> bool {
        self.is_atomic() || matches!(self, Self::AtomicWrite)
    }

    /// The right of FLUSH, which not every kernel has, and all others.
    pub const fn all_rights(self) -> Rights {
        match self {
            Self::Flush => "lwrabg",
            _ => ALL_RIGHTS,
        }
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// What peers may do to a region: a set of `l` (local write), `w`, `r`, `a` (remote write, read,
/// atomic), `b` (bind windows), `g` (flush) and `o` (page in on demand), as the guest's program has it.
pub type Rights = &'static str;

/// Those of memory that is paged in on demand.
pub const PAGED_RIGHTS: Rights = "lwrao";

/// Every right that each kernel has.
pub const ALL_RIGHTS: Rights = "lwrab";

/// Registered memory of an end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    /// By which its agent names it.
    pub handle: u32,
    /// By which peers name its first byte.
    pub address: u64,
    /// The key peers need.
    pub key: u32,
}

/// A queue pair of an end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pair {
    /// By which its agent names it.
    pub handle: u32,
    /// What the peer has to know to connect to it.
    pub dest: QpDest,
}

/// The protocol below RoCE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

/// What both ends of a connection settle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionParams {
    /// The service of the queue pairs.
    pub service: Service,
    /// The protocol below.
    pub family: Family,
    /// Largest payload of a packet, in bytes.
    pub path_mtu: usize,
    /// The PSN of each end's first request.
    pub first_psn: u32,
    /// 4.096 µs · 2^n until our side notices silence.
    pub timeout: u8,
    /// The same for rxe, which notices a gap among READ responses by silence alone.
    pub rxe_timeout: u8,
    /// How often to send again after silence.
    pub retry: u8,
    /// How often to try again where no receive was posted; 7 = for ever.
    pub rnr_retry: u8,
    /// The code of the wait asked for where no receive is posted.
    pub min_rnr_timer: u8,
    /// READs and atomics under way at once, each way.
    pub rd_atomic: u8,
    /// The longest message, or the sum of those under way at once, in bytes.
    pub largest: usize,
    /// The static rate of our side in bytes per second; rxe has none.
    pub max_rate: Option<u64>,
    /// Queue pairs have the operations that not every kernel has, and their rights.
    pub newer: bool,
    /// The memory of rxe is paged in on demand.
    pub rxe_pages: bool,
    /// The traffic class of both sides' packets; the lower two bits are the ECN field.
    pub traffic_class: u8,
}

impl ConnectionParams {
    /// The usual ones, with first PSNs three packets before the wrap.
    pub const fn new(family: Family, path_mtu: usize) -> Self {
        Self {
            service: Service::Rc,
            family,
            path_mtu,
            first_psn: 0xff_fffd,
            timeout: 14,
            rxe_timeout: 14,
            retry: 7,
            rnr_retry: 7,
            min_rnr_timer: 12,
            rd_atomic: 16,
            largest: 1 << 20,
            max_rate: None,
            newer: false,
            rxe_pages: false,
            traffic_class: 0,
        }
    }
}

/// Work for the send queue: `count` times the same, each `step` bytes further.
#[derive(Clone, Copy, Debug)]
pub struct Post {
    /// What to do.
    pub operation: Operation,
    /// A region's handle.
    pub region: u32,
    /// Where in it the first message lies, or READ data and atomics' old values go.
    pub offset: u64,
    /// Bytes of each message.
    pub len: usize,
    /// Scatter/gather entries that a message is cut into.
    pub pieces: usize,
    /// The peer's address for the first message; atomics all go to the same.
    pub remote_address: u64,
    /// The peer's key.
    pub remote_key: u32,
    /// The immediate value.
    pub immediate: u32,
    /// The key to invalidate.
    pub invalidate: u32,
    /// What an atomic compares with. 1 for a FLUSH of the whole region.
    pub compare: u64,
    /// What an atomic swaps in or adds. What the first ATOMIC WRITE stores; each other `step` more.
    pub swap_or_add: u64,
    /// How many messages.
    pub count: usize,
    /// From one message to the next, in bytes.
    pub step: usize,
}

impl Post {
    /// One message without anything remote.
    pub const fn new(operation: Operation, region: u32, offset: u64, len: usize) -> Self {
        Self {
            operation,
            region,
            offset,
            len,
            pieces: 1,
            remote_address: 0,
            remote_key: 0,
            immediate: 0,
            invalidate: 0,
            compare: 0,
            swap_or_add: 0,
            count: 1,
            step: len,
        }
    }

    /// The same to a place in a region of the peer.
    #[must_use]
    pub const fn to(self, region: Region, offset: u64) -> Self {
        Self { remote_address: region.address + offset, remote_key: region.key, ..self }
    }

    /// The same, `count` times.
    #[must_use]
    pub const fn times(self, count: usize) -> Self {
        Self { count, ..self }
    }
}

/// Which completion queue of a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Queue {
    /// Of sends.
    Send,
    /// Of receives.
    Receive,
}

/// How to wait for completions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitMode {
    /// By asking again and again.
    Poll,
    /// By sleeping on the completion channel.
    Events,
}

/// A completion. Status and opcode have the numbers of `ibv_wc_status` and `ibv_wc_opcode`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WorkCompletion {
    /// The number given to the work: counts up from 0 within a post.
    pub id: u64,
    /// 0 is success; otherwise all below is meaningless.
    pub status: u32,
    /// What was done.
    pub opcode: u32,
    /// Bytes received, or read.
    pub len: u32,
    /// The immediate value that came.
    pub immediate: Option<u32>,
    /// The key that was invalidated.
    pub invalidated: Option<u32>,
    /// The sender's queue pair number, of a datagram.
    pub source_qpn: Option<u32>,
}
