//! Errors of calls.

use core::net::IpAddr;

use roce_wire::{Qpn, Service};
use thiserror::Error;

use crate::{CompletionOperation, MAX_POSTED_LEN, QpState, SrqHandle};

/// The caller broke the contract of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ApiMisuse {
    /// No memory is left for the object.
    #[error("no memory is left for the object; raise the limit of the process, or destroy others")]
    OutOfMemory,
    /// The number is taken.
    #[error("{0} exists already; destroy it first or take another number")]
    QpExists(Qpn),
    /// 0 and the multicast number name no queue pair.
    #[error("{0} cannot name a queue pair; take another number")]
    ReservedQpn(Qpn),
    /// No queue pair has this service.
    #[error("{0:?} is no service of a queue pair; ask for Rc, Uc or Ud")]
    ServiceNotSupported(Service),
    /// A capacity is beyond what is possible.
    #[error("{capacity} = {asked} is beyond the limit of {limit}; ask for less")]
    CapacityTooLarge {
        /// Its name.
        capacity: &'static str,
        /// What was asked for.
        asked: u32,
        /// The most that is possible.
        limit: u32,
    },
    /// There is no such shared receive queue.
    #[error("there is no shared receive queue {}", .0.0)]
    UnknownSrq(SrqHandle),
    /// Queue pairs take receives from the queue.
    #[error("shared receive queue {} has {users} queue pairs; destroy these first", .srq.0)]
    SrqInUse {
        /// The shared receive queue.
        srq: SrqHandle,
        /// Its queue pairs.
        users: u32,
    },
}

/// Why a queue pair did not become a member of a multicast group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum AttachError {
    /// There is no such queue pair.
    #[error("there is no queue pair {0}")]
    UnknownQp(Qpn),
    /// The queue pair is not of the service UD.
    #[error("queue pair {0} takes no datagrams; only UD queue pairs are members of groups")]
    NotDatagrams(Qpn),
    /// The address is of no multicast group.
    #[error("{0} is no multicast address; take one of 224.0.0.0/4 or ff00::/8")]
    NotAGroup(IpAddr),
    /// The device has the most groups that it can have.
    #[error("{limit} groups have members, the most of a device; detach queue pairs first")]
    TooManyGroups {
        /// The most groups.
        limit: usize,
    },
    /// The group has the most members that it can have.
    #[error("{group} has {limit} members, the most of a group; detach one first")]
    TooManyMembers {
        /// The group.
        group: IpAddr,
        /// The most members.
        limit: usize,
    },
}

/// Why a shared receive queue was not modified; it is as it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ModifySrqError {
    /// There is no such shared receive queue.
    #[error("there is no shared receive queue {}", .0.0)]
    UnknownSrq(SrqHandle),
    /// The capacity is beyond what is possible.
    #[error("max_wr = {asked} is beyond the limit of {limit}; ask for less")]
    TooLarge {
        /// What was asked for.
        asked: u32,
        /// The most that is possible.
        limit: u32,
    },
    /// More receives are posted.
    #[error("max_wr = {asked}, but {posted} receives are posted; let some be used up first")]
    TooSmall {
        /// What was asked for.
        asked: u32,
        /// Receives posted.
        posted: u32,
    },
    /// So many receives can never be posted.
    #[error("a limit of {asked} is beyond max_wr = {max_wr}; ask for less")]
    LimitTooLarge {
        /// What was asked for.
        asked: u32,
        /// Receives that may be posted.
        max_wr: u32,
    },
}

