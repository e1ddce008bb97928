//! Two endpoints read and write each other's memory over channels, in a time that exists only here: a packet takes
//! 5 µs, and the first one is lost.

use std::collections::VecDeque;
use std::error::Error;
use std::net::IpAddr;
use std::time::Duration;

use roce_transport::*;
use roce_wire::{Frame, OuterHeaders, PathMtu, Psn, Qpn, Sealer};

const QPN: Qpn = Qpn::new(0x11).unwrap();
const PD: PdHandle = PdHandle(1);
const DELAY: Duration = Duration::from_micros(5);

struct Host {
    address: IpAddr,
    endpoint: Endpoint,
    memory: Regions,
    /// What arrives, and when.
    channel: VecDeque<(Instant, Vec<u8>)>,
}

impl Host {
    fn new(local: IpAddr, remote: IpAddr) -> Result<Self, Box<dyn Error>> {
        let mut endpoint = Endpoint::new(EndpointConfig::default());
        endpoint.create_qp(QPN, QpInit::new(Service::Rc, PD, CqHandle(1)))?;
        let path = PathAttributes { handle: PathHandle(1), local, remote, max_rate: None };
        for step in [
            QpAttributes::init(AccessFlags::REMOTE_READ | AccessFlags::REMOTE_WRITE),
            QpAttributes::ready_to_receive(path, PathMtu::B1024, QPN, Psn::ZERO),
            QpAttributes::ready_to_send(Psn::ZERO),
        ] {
            endpoint.modify_qp(Instant::default(), QPN, &step.with_default_limits())?;
        }
        let (memory, channel) = (Regions::default(), VecDeque::new());
        Ok(Self { address: local, endpoint, memory, channel })
    }

    /// Takes what has arrived by now, and returns the packets that leave.
    fn run(&mut self, now: Instant, peer: IpAddr) -> Result<Vec<Vec<u8>>, Box<dyn Error>> {
        let inward = OuterHeaders::new(peer, self.address);
        while self.channel.front().is_some_and(|(at, _)| *at <= now) {
            let (_, bytes) = self.channel.pop_front().ok_or("a packet is in front")?;
            let frame = Frame::of_datagram(&inward, 0, &bytes).ok_or("too long")?;
            let packet = frame.packet()?.verify_icrc()?;
            self.endpoint.handle_packet(now, &packet, &mut self.memory);
        }
        self.endpoint.handle_timeout(now);

        let outward = OuterHeaders::new(self.address, peer);
        let (limits, mut bytes) = (TransmitLimits { max_packets: 1 }, [0; 2048]);
        let mut packets = Vec::new();
        while let Some(train) =
            self.endpoint.poll_transmit(now, &mut self.memory, limits, &mut bytes)
        {
            let packet = &mut bytes[..train.len];
            Sealer::new(&outward)?.seal_single(outward.source_port, 0, packet)?;
            packets.push(packet.to_vec());
        }
        Ok(packets)
    }

    /// When something happens here next.
    fn next(&self) -> Option<Instant> {
        let arrival = self.channel.front().map(|(at, _)| *at);
        arrival.into_iter().chain(self.endpoint.poll_timeout()).min()
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let addresses = [[10, 0, 0, 1].into(), [10, 0, 0, 2].into()];
    let mut hosts =
        [Host::new(addresses[0], addresses[1])?, Host::new(addresses[1], addresses[0])?];

    let source = hosts[0].memory.register(PD, 4000, AccessFlags::LOCAL_WRITE);
    hosts[0].memory.bytes_mut(source).fill(0xab);
    let target = hosts[1].memory.register(PD, 4096, AccessFlags::ALL);
    let copy = hosts[0].memory.register(PD, 4000, AccessFlags::LOCAL_WRITE);
    let write = SendOperation::write(target.remote(96));
    let read = SendOperation::read(target.remote(96));
    for work in [
        SendWr::new(1, write, source.piece(0, 4000)).signaled(),
        SendWr::new(2, read, copy.piece(0, 4000)).signaled(),
    ] {
        hosts[0].endpoint.post_send(Instant::default(), QPN, work)?;
    }

    let (mut now, mut completed, mut sent) = (Instant::default(), Vec::new(), 0);
    while completed.len() < 2 {
        for [from, to] in [[0, 1], [1, 0]] {
            for packet in hosts[from].run(now, addresses[to])? {
                sent += 1;
                if sent > 1 {
                    hosts[to].channel.push_back((now + DELAY, packet));
                }
            }
        }
        let polled = std::iter::from_fn(|| hosts[0].endpoint.poll_completion());
        completed.extend(polled.map(|(_, it)| (it.wr_id, it.status)));
        let next = hosts.iter().filter_map(Host::next).min();
        now = next.ok_or("neither a packet nor a timer is left")?.max(now);
    }

    assert_eq!(completed, [1, 2].map(|id| (id, CompletionStatus::Success)));
    assert_eq!(hosts[0].memory.bytes(copy), hosts[0].memory.bytes(source));
    assert_eq!(hosts[1].memory.bytes(target)[95..98], [0, 0xab, 0xab]);
    assert!(hosts[0].endpoint.counters().resent_pkts > 0, "the lost packet was sent again");
    println!("{sent} packets in {:?}", now.saturating_since(Instant::default()));
    Ok(())
}
