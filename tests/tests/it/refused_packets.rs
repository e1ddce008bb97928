//! Packets that a device refuses, alone and in packet trains: not one byte of registered memory changes,
//! not even for a moment. Programs read their memory while they wait.

use std::ops::Range;
use std::time::Instant;

use roce_netns::Host;
use roce_test_macros::tier1;
use roce_tests::fixtures::{
    COMPLETION_TIMEOUT, Cable, TestDevice, connect, contents, every_right, pattern,
};
use roce_tests::raw_sender::{RawFrame, RawSender};
use roce_verbs::{
    AccessFlags, CompletionStatus, ConnectOptions, DeviceConfig, MemoryRegion, QueuePair, RecvWr,
    RemoteAddr, SendOperation, SendWr,
};
use roce_wire::{Aeth, Bth, Credits, Headers, PathMtu, Psn, Qpn, Reth, Syndrome, opcode};

/// Packets of a message: the first one and a train.
const PACKETS: usize = 7;
/// Bytes by which the last packet is shorter: with any headers it ends a train.
const MISSING: usize = 8;
/// Bytes of the region before the message and behind it.
const GUARD: usize = 100;
/// Seeds of what the region holds and of what packets carry.
const OLD: u8 = 1;
const NEW: u8 = 0xa5;
/// PSNs ahead of the expected one in which packets are kept.
const WINDOW: u32 = 4096;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Write,
    Send,
    ReadResponse,
}

impl Kind {
    const ALL: [Self; 3] = [Self::Write, Self::Send, Self::ReadResponse];
}

/// Which byte of a packet a damage hits.
#[derive(Clone, Copy, Debug)]
enum Damage {
    Psn,
    FirstOfPayload,
    LastOfPayload,
    Icrc,
}

impl Damage {
    const ALL: [Self; 4] = [Self::Psn, Self::FirstOfPayload, Self::LastOfPayload, Self::Icrc];

    /// Damages packet `index` of a frame.
    fn apply(self, frame: &mut RawFrame, index: usize, headers_len: usize) {
        let packet = frame.packet_mut(index);
        let at = match self {
            // The lowest byte: another packet's place.
            Self::Psn => 11,
            Self::FirstOfPayload => headers_len,
            Self::LastOfPayload => packet.len() - 5,
            Self::Icrc => packet.len() - 1,
        };
        packet[at] ^= 1;
    }
}

/// A connection whose one end is attacked from the address of its peer. That peer itself sends nothing.
struct Attack<'a> {
    victim: &'a TestDevice,
    // Before the region: a message under way when it goes would complete with an error, for the next attack to
    // poll.
    qp: QueuePair,
    _peer: QueuePair,
    region: MemoryRegion,
    sender: RawSender,
    kind: Kind,
    mtu: usize,
    /// What packets claim to have: the region's own, unless a test says otherwise.
    key: u32,
    address: u64,
    /// Of the next message.
    psn: Psn,
}

