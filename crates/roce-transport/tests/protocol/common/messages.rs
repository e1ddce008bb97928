//! Messages of a service without acknowledgements, and what may become of each: it is delivered
//! whole or not at all, never mixed with another, and over UC once and in order.

use roce_fabric::Fate;
use roce_simnet::{Region, Rights, fill_synthetic};
use roce_transport::{Completion, CompletionOperation, CompletionStatus, SendOperation, SendWr};
use roce_wire::{GRH_LEN, ICRC_LEN, KnownOpcode, Pad, Service, opcode};

use super::connection::{End, Options, PD};
use super::exchange::{Kind, request, sge};
use super::world::World;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Message {
    pub(crate) kind: Kind,
    pub(crate) len: usize,
    pub(crate) solicited: bool,
}

/// Messages from one end to the other, each with bytes of its own.
pub(crate) struct Messages {
    pub(crate) from: End,
    pub(crate) to: End,
    options: Options,
    messages: Vec<Message>,
    /// Message `i` at `i * SLOT`; likewise below.
    source: Region,
    targets: Region,
    /// Receive `i` at `i * SLOT`.
    receives: Region,
}

/// Bytes of the longest message, and of a GRH.
const SLOT: usize = 10 * 256 + GRH_LEN;

impl Message {
    /// Packets that it takes.
    fn packets(&self, options: &Options) -> usize {
        self.len.div_ceil(options.path_mtu.bytes()).max(1)
    }
}

impl Messages {
    /// Registers memory, posts `receives` receives and all messages.
    pub(crate) fn post(
        world: &mut World,
        [from, to]: [End; 2],
        options: Options,
        messages: &[Message],
        receives: usize,
    ) -> Self {
        let room = messages.len() * SLOT;
        let memory = &mut world.hosts[from.node].memory;
        let source = memory.register_filled(PD, room, Rights::ALL, 0);
        for (i, slot) in memory.bytes_mut(source).chunks_mut(SLOT).enumerate() {
            fill_synthetic(i as u64, 0, slot);
        }
        let memory = &mut world.hosts[to.node].memory;
        let targets = memory.register_filled(PD, room, Rights::ALL, 100);
        let receives_at = memory.register_filled(PD, receives * SLOT, Rights::ALL, 200);
        let messages = messages.to_vec();
        let this = Self { from, to, options, messages, source, targets, receives: receives_at };
        for i in 0..receives {
            to.post_recv(world, i as u64, &[sge(receives_at, i * SLOT, SLOT)]);
        }
        for i in 0..this.messages.len() {
            let posted = from.try_post_to_peer(world, this.send_work(i), to, &options);
            posted.expect("the work is taken");
        }
        this
    }

    fn send_work(&self, i: usize) -> SendWr {
        let Message { kind, len, solicited } = self.messages[i];
        let target = Region { addr: self.targets.addr + (i * SLOT) as u64, ..self.targets };
        let mut work = request(kind, target, sge(self.source, i * SLOT, len));
        if let SendOperation::Send { immediate: Some(it), .. }
        | SendOperation::Write { immediate: Some(it), .. } = &mut work.operation
        {
            *it = (i as u32).to_be_bytes();
        }
        SendWr { wr_id: i as u64, solicited, ..work }
    }

    /// Checks sender and receiver where the first frames met `fates`, a frame for each packet, and
    /// the others passed.
    #[track_caller]
    pub(crate) fn check(&self, world: &World, fates: &[Fate]) {
        let sent: Vec<_> = self.from.sent(world);
        let ids: Vec<_> = sent.iter().map(|it| it.wr_id).collect();
        let all: Vec<_> = (0..self.messages.len() as u64).collect();
        assert_eq!(ids, all, "each request completes once, in order\n{}", world.report());
        assert!(sent.iter().all(|it| it.status == CompletionStatus::Success));

        let delivered = self.delivered(world);
        let mut frames = fates.iter().copied().chain(std::iter::repeat(Fate::Pass));
        for (i, message) in self.messages.iter().enumerate() {
            let fates: Vec<_> = frames.by_ref().take(message.packets(&self.options)).collect();
            let count = delivered.iter().filter(|it| **it == i).count();
            let arrivals = |fate: &Fate| match fate {
                Fate::Pass | Fate::Mark | Fate::Delay(_) => 1..=1,
                Fate::Drop => 0..=0,
                Fate::Duplicate(_) => 2..=2,
                Fate::Corrupt { .. } => 0..=1,
            };
            let is_hit = fates.iter().any(|it| !matches!(it, Fate::Pass | Fate::Duplicate(_)));
            let is_lost = fates.contains(&Fate::Drop);
            let (is_ud, takes_receive) =
                (self.options.service == Service::Ud, message.kind.takes_receive());
            let expected = match is_ud {
                _ if !takes_receive => 0..=0,
                true => arrivals(&fates[0]),
                false => usize::from(!is_hit)..=usize::from(!is_lost),
            };
            assert!(expected.contains(&count), "message {i}, {fates:?}: {count} times");
            self.check_target(world, i, count > 0 || (!takes_receive && !is_hit));
        }
        let is_ordered = delivered.is_sorted_by(|a, b| a < b);
        assert!(is_ordered || self.options.service == Service::Ud, "{delivered:?}");
        world.assert_guards_untouched();
    }

