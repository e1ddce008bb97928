//! Two engines that are connected, their applications, and the way between them.

use roce_wire::{Frame, ICRC_LEN, OuterHeaders, PathMtu, Psn, RnrTimer, Service, expected_icrc};

use super::net::{Arrival, Net};
use super::packet::sealed;
use super::peer::{Link, Side};
use super::workload::{self, MAX_CONNECTIONS, WorkItem};
use crate::{
    CompletionStatus, EndpointConfig, Instant, PeerWindowConfig, QpState, TransmitLimits,
    WindowConfig,
};
use roce_fuzz_support::Script;

/// Both sides and everything between them.
pub(super) struct Pair<'a> {
    sides: [Side; 2],
    net: Net<'a>,
    now: Instant,
    link: Link,
    max_packets: usize,
    /// Responses to a frame leave before the next frame is handled.
    is_one_by_one: bool,
    /// Acknowledgements leave after everything else of the same moment.
    holds_acks: bool,
    /// What is still to be posted: when, which order, and whether its receive is meant.
    schedule: Vec<(Instant, usize, bool)>,
    orders: Vec<WorkItem>,
    buffer: Vec<u8>,
}

/// Maximum steps until nothing is in flight.
const MAX_EVENTS: usize = 50_000;

impl<'a> Pair<'a> {
    pub(super) fn new(mut script: Script<'a>) -> Self {
        let flags = script.byte();
        let mtu = script.pick(&[PathMtu::B256, PathMtu::B512]);
        let retries = script.byte();
        let (service, is_shared) = match flags & 128 {
            0 => (Service::Rc, false),
            _ => script.pick(&[
                (Service::Uc, false),
                (Service::Ud, false),
                (Service::Rc, true),
                (Service::Ud, true),
                (Service::Uc, true),
            ]),
        };
        let link = Link {
            service,
            is_shared,
            mtu,
            first_psn: [0xff_fffe, 0x7f_fffa].map(Psn::wrapping),
            // From 66 µs to 1 ms: longer than a response takes, shorter than most delays.
            ack_timeout: 4 + (flags & 3),
            retry_count: retries & 7,
            rnr_retry: retries >> 3 & 7,
            // 10 µs and more.
            rnr_timer: RnrTimer::new(1 + (retries >> 6)).expect("a code of five bits"),
            max_rd_atomic: script.pick(&[4, 1, 2, 16]),
            signal_all: flags & 4 == 0,
            connections: script.pick(&[1, 2, MAX_CONNECTIONS]),
        };
        let window = script.pick(&[128, 1, 2, 5]);
        let config = EndpointConfig {
            advertise_credits: flags & 8 == 0,
            window: WindowConfig {
                initial_packets: window,
                min_packets: 1,
                max_packets: window.max(8),
                ..WindowConfig::default()
            },
            peer_window: script.pick(&[
                PeerWindowConfig::default(),
                narrow(1),
                narrow(2),
                narrow(6),
            ]),
            ..EndpointConfig::default()
        };
        let orders = workload::orders(&mut script, &link);
        let receives = orders.iter().enumerate().filter(|(_, it)| it.kind.takes_receive());
        let receives = receives.map(|(number, it)| (it.receive_at, number, true));
        let sends = orders.iter().enumerate().map(|(number, it)| (it.at, number, false));
        let mut schedule: Vec<_> = receives.chain(sends).collect();
        // Stable: receives of one moment before sends, and each in their order.
        schedule.sort_by_key(|(at, _, is_receive)| (*at, !is_receive));
        Self {
            sides: [0, 1].map(|index| Side::new(index, &link, config.clone(), &orders)),
            net: Net::new(script),
            now: Instant::default(),
            link,
            max_packets: if flags & 16 == 0 { 16 } else { 1 },
            is_one_by_one: flags & 32 != 0,
            holds_acks: flags & 64 != 0,
            schedule,
            orders,
            buffer: vec![0; 8 << 10],
        }
    }

    pub(super) fn run(mut self) {
        self.schedule.reverse();
        for _ in 0..MAX_EVENTS {
            let schedule = self.schedule.last().map(|(at, ..)| *at);
            let timers = self.sides.iter().filter_map(|side| side.endpoint.poll_timeout());
            let Some(next) = timers.chain(schedule).chain(self.net.next()).min() else {
                return self.validate();
            };
            self.now = self.now.max(next);
            self.post_what_is_due();
            while let Some(arrival) = self.net.receive(self.now) {
                let to = arrival.to;
                self.deliver(arrival);
                if self.is_one_by_one {
                    self.drain(to);
                }
            }
            for index in 0..2 {
                let now = self.now;
                let side = &mut self.sides[index];
                if side.endpoint.poll_timeout().is_some_and(|at| at <= now) {
                    side.call(|endpoint, _| endpoint.handle_timeout(now));
                    assert!(side.endpoint.poll_timeout().is_none_or(|at| at > now));
                }
                self.drain(index);
            }
        }
        panic!("no rest after {MAX_EVENTS} events, at {:?}: {:?}", self.now, self.orders);
    }

