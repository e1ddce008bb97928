//! Packets that a host sends from a peer's address beside a transfer, and sees none of it.

use std::thread;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use roce_netns::Host;
use roce_test_macros::tier1;
use roce_tests::fixtures::{Cable, TestDevice, connect, contents, pattern};
use roce_tests::raw_sender::RawSender;
use roce_verbs::exchange::QpDest;
use roce_verbs::{
    CompletionStatus, ConnectOptions, DeviceConfig, MemoryRegion, QpState, QueuePair, RemoteAddr,
    SendOperation, SendWr,
};
use roce_wire::{BTH_LEN, Bth, Headers, KnownOpcode, Psn, Qpn, opcode};

const FORGED: u64 = 100_000;
/// What forged packets are counted as that arrive.
const ARRIVING: [&str; 3] = ["wrong_service", "reorder_too_far", "response_never_requested"];
/// Most times that more of them are sent.
const MAX_MORE: usize = 500;
const LEN: usize = 256 << 10;
/// PSNs in which packets are kept, before the first of a connection and behind the last.
const WINDOW: i32 = 4096;
const MAX_MESSAGES: usize = 4000;
/// PSNs that the transfers use at most.
const USED: i32 = ((MAX_MESSAGES + MAX_MORE + 2) * LEN / 1024) as i32;

/// Forges packets from one end of a cable to the other.
struct Forger {
    sender: RawSender,
    dice: StdRng,
    /// Queue pair that is attacked, and the first PSNs of its connection.
    victim: Qpn,
    first: [Psn; 2],
}

impl Forger {
    fn new((from, source): (&Host, &QpDest), (to, victim): (&Host, &QpDest), seed: u64) -> Self {
        let sender = RawSender::new((from, source.gid.ip()), (to, victim.gid.ip()));
        let first = [source.psn, victim.psn];
        Self { sender, dice: StdRng::seed_from_u64(seed), victim: victim.qpn, first }
    }

    /// A packet of any kind: to the victim with a PSN that it does not expect, or to another number.
    fn packet(&mut self) -> Vec<u8> {
        let all: Vec<_> = KnownOpcode::all().filter(|it| *it != opcode::CNP).collect();
        let opcode = all[self.dice.random_range(0..all.len())];
        let first = self.first;
        let is_near =
            |psn: Psn, first| (-WINDOW - 1..=USED + WINDOW).contains(&psn.distance_from(first));
        let psn = std::iter::repeat_with(|| Psn::wrapping(self.dice.random_range(0..1 << 24)))
            .find(|psn| first.iter().all(|first| !is_near(*psn, *first)))
            .expect("most of the circle");
        let to = match self.dice.random_range(0..2) {
            0 => self.victim,
            _ => Qpn::new(self.dice.random_range(0x10..1 << 24)).expect("24 bits"),
        };
        let mut bytes = vec![0; opcode.info().headers_len()];
        bytes[..BTH_LEN].copy_from_slice(&Bth::new(opcode, to, psn).to_bytes());
        let (headers, _) = Headers::parse(&bytes).expect("zeros are sound extensions");
        self.sender.frame(&headers, &[0; 64])
    }

    /// Sends so many packets.
    fn run(&mut self, count: u64) {
        for first in (0..count).step_by(8) {
            let frames = (first..count.min(first + 8)).map(|_| self.packet()).collect();
            self.sender.send(frames);
        }
    }
}

/// Transfers one message and checks it.
fn transfer(end: &TestDevice, qp: &QueuePair, [ours, theirs]: [&MemoryRegion; 2], number: usize) {
    let remote = RemoteAddr { addr: theirs.address(), rkey: theirs.rkey() };
    let is_read = number % 2 == 1;
    let operation = match is_read {
        true => SendOperation::read(remote),
        false => SendOperation::write(remote),
    };
    let (from, to) = if is_read { (theirs, ours) } else { (ours, theirs) };
    from.write(0, &pattern(LEN, number as u8)).expect("in range");
    to.write(0, &[0; LEN]).expect("in range");
    let data = [ours.sge(..LEN).expect("within the region")];
    qp.post_send([SendWr::new(number as u64, operation, data).signaled()]).expect("room");
    assert_eq!(end.completion().status, CompletionStatus::Success, "message {number}");
    assert!(contents(to) == pattern(LEN, number as u8), "message {number} arrives intact");
}

#[tier1]
fn a_hundred_thousand_forged_packets_beside_a_transfer_change_neither_its_data_nor_its_connection()
{
    for gap_reports in [false, true] {
        let cable = Cable::with_mtu(1500);
        let config = DeviceConfig { spin: Duration::ZERO, ..DeviceConfig::default() };
        let ends = [&cable.left, &cable.right].map(|it| TestDevice::on(it, config.clone()));
        let options = ConnectOptions { gap_reports, ..ConnectOptions::default() };
        let (left, right) = connect(&ends[0], &ends[1], &options);
        let dests = [&left, &right].map(|it| it.dest(options.gid_index).expect("an address"));
        let [to_right, to_left] = [(0, 1), (1, 0)].map(|(from, to)| {
            let hosts = [&cable.left, &cable.right];
            Forger::new((hosts[from], &dests[from]), (hosts[to], &dests[to]), 7 + from as u64)
        });
        let regions = [ends[0].region(LEN, 1), ends[1].region(LEN, 2)];
        let forgers = [to_right, to_left].map(|mut it| {
            thread::spawn(|| {
                it.run(FORGED / 2);
                it
            })
        });
        let mut messages = 0;
        while messages < 2
            || (forgers.iter().any(|it| !it.is_finished()) && messages < MAX_MESSAGES)
        {
            transfer(&ends[0], &left, regions.each_ref(), messages);
            messages += 1;
        }
        let mut forgers = forgers.map(|it| it.join().expect("all were sent"));
        let count =
            |end: &TestDevice, name| end.device.counter(name).expect("this process opened it");
        // The socket's filter drops other numbers in the kernel, and its ring drops most of a flood on a busy
        // machine: then some follow that find place there.
        let arrived = |name| ends.iter().all(|it| count(it, name) > FORGED / 1000);
        for _ in 0..MAX_MORE {
            if ARRIVING.into_iter().all(arrived) {
                break;
            }
            forgers.iter_mut().for_each(|it| it.run(64));
            transfer(&ends[0], &left, regions.each_ref(), messages);
            messages += 1;
        }
        transfer(&ends[0], &left, regions.each_ref(), messages);
        transfer(&ends[0], &left, regions.each_ref(), messages + 1);
        for (end, qp) in ends.iter().zip([&left, &right]) {
            let count = |name| count(end, name);
            let counters = end.device.counters().expect("this process opened it");
            let counters: Vec<_> = counters.into_iter().filter(|it| it.1 > 0).collect();
            println!("{messages} messages, {counters:?}");
            assert_eq!(qp.query().expect("it lives").state, QpState::ReadyToSend);
            for name in ARRIVING {
                assert!(count(name) > FORGED / 1000, "they arrive, {name}: {counters:?}");
            }
            // Only what the transfer itself lost is kept, and its turn has come.
            let lost = count("socket_rcvd_dropped") > 0;
            assert!(lost || count("reorder_kept") == 0, "{counters:?}");
            for name in ["reorder_differs", "fatal_nak_received", "retry_exceeded_err"] {
                assert_eq!(count(name), 0, "{name}: {counters:?}");
            }
        }
    }
}