/// Why a work request was not posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum PostError {
    /// There is no such queue pair.
    #[error("there is no queue pair {0}")]
    UnknownQp(Qpn),
    /// The queue pair's state does not allow this request.
    #[error("cannot post in state {state}; call modify_qp first")]
    WrongState {
        /// Its state.
        state: QpState,
    },
    /// No memory is left for the request.
    #[error("no memory is left for the request; post it again once there is some")]
    OutOfMemory,
    /// As many requests are outstanding as the queue pair was made for.
    #[error("the send queue holds its {capacity} requests; poll completions first")]
    SendQueueFull {
        /// Requests it was made for.
        capacity: u32,
    },
    /// As many receives are posted as the queue pair was made for.
    #[error("the receive queue holds its {capacity} requests; let some be used up first")]
    ReceiveQueueFull {
        /// Requests it was made for.
        capacity: u32,
    },
    /// More SGEs than the queue pair was made for.
    #[error("{count} SGEs, but the queue pair was made for {max}; use fewer")]
    TooManySges {
        /// SGEs of the request.
        count: usize,
        /// SGEs the queue pair was made for.
        max: u32,
    },
    /// More inline bytes than the queue pair was made for.
    #[error("{len} inline bytes, but the queue pair was made for {max}; use registered memory")]
    InlineTooLong {
        /// Bytes of the request.
        len: u64,
        /// Bytes the queue pair was made for.
        max: u32,
    },
    /// READs and atomics need registered memory for their results.
    #[error("a READ or atomic cannot be inline: name registered memory for its result")]
    InlineResult,
    /// No message is longer than [`MAX_POSTED_LEN`].
    #[error("{len} bytes are more than the {MAX_POSTED_LEN} of the longest message; split it")]
    MessageTooLong {
        /// Bytes of the request.
        len: u64,
    },
    /// An atomic brings exactly 8 bytes.
    #[error("an atomic brings 8 bytes, not {len}")]
    AtomicLength {
        /// Bytes of the request.
        len: u64,
    },
    /// FLUSH and ATOMIC WRITE have no local bytes.
    #[error("a FLUSH or ATOMIC WRITE has no local bytes, not {len}; name none")]
    UnexpectedData {
        /// Bytes of the request.
        len: u64,
    },
    /// `max_rd_atomic` is 0.
    #[error("READs, atomics, FLUSH and ATOMIC WRITE need max_rd_atomic of at least 1")]
    NoReadsAllowed,
    /// The queue pair takes its receives from a shared queue.
    #[error("the queue pair has a shared receive queue; post to that")]
    HasSharedQueue,
    /// There is no such shared receive queue.
    #[error("there is no shared receive queue {}", .0.0)]
    UnknownSrq(SrqHandle),
    /// The service has no such operation.
    #[error("{service:?} has no {operation}")]
    NotOfService {
        /// Service of the queue pair.
        service: Service,
        /// Operation of the request.
        operation: CompletionOperation,
    },
    /// A datagram needs a destination.
    #[error("a datagram needs a destination; use post_send_to")]
    NoDestination,
    /// Only a datagram has a destination of its own.
    #[error("a {0:?} queue pair is connected and sends to its peer; use post_send")]
    UnexpectedDestination(Service),
    /// A datagram is one packet.
    #[error("a datagram of {len} bytes, but the path MTU is {mtu}; send less")]
    DatagramTooLong {
        /// Bytes of the request.
        len: u64,
        /// Bytes that a datagram may have.
        mtu: usize,
    },
    /// A SEND carries an immediate or a key to invalidate, not both.
    #[error("a SEND carries an immediate or a key to invalidate, not both")]
    TwoTrailers,
}

/// Why a queue pair was not modified; it is as it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ModifyError {
    /// There is no such queue pair.
    #[error("there is no queue pair {0}")]
    UnknownQp(Qpn),
    /// The queue pair is not in the state that `current_state` says.
    #[error("the queue pair is in state {actual}, not {claimed}")]
    WrongCurrentState {
        /// Where it is.
        actual: QpState,
        /// State that the caller claimed.
        claimed: QpState,
    },
    /// No transition leads there.
    #[error("no transition leads from {from} to {to}")]
    NoTransition {
        /// Where it is.
        from: QpState,
        /// Where it shall go.
        to: QpState,
    },
    /// The transition needs an attribute that is missing.
    #[error("going from {from} to {to} needs the attribute {attribute}")]
    MissingAttribute {
        /// Where it is.
        from: QpState,
        /// Where it shall go.
        to: QpState,
        /// What is missing.
        attribute: &'static str,
    },
    /// The transition does not take an attribute that is there.
    #[error("going from {from} to {to} cannot change the attribute {attribute}; leave it out")]
    UnexpectedAttribute {
        /// Where it is.
        from: QpState,
        /// Where it shall go.
        to: QpState,
        /// What is too much.
        attribute: &'static str,
    },
    /// The value of an attribute has no meaning.
    #[error("the value of {attribute} is out of range")]
    OutOfRange {
        /// Which.
        attribute: &'static str,
    },
}