    fn post_what_is_due(&mut self) {
        while let Some((_, number, is_receive)) = self.schedule.pop_if(|(at, ..)| *at <= self.now) {
            let order = self.orders[number];
            match is_receive {
                true => self.sides[1 - order.side].post_receive(self.now, number, &order),
                false => self.sides[order.side].post_send(self.now, number, &order),
            }
        }
    }

    fn deliver(&mut self, Arrival { to, frame: bytes }: Arrival) {
        let Ok(frame) = Frame::parse(&bytes) else { return };
        for packet in frame.packets(None) {
            let Ok(packet) = packet else { continue };
            // Under a fuzzer the door of the ICRC stands open.
            if !is_icrc_right(&bytes) {
                continue;
            }
            let Ok(packet) = packet.verify_icrc() else { continue };
            let now = self.now;
            let side = &mut self.sides[to];
            side.call(|endpoint, memory| endpoint.handle_packet(now, &packet, memory));
            side.look_at_shared();
        }
    }

    /// Takes what a side has to say.
    fn drain(&mut self, index: usize) {
        if self.holds_acks {
            self.sides[index].endpoint.delay_acks(true);
            self.transmit(index);
            self.sides[index].endpoint.delay_acks(false);
        }
        self.transmit(index);
        while let Some((_, completion)) = self.sides[index].endpoint.poll_completion() {
            let [a, b] = &mut self.sides;
            let (side, peer) = if index == 0 { (a, &*b) } else { (b, &*a) };
            side.completed(&completion, peer, &self.orders);
        }
        while self.sides[index].endpoint.poll_event().is_some() {}
        self.sides[index].judge_ledgers();
    }

    fn transmit(&mut self, index: usize) {
        let limits = TransmitLimits { max_packets: self.max_packets };
        let now = self.now;
        loop {
            let buffer = &mut self.buffer;
            let side = &mut self.sides[index];
            let train =
                side.call(|endpoint, memory| endpoint.poll_transmit(now, memory, limits, buffer));
            let Some(train) = train else { break };
            assert!(train.packets <= limits.max_packets);
            let outer = OuterHeaders::new(side.path.local, side.path.remote);
            for segment in self.buffer[..train.len].chunks(train.segment_len) {
                let packet = &segment[..segment.len() - ICRC_LEN];
                self.net.send(now, 1 - index, |traffic_class| {
                    let outer = OuterHeaders { traffic_class, ..outer };
                    sealed(&outer, packet).expect("a packet fits into a frame")
                });
            }
        }
    }

    /// Nothing is in flight.
    fn validate(&self) {
        for (index, side) in self.sides.iter().enumerate() {
            let peer = &self.sides[1 - index];
            side.judge_end(peer, &self.orders);
            let is_early = |it: &WorkItem| it.receive_at == Instant::default();
            if self.net.mishaps == 0 && self.orders.iter().all(is_early) {
                side.judge_all_received();
            }
            let is_patient = self.link.rnr_retry == 7 || self.link.service != Service::Rc;
            if self.net.mishaps == 0 && is_patient {
                assert!(side.states().all(|it| it == QpState::ReadyToSend), "nothing went wrong");
            }
        }
        for connection in 0..self.link.connections {
            // Of two that time out on each other, one was first.
            let failed =
                |status| self.sides.iter().any(|it| it.failures[connection] == Some(status));
            if failed(CompletionStatus::RetryExceeded) {
                let bad_luck = self.net.mishaps > u32::from(self.link.retry_count);
                let other = failed(CompletionStatus::RnrRetryExceeded);
                assert!(bad_luck || other, "gave up after {} mishaps", self.net.mishaps);
            }
        }
    }
}

/// So many frames to a peer at a time, at most.
fn narrow(frames: u32) -> PeerWindowConfig {
    PeerWindowConfig { initial_frames: frames, min_frames: 1, max_frames: frames }
}

/// Of a frame with one packet, over IPv4 without VLAN tags.
fn is_icrc_right(frame: &[u8]) -> bool {
    let Some((ip, rest)) = frame.get(14..).and_then(|it| it.split_at_checked(20)) else {
        return false;
    };
    let Some((udp, payload)) = rest.split_first_chunk::<8>() else { return false };
    let Some((packet, icrc)) = payload.split_last_chunk::<ICRC_LEN>() else { return false };
    let identification = u16::from_be_bytes([ip[4], ip[5]]);
    expected_icrc(ip, udp, identification, packet).is_some_and(|it| it.to_le_bytes() == *icrc)
}
