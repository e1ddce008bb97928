//! What a run needs of a side.
//!
//! Sides are not hosts of a `roce_simnet::World`: that copies each packet into a frame of its own, keeps
//! the times of frames, and asks all hosts for their timers. All this would be counted with the packets.

use std::net::{IpAddr, Ipv4Addr};

use roce_simnet::ConnectOptions;
use roce_transport::{CqHandle, Endpoint, Instant, PathAttributes, QpCap, RecvWr, SendWr};
use roce_wire::{PathMtu, Qpn};

use crate::Wire;

/// One of two sides with a connected queue pair, driven by a [`Run`](crate::Run).
pub trait Drive: Sized {
    /// Returns two sides with connected queue pairs and `memory` bytes of memory each.
    fn pair(path_mtu: PathMtu, memory: usize) -> [Self; 2];

    /// Posts a request.
    ///
    /// # Panics
    /// If the queue is full.
    fn post_send(&mut self, now: Instant, work: SendWr);

    /// Posts a receive.
    ///
    /// # Panics
    /// If the queue is full.
    fn post_recv(&mut self, now: Instant, work: RecvWr);

    /// Receives all frames of `wire`, which has none afterwards, and handles due timers.
    fn receive(&mut self, now: Instant, wire: &mut Wire);

    /// Transmits to `wire`, which has no frames, while it has free slots.
    fn transmit(&mut self, now: Instant, wire: &mut Wire);

    /// Takes the completions and returns their number.
    ///
    /// # Panics
    /// If a completion has an error.
    fn take_completions(&mut self) -> u64;

    /// Fills the memory.
    fn fill(&mut self, bytes: &[u8]);

    /// Returns a copy of the memory.
    fn bytes(&self) -> Vec<u8>;

    /// Returns the counter with this name; 0 if there is none.
    fn counter(&self, name: &str) -> u64;

    /// Returns the number of packets sent.
    fn sent(&self) -> u64;
}

/// Queue pair numbers of the two sides.
pub const NUMBERS: [Qpn; 2] = [number(0x12_0305), number(0x23_0416)];

const fn number(raw: u32) -> Qpn {
    Qpn::new(raw).expect("24 bits")
}

/// Addresses of the two sides.
pub const ADDRESSES: [IpAddr; 2] =
    [IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)), IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2))];

/// Creates the queue pair of side 0 or 1, and connects it.
///
/// # Panics
/// If the endpoint has the queue pair, or there is no such side.
pub fn bring_up(endpoint: &mut Endpoint, side: usize, path: PathAttributes, path_mtu: PathMtu) {
    let cap = QpCap { max_send_wr: 4096, max_recv_wr: 4096, ..QpCap::default() };
    let options = ConnectOptions { path_mtu, cap, ..ConnectOptions::default() };
    let init = options.init(CqHandle(1), CqHandle(2));
    endpoint.create_qp(NUMBERS[side], init).expect("the first of its number");
    for step in &options.transitions(0, path, NUMBERS[1 - side]) {
        let moved = endpoint.modify_qp(Instant::default(), NUMBERS[side], step);
        moved.expect("a transition of the standard's table");
    }
}
