//! Workloads: messages of one kind and size.

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

/// Messages of one kind and size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Workload {
    /// Name on the command line.
    pub name: &'static str,
    /// Length of a message in bytes.
    pub len: u32,
    /// Path MTU.
    pub path_mtu: PathMtu,
    /// Maximum number of outstanding messages.
    pub depth: u64,
    /// Messages per completion.
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
    /// All workloads.
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

    /// Returns the workload with this name.
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|workload| workload.name == name)
    }

    /// Returns the side that sends the payload.
    pub fn sender(&self) -> Sender {
        if self.kind == Kind::Read { Sender::Responder } else { Sender::Requester }
    }

    /// Returns true if each message consumes a receive.
    pub fn takes_receives(&self) -> bool {
        self.kind == Kind::Send
    }

    /// Returns the number of packets with payload of one message.
    pub fn packets_a_message(&self) -> u64 {
        u64::from(self.len).div_ceil(self.path_mtu.bytes() as u64)
    }

    /// Returns the request of one message.
    pub fn request(&self, wr_id: u64, signaled: bool) -> SendWr {
        let remote = RemoteAddr { addr: 0, rkey: Bytes::KEY };
        let operation = match self.kind {
            Kind::Write => SendOperation::write(remote),
            Kind::Read => SendOperation::read(remote),
            Kind::Send => SendOperation::send(),
        };
        SendWr { signaled, ..SendWr::new(wr_id, operation, [self.piece()]) }
    }

    /// Returns the address of a message, the same at both sides.
    pub fn piece(&self) -> Sge {
        Sge { lkey: Bytes::KEY, addr: 0, len: self.len }
    }
}
