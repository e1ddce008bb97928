//! Work requests of two applications, and when they are posted.

use core::time::Duration;

use super::peer::Link;
use crate::Instant;
use roce_fuzz_support::Script;
use roce_wire::Service;

/// One request, and the receive that it uses up.
#[derive(Clone, Copy, Debug)]
pub(super) struct WorkItem {
    /// Side that posts it.
    pub(super) side: usize,
    /// Queue pair of that side.
    pub(super) connection: usize,
    pub(super) kind: Kind,
    pub(super) len: usize,
    pub(super) at: Instant,
    /// When the peer posts the receive for it.
    pub(super) receive_at: Instant,
    pub(super) is_inline: bool,
    pub(super) is_fenced: bool,
    pub(super) is_silent: bool,
    pub(super) is_in_pieces: bool,
    pub(super) is_lazy: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Send,
    SendImmediate,
    SendInvalidate,
    Write,
    WriteImmediate,
    /// Over what earlier ones have written.
    WriteShared,
    Read,
    FetchAdd,
    CompareSwap,
}

const KINDS: [Kind; 9] = [
    Kind::Send,
    Kind::Write,
    Kind::Read,
    Kind::FetchAdd,
    Kind::WriteShared,
    Kind::CompareSwap,
    Kind::WriteImmediate,
    Kind::SendImmediate,
    Kind::SendInvalidate,
];

/// Bytes of the longest message.
pub(super) const SLOT: usize = 2048;
/// Bytes that are written again and again.
pub(super) const SHARED: usize = 600;
/// Requests of both sides together.
pub(super) const MAX_ORDERS: usize = 24;
/// The most inline bytes.
pub(super) const MAX_INLINE: usize = 128;
/// Queue pairs of each side.
pub(super) const MAX_CONNECTIONS: usize = 3;

impl Kind {
    pub(super) fn takes_receive(self) -> bool {
        matches!(
            self,
            Self::Send | Self::SendImmediate | Self::SendInvalidate | Self::WriteImmediate
        )
    }

    /// Returns true if a service has it.
    fn exists_for(self, service: Service) -> bool {
        let is_write = matches!(self, Self::Write | Self::WriteImmediate | Self::WriteShared);
        let is_plain_send = matches!(self, Self::Send | Self::SendImmediate);
        match service {
            Service::Ud => is_plain_send,
            Service::Uc => is_plain_send || is_write,
            _ => true,
        }
    }

    pub(super) fn is_send(self) -> bool {
        matches!(self, Self::Send | Self::SendImmediate | Self::SendInvalidate)
    }

    pub(super) fn is_atomic(self) -> bool {
        matches!(self, Self::FetchAdd | Self::CompareSwap)
    }
}

/// Reads the orders of a script, in the order in which they are posted.
pub(super) fn orders(script: &mut Script<'_>, link: &Link) -> Vec<WorkItem> {
    let (mtu, service) = (link.mtu.bytes(), link.service);
    let kinds: Vec<_> = KINDS.into_iter().filter(|kind| kind.exists_for(service)).collect();
    let count = usize::from(script.byte()) % (MAX_ORDERS + 1);
    let mut at = Instant::default();
    let mut last_receive = [[Instant::default(); MAX_CONNECTIONS]; 2];
    let mut orders = vec![];
    for _ in 0..count {
        let code = script.byte();
        let (side, kind) = (usize::from(code & 1), kinds[usize::from(code >> 1) % kinds.len()]);
        let len = len(script, kind, mtu);
        let len = if service == Service::Ud { len.min(mtu) } else { len };
        let flags = script.byte();
        let connection = usize::from(flags >> 5) % link.connections;
        let pauses = script.byte();
        at += pause(pauses & 0xf);
        // Receives are used up in the order in which they are posted.
        let last_receive = &mut last_receive[side][connection];
        let receive_at = (Instant::default() + pause(pauses >> 4)).max(*last_receive);
        *last_receive = receive_at;
        let may_be_inline = !matches!(kind, Kind::Read | Kind::WriteShared) && !kind.is_atomic();
        orders.push(WorkItem {
            side,
            connection,
            kind,
            len,
            at,
            receive_at,
            is_inline: flags & 1 != 0 && may_be_inline && len <= MAX_INLINE,
            is_fenced: flags & 2 != 0,
            is_silent: flags & 4 != 0,
            is_in_pieces: flags & 8 != 0,
            is_lazy: flags & 16 != 0,
        });
    }
    orders
}

fn len(script: &mut Script<'_>, kind: Kind, mtu: usize) -> usize {
    let len = match script.byte() % 7 {
        0 => script.byte().into(),
        1 => mtu,
        2 => mtu + usize::from(script.byte()),
        3 => 2 * mtu,
        4 => usize::from(script.number::<u16>()) % (SLOT + 1),
        5 => 0,
        _ => SLOT,
    };
    match kind {
        Kind::WriteShared => len.min(SHARED),
        _ if kind.is_atomic() => 8,
        _ => len.min(SLOT),
    }
}

/// From none to 8 ms.
fn pause(code: u8) -> Duration {
    match code {
        0..4 => Duration::ZERO,
        code => Duration::from_micros(1 << (code - 3)),
    }
}
