//! What is carried.

use roce_transport::{RemoteAddr, SendOperation, SendWr, Sge};
use roce_wire::PathMtu;

use crate::Bytes;

/// The side that sends the payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sender {
    /// The requester: WRITE, SEND.
    Requester,
    /// The responder: READ.
    Responder,
}

/// Messages of one kind and size, one behind the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Workload {
    /// By which it is called.
    pub name: &'static str,
    /// Bytes of a message.
    pub len: u32,
    /// Payload of a packet at most.
    pub path_mtu: PathMtu,
    /// Messages that may be under way.
    pub depth: u64,
    /// One completion in so many messages.
    pub moderation: u64,
    kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Write,
    Send,
    Read,
}

const LARGE: u32 = 1 << 20;

impl Workload {
    /// All there are.
    pub const ALL: [Self; 6] = [
        Self::large("write-1m-1024", Kind::Write, PathMtu::B1024),
        Self::large("write-1m-4096", Kind::Write, PathMtu::B4096),
        Self::large("read-1m-1024", Kind::Read, PathMtu::B1024),
        Self::large("read-1m-4096", Kind::Read, PathMtu::B4096),
        Self::small("write-8", Kind::Write),
        Self::small("send-8", Kind::Send),
    ];

    const fn large(name: &'static str, kind: Kind, path_mtu: PathMtu) -> Self {
        Self { name, len: LARGE, path_mtu, depth: 4, moderation: 1, kind }
    }

    const fn small(name: &'static str, kind: Kind) -> Self {
        Self { name, len: 8, path_mtu: PathMtu::B1024, depth: 1024, moderation: 64, kind }
    }

    /// The one of this name.
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|workload| workload.name == name)
    }

    /// Returns the side that sends the payload.
    pub fn sender(&self) -> Sender {
        if self.kind == Kind::Read { Sender::Responder } else { Sender::Requester }
    }

    /// Whether each message takes a receive that was posted.
    pub fn takes_receives(&self) -> bool {
        self.kind == Kind::Send
    }

    /// Packets that carry the payload of one message.
    pub fn packets_a_message(&self) -> u64 {
        u64::from(self.len).div_ceil(self.path_mtu.bytes() as u64)
    }

    /// The request of one message.
    pub fn request(&self, wr_id: u64, signaled: bool) -> SendWr {
        let remote = RemoteAddr { addr: 0, rkey: Bytes::KEY };
        let operation = match self.kind {
            Kind::Write => SendOperation::write(remote),
            Kind::Read => SendOperation::read(remote),
            Kind::Send => SendOperation::send(),
        };
        SendWr { signaled, ..SendWr::new(wr_id, operation, [self.piece()]) }
    }

    /// Where a message lies, at either side.
    pub fn piece(&self) -> Sge {
        Sge { lkey: Bytes::KEY, addr: 0, len: self.len }
    }
}