impl<'a> Attack<'a> {
    fn new(kind: Kind, cable: &Cable, [left, victim]: [&'a TestDevice; 2], mtu: PathMtu) -> Self {
        let hosts: [&Host; 2] = [&cable.left, &cable.right];
        // A READ waits for its responses.
        let options =
            ConnectOptions { path_mtu: Some(mtu), timeout: 22, ..ConnectOptions::default() };
        let (peer, qp) = match kind {
            Kind::ReadResponse => {
                let (peer, qp) = (left.queue_pair(), victim.queue_pair());
                qp.connect(&peer.dest(None).expect("an address"), &options).expect("it connects");
                (peer, qp)
            }
            _ => connect(left, victim, &options),
        };
        let dests = [&peer, &qp].map(|it| it.dest(None).expect("an address"));
        let [from, to] = [0, 1].map(|it| (hosts[it], dests[it].gid.ip()));
        let mtu = mtu.bytes();
        let region = victim.region(PACKETS * mtu - MISSING + 2 * GUARD, OLD);
        let psn = if kind == Kind::ReadResponse { dests[1].psn } else { dests[0].psn };
        let (key, address) = (region.rkey(), region.address() + GUARD as u64);
        let sender = RawSender::new(from, to);
        Self { victim, region, qp, _peer: peer, sender, kind, mtu, key, address, psn }
    }

    fn len(&self) -> usize {
        PACKETS * self.mtu - MISSING
    }

    fn headers(&self, index: usize) -> Headers {
        let (first, last) = (index == 0, index == PACKETS - 1);
        let opcode = match (self.kind, first, last) {
            (Kind::Write, true, _) => opcode::RC_WRITE_FIRST,
            (Kind::Write, _, true) => opcode::RC_WRITE_LAST,
            (Kind::Write, ..) => opcode::RC_WRITE_MIDDLE,
            (Kind::Send, true, _) => opcode::RC_SEND_FIRST,
            (Kind::Send, _, true) => opcode::RC_SEND_LAST,
            (Kind::Send, ..) => opcode::RC_SEND_MIDDLE,
            (Kind::ReadResponse, true, _) => opcode::RC_READ_RESPONSE_FIRST,
            (Kind::ReadResponse, _, true) => opcode::RC_READ_RESPONSE_LAST,
            (Kind::ReadResponse, ..) => opcode::RC_READ_RESPONSE_MIDDLE,
        };
        let psn = self.psn.advanced_by(index as u32);
        let mut headers = Headers::new(Bth::new(opcode, self.qp_number(), psn));
        headers.bth.ack_request = last && self.kind != Kind::ReadResponse;
        let (address, key, len) = (self.address, self.key, self.len() as u32);
        headers.reth =
            (self.kind == Kind::Write && first).then_some(Reth { addr: address, rkey: key, len });
        let ack = Aeth { syndrome: Syndrome::Ack { credits: Credits::UNLIMITED }, msn: 1 };
        headers.aeth = (self.kind == Kind::ReadResponse && (first || last)).then_some(ack);
        headers
    }

    fn qp_number(&self) -> Qpn {
        self.qp.dest(None).expect("an address").qpn
    }

    /// Where the payload of a packet belongs in the region.
    fn place(&self, packets: Range<usize>) -> Range<usize> {
        GUARD + packets.start * self.mtu..GUARD + self.len().min(packets.end * self.mtu)
    }

    /// The packet of the message that repeats one that was lost.
    fn repeated(&self, index: usize) -> RawFrame {
        let mut headers = self.headers(index);
        // A READ of the packet that is missing was requested, but for the last: of that nothing tells.
        if self.kind == Kind::ReadResponse && index < PACKETS - 1 {
            headers.bth.opcode = opcode::RC_READ_RESPONSE_ONLY;
            headers.aeth = self.headers(0).aeth;
        }
        let new = pattern(self.region.len(), NEW);
        self.sender.train(&[(headers, &new[self.place(index..index + 1)])])
    }

    /// Packets of the message, as they should be, in one frame.
    fn frame(&self, packets: Range<usize>) -> RawFrame {
        let new = pattern(self.region.len(), NEW);
        let packets = packets.map(|it| (self.headers(it), &new[self.place(it..it + 1)]));
        self.sender.train(&packets.collect::<Vec<_>>())
    }

    fn count(&self, name: &str) -> u64 {
        self.victim.device.counter(name).expect("this process opened it")
    }

    /// Prepares one more message, for which nothing has arrived yet.
    fn begin(&self) {
        self.region.write(0, &pattern(self.region.len(), OLD)).expect("in range");
        let place = || [self.region.sge(self.place(0..PACKETS)).expect("in range")];
        match self.kind {
            Kind::Write => {}
            Kind::Send => self.qp.post_recv([RecvWr::new(1, place())]).expect("room"),
            Kind::ReadResponse => {
                let read = SendOperation::read(RemoteAddr { addr: 0x1000, rkey: 1 });
                self.qp.post_send([SendWr::new(1, read, place()).signaled()]).expect("room");
            }
        }
    }

    /// Takes the completion of a message that has arrived whole.
    fn end(&mut self) {
        if self.kind != Kind::Write {
            assert_eq!(self.victim.completion().status, CompletionStatus::Success);
        }
        self.psn = self.psn.advanced_by(PACKETS as u32);
    }

    /// Sends a frame, and waits until the counters have counted so much more, and the payload of
    /// the packets `placed` is in memory. Until then and in the end no other byte of the region
    /// than theirs may be another than before.
    fn send(&mut self, frame: RawFrame, placed: Range<usize>, counted: &[(&str, u64)], what: &str) {
        let before = contents(&self.region);
        let place = self.place(placed);
        let mut expected = before.clone();
        expected[place.clone()].copy_from_slice(&pattern(before.len(), NEW)[place.clone()]);
        let counts = |it: &Self| counted.iter().map(|(name, _)| it.count(name)).collect::<Vec<_>>();
        let counts_before = counts(self);
        let deadline = Instant::now() + COMPLETION_TIMEOUT;
        self.sender.send_train(frame);
        loop {
            // In this order: what was counted has been handled before the region is read.
            let counts = counts(self);
            let now = contents(&self.region);
            let changed = (0..now.len()).find(|at| !place.contains(at) && now[*at] != before[*at]);
            assert_eq!(changed, None, "{what}: first byte of the region that changed");
            let mut more = counts.iter().zip(&counts_before).map(|(now, before)| now - before);
            if now == expected && counted.iter().all(|it| more.next() >= Some(it.1)) {
                return;
            }
            assert!(Instant::now() < deadline, "{what}: {counted:?}, {:?}", {
                let all = self.victim.device.counters().expect("this process opened it");
                all.into_iter().filter(|it| it.1 > 0).collect::<Vec<_>>()
            });
        }
    }
}

/// Runs with packets that fill a standard frame, and with those of 4096 bytes.
fn for_each_mtu(run: impl Fn(&Cable, [&TestDevice; 2], PathMtu)) {
    for (mtu, path_mtu) in [(1500, PathMtu::B1024), (4300, PathMtu::B4096)] {
        let cable = Cable::with_mtu(mtu);
        let ends =
            [&cable.left, &cable.right].map(|it| TestDevice::on(it, DeviceConfig::default()));
        run(&cable, ends.each_ref(), path_mtu);
    }
}

#[tier1]
fn a_damaged_packet_changes_no_byte_and_those_behind_it_none_before_it_is_repeated() {
    for_each_mtu(|cable, ends, mtu| {
        for (kind, hit) in Kind::ALL.iter().flat_map(|kind| (0..PACKETS).map(|hit| (*kind, hit))) {
            // A requester may ask in two parts for what it reads later in a connection.
            let mut attack = Attack::new(kind, cable, ends, mtu);
            for damage in Damage::ALL {
                let what = format!("{kind:?}, {mtu:?}, {damage:?} of packet {hit}");
                attack.begin();
                if hit == 0 {
                    let mut first = attack.frame(0..1);
                    damage.apply(&mut first, 0, attack.headers(0).len());
                    attack.send(first, 0..0, &[("drop_icrc", 1)], &what);
                    attack.send(attack.frame(0..1), 0..1, &[], &what);
                    attack.send(attack.frame(1..PACKETS), 1..PACKETS, &[], &what);
                } else {
                    attack.send(attack.frame(0..1), 0..1, &[], &what);
                    let mut train = attack.frame(1..PACKETS);
                    damage.apply(&mut train, hit - 1, attack.headers(hit).len());
                    let kept = (PACKETS - 1 - hit) as u64;
                    let requested = u64::from(kind == Kind::ReadResponse && kept > 0);
                    let counted =
                        [("drop_icrc", 1), ("reorder_kept", kept), ("selective_repeat", requested)];
                    attack.send(train, 1..hit, &counted, &what);
                    attack.send(attack.repeated(hit), hit..PACKETS, &[], &what);
                }
                attack.end();
            }
        }
    });
}

#[tier1]
fn packets_whose_turn_it_is_not_change_no_byte() {
    let count = PACKETS as u64 - 1;
    for_each_mtu(|cable, ends, mtu| {
        for kind in Kind::ALL {
            let (behind, ahead) = match kind {
                Kind::ReadResponse => ("duplicate_response", "response_never_requested"),
                _ => ("duplicate_request", "reorder_too_far"),
            };
            for (shift, counter) in [
                (1, "reorder_kept"),
                (WINDOW + 100, ahead),
                (1 << 22, ahead),
                (Psn::MODULUS - 1000, behind),
            ] {
                let what = format!("{kind:?}, {mtu:?}, {shift} ahead");
                let mut attack = Attack::new(kind, cable, ends, mtu);
                attack.begin();
                attack.send(attack.frame(0..1), 0..1, &[], &what);
                let psn = attack.psn;
                attack.psn = psn.advanced_by(shift);
                // The last one of those kept would be behind the end of a READ.
                let packets = if shift == 1 { 1..PACKETS - 1 } else { 1..PACKETS };
                let counted = [(counter, if shift == 1 { count - 1 } else { count })];
                attack.send(attack.frame(packets), 0..0, &counted, &what);
                if shift != 1 {
                    attack.psn = psn;
                    attack.send(attack.frame(1..PACKETS), 1..PACKETS, &[], &what);
                    attack.end();
                }
            }
        }
    });
}

#[tier1]
fn a_write_that_its_key_does_not_permit_changes_no_byte_of_any_region() {
    for_each_mtu(|cable, ends, mtu| {
        for case in 0..5 {
            let mut attack = Attack::new(Kind::Write, cable, ends, mtu);
            let victim = attack.victim;
            let len = attack.region.len();
            let other_pd = victim.device.alloc_pd().expect("a domain");
            let others = [
                other_pd.register(len, every_right()).expect("memory"),
                victim.pd.register(len, every_right() - AccessFlags::REMOTE_WRITE).expect("memory"),
            ];
            let gone = victim.region(len, OLD);
            let gone_key = gone.rkey();
            drop(gone);
            match case {
                0 => attack.key ^= 1,
                1 => attack.address += GUARD as u64 + 1,
                2 => (attack.key, attack.address) = (others[0].rkey(), others[0].address()),
                3 => (attack.key, attack.address) = (others[1].rkey(), others[1].address()),
                _ => attack.key = gone_key,
            }
            let before = others.each_ref().map(contents);
            let what = format!("{mtu:?}, case {case}");
            attack.send(attack.frame(0..1), 0..0, &[("nak_remote_access", 1)], &what);
            let count = PACKETS as u64 - 1;
            attack.send(attack.frame(1..PACKETS), 0..0, &[("wrong_state", count)], &what);
            assert!(others.each_ref().map(contents) == before, "{what}");
        }
    });
}
