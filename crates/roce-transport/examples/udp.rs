//! Two endpoints exchange a SEND over UDP sockets of the loopback, on ports that the system chooses.
//!
//! Both count the IPv4 identification as 0, whatever the kernel sends. Another stack would drop these packets:
//! README.md says what a socket needs to talk to one.

use std::error::Error;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::time::{self, Duration};

use roce_transport::*;
use roce_wire::{Frame, OuterHeaders, PathMtu, Psn, Qpn, Sealer};

const HOST: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const QPN: Qpn = Qpn::new(0x11).unwrap();
const PD: PdHandle = PdHandle(1);

struct Side {
    socket: UdpSocket,
    endpoint: Endpoint,
    memory: Regions,
}

impl Side {
    /// Connects the socket, and brings a queue pair to RTS.
    fn new(socket: UdpSocket, peer: SocketAddr) -> Result<Self, Box<dyn Error>> {
        socket.connect(peer)?;
        socket.set_read_timeout(Some(Duration::from_millis(1)))?;
        let mut endpoint = Endpoint::new(EndpointConfig::default());
        endpoint.create_qp(QPN, QpInit::new(Service::Rc, PD, CqHandle(1)))?;
        let path =
            PathAttributes { handle: PathHandle(1), local: HOST, remote: HOST, max_rate: None };
        let rtr = QpAttributes::ready_to_receive(path, PathMtu::B1024, QPN, Psn::ZERO);
        let rts = QpAttributes::ready_to_send(Psn::ZERO);
        for step in [QpAttributes::init(AccessFlags::empty()), rtr, rts] {
            endpoint.modify_qp(Instant::default(), QPN, &step.with_default_limits())?;
        }
        Ok(Self { socket, endpoint, memory: Regions::default() })
    }

    /// Sends what the endpoint has for its peer, then takes what came from there.
    fn run(&mut self, now: Instant) -> Result<(), Box<dyn Error>> {
        let Self { socket, endpoint, memory } = self;
        let (own_port, peer_port) = (socket.local_addr()?.port(), socket.peer_addr()?.port());
        let outer = OuterHeaders { source_port: peer_port, ..OuterHeaders::new(HOST, HOST) };
        let (limits, mut bytes) = (TransmitLimits { max_packets: 1 }, [0; 2048]);
        while let Some(train) = endpoint.poll_transmit(now, memory, limits, &mut bytes) {
            let datagram = &mut bytes[..train.len];
            Sealer::new(&outer)?.seal_single(own_port, 0, datagram)?;
            socket.send(datagram)?;
        }
        while let Ok(len) = socket.recv(&mut bytes) {
            let frame = Frame::of_datagram(&outer, 0, &bytes[..len]).ok_or("too long")?;
            endpoint.handle_packet(now, &frame.packet()?.verify_icrc()?, memory);
        }
        endpoint.handle_timeout(now);
        Ok(())
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let [one, two] = [UdpSocket::bind((HOST, 0))?, UdpSocket::bind((HOST, 0))?];
    let addresses = [one.local_addr()?, two.local_addr()?];
    let (mut client, mut server) = (Side::new(one, addresses[1])?, Side::new(two, addresses[0])?);

    let (clock, message) = (time::Instant::now(), *b"across the kernel");
    let inbox = server.memory.register(PD, 64, AccessFlags::LOCAL_WRITE);
    server.endpoint.post_recv(Instant::default(), QPN, RecvWr::new(7, inbox.piece(0, 64)))?;
    let send = SendWr::inline(1, SendOperation::send(), &message).signaled();
    client.endpoint.post_send(Instant::default(), QPN, send)?;
    while !(client.endpoint.has_completions() && server.endpoint.has_completions()) {
        let now = Instant::from_nanos(clock.elapsed().as_nanos() as u64);
        client.run(now)?;
        server.run(now)?;
    }

    let (_, received) = server.endpoint.poll_completion().ok_or("no completion")?;
    assert_eq!((received.wr_id, received.status), (7, CompletionStatus::Success));
    assert_eq!(server.memory.bytes(inbox)[..received.byte_len as usize], message);
    Ok(())
}