    /// The messages delivered, in the order of their completions.
    #[track_caller]
    fn delivered(&self, world: &World) -> Vec<usize> {
        let mut delivered = vec![];
        for (number, completion) in self.to.received(world).iter().enumerate() {
            assert_eq!(completion.wr_id, number as u64, "receives complete once, in order");
            assert_eq!(completion.status, CompletionStatus::Success, "{}", world.report());
            let is_it = |i: &usize| self.is_message(world, *i, completion);
            let found = match self.options.service {
                // Of several that are the same, one that was not delivered yet.
                Service::Ud => (0..self.messages.len())
                    .filter(is_it)
                    .min_by_key(|i| delivered.iter().filter(|it| *it == i).count()),
                _ => (delivered.last().map_or(0, |it| it + 1)..self.messages.len()).find(is_it),
            };
            let Some(found) = found else {
                panic!("{completion:?} is no message, or one again\n{}", world.report())
            };
            delivered.push(found);
        }
        delivered
    }

    /// Returns true if `completion` and its bytes are what message `i` leads to.
    fn is_message(&self, world: &World, i: usize, completion: &Completion) -> bool {
        let Message { kind, len, solicited } = self.messages[i];
        let is_ud = self.options.service == Service::Ud;
        let header = if is_ud { GRH_LEN } else { 0 };
        let immediate = matches!(kind, Kind::SendImmediate | Kind::WriteImmediate);
        let operation = match kind {
            Kind::WriteImmediate => CompletionOperation::RecvWithImmediate,
            _ => CompletionOperation::Recv,
        };
        let is_so = kind.takes_receive()
            && completion.operation == operation
            && completion.byte_len as usize == header + len
            && completion.immediate == immediate.then(|| (i as u32).to_be_bytes())
            && completion.solicited == solicited
            && completion.source_qpn == is_ud.then_some(self.from.qpn);
        let receives = world.hosts[self.to.node].memory.bytes(self.receives);
        let slot = &receives[completion.wr_id as usize * SLOT..][..SLOT];
        let is_placed = !kind.is_send() || slot[header..header + len] == *self.bytes(world, i);
        if is_so && is_placed && is_ud {
            let opcode =
                if immediate { opcode::UD_SEND_ONLY_IMMEDIATE } else { opcode::UD_SEND_ONLY };
            assert_grh(world, [self.from, self.to], &slot[..GRH_LEN], opcode, len);
        }
        is_so && is_placed
    }

    /// The target of a WRITE has its bytes, or has not been touched where they would be.
    #[track_caller]
    fn check_target(&self, world: &World, i: usize, is_whole: bool) {
        if self.messages[i].kind.is_send() {
            return;
        }
        let data = self.bytes(world, i);
        let target = &world.hosts[self.to.node].memory.bytes(self.targets)[i * SLOT..][..SLOT];
        let untouched = (i * SLOT..).map(|at| (at as u8).wrapping_mul(7).wrapping_add(100));
        for (at, (byte, untouched)) in target.iter().zip(untouched).enumerate() {
            match data.get(at) {
                Some(right) => assert!(byte == right || !is_whole && *byte == untouched),
                None => assert_eq!(*byte, untouched, "message {i} wrote too much"),
            }
        }
    }

    fn bytes<'a>(&self, world: &'a World, i: usize) -> &'a [u8] {
        &world.hosts[self.from.node].memory.bytes(self.source)[i * SLOT..][..self.messages[i].len]
    }
}

/// Checks the 40 bytes in front of a datagram of `len` bytes.
#[track_caller]
pub(crate) fn assert_grh(
    world: &World,
    [from, to]: [End; 2],
    grh: &[u8],
    opcode: KnownOpcode,
    len: usize,
) {
    use std::net::IpAddr;
    let packet = opcode.headers_len() + len + Pad::for_payload(len).bytes() + ICRC_LEN;
    let udp_len = (8 + packet) as u16;
    let address = |end: End| world.hosts[end.node].address();
    match (address(from), address(to)) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            assert_eq!(grh[..20], [0; 20]);
            let ip = &grh[20..];
            assert_eq!((ip[0], ip[9]), (0x45, 17), "version, length and protocol");
            assert_eq!(ip[2..4], (20 + udp_len).to_be_bytes());
            assert_eq!(
                (&ip[12..16], &ip[16..20]),
                (&source.octets()[..], &destination.octets()[..])
            );
            let words = ip.chunks(2).map(|it| u32::from(u16::from_be_bytes([it[0], it[1]])));
            let sum: u32 = words.sum();
            assert_eq!((sum & 0xffff) + (sum >> 16), 0xffff, "a valid checksum");
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            assert_eq!((grh[0] >> 4, grh[6]), (6, 17), "version and next header");
            assert_eq!(grh[4..6], udp_len.to_be_bytes());
            assert_eq!(
                (&grh[8..24], &grh[24..]),
                (&source.octets()[..], &destination.octets()[..])
            );
        }
        _ => panic!("two versions of IP"),
    }
}
