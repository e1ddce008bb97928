//! Datagrams of connection management that another user of the same host guesses.

use std::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use roce_netns::Host;
use roce_test_macros::tier1;
use roce_tests::fixtures::Cable;
use roce_tests::forged_datagrams::{DatagramForger, Means};
use roce_tests::identified_ends::{End, PORT, connect};
use roce_tests::services::by;
use roce_tests::stranger::{as_stranger, may_be_others, rounds, shown_blocks};
use roce_verbs::cm::{EventChannel, EventKind, PortSpace, RejectReason};
use roce_verbs::{Backend, Device, Qpn};
use roce_wire::management::{
    CmDatagram, CmMessage, CommunicationId, Dreq, Rej, Rep, Req, Rtu, ServiceId,
};
use roce_wire::{Bth, Deth, GSI_Q_KEY, Headers, Psn, opcode};

/// Datagrams of a round.
const GUESSES: u64 = 10_000;

/// Sends guessed datagrams of connection management as a user of the left host, whose device has this GUID. Every
/// number that it guesses of a queue pair is another one than this.
fn guess(left: &Host, guid: u64, spared: Qpn, seed: u64) {
    as_stranger(left, || {
        let mut dice = StdRng::seed_from_u64(seed);
        let forger = forger();
        let blocks = shown_blocks();
        for number in 0..GUESSES {
            let [local_id, remote_id] = [0, 1].map(|_| CommunicationId(dice.random()));
            let guess =
                blocks[dice.random_range(0..blocks.len())] << 12 | dice.random_range(0..1 << 12);
            let local_qpn = Qpn::new(guess).filter(|guess| *guess != spared).unwrap_or(Qpn::GSI);
            let [timeout, consumer] = [RejectReason::TIMEOUT, RejectReason::CONSUMER];
            let message = match number % 6 {
                0 => CmMessage::Dreq(Dreq { local_id, remote_id, ..Dreq::default() }),
                1 => {
                    CmMessage::Rej(Rej { local_id, remote_id, reason: consumer, ..Rej::default() })
                }
                2 => CmMessage::Rej(Rej { local_id, reason: timeout, ..Rej::default() }),
                3 => CmMessage::Rep(Rep { local_id, remote_id, local_qpn, ..Rep::default() }),
                4 => CmMessage::Rtu(Rtu { local_id, remote_id, ..Rtu::default() }),
                _ => forgotten(guid, local_id, local_qpn),
            };
            tell(&forger, number, message);
            if number % 32 == 31 {
                std::thread::sleep(Duration::from_micros(300));
            }
        }
    });
}

fn forger() -> DatagramForger {
    let [from, to] = ["10.1.0.1", "10.1.0.2"].map(|address| address.parse().unwrap());
    DatagramForger::new(Means::Bound, from, to).expect("an address of the host")
}

fn tell(forger: &DatagramForger, transaction: u64, message: CmMessage) {
    let deth = Some(Deth { q_key: GSI_Q_KEY, source_qp: Qpn::GSI });
    let bth = Bth::new(opcode::UD_SEND_ONLY, Qpn::GSI, Psn::ZERO);
    let datagram = CmDatagram { transaction, message }.encode();
    forger.send(&Headers { deth, ..Headers::new(bth) }, &datagram).expect("the kernel sends it");
}

/// A request from a queue pair, for a service that there is not.
fn forgotten(local_ca_guid: u64, local_id: CommunicationId, local_qpn: Qpn) -> CmMessage {
    let service_id = ServiceId::from_port(PortSpace::TCP, PORT + 1);
    CmMessage::Req(Req { local_ca_guid, local_id, local_qpn, service_id, ..Req::default() })
}

/// Returns the GUID of the device on `eth0`, which follows from its MAC address.
fn guid(host: &Host) -> u64 {
    let devices = host.run(Device::list).unwrap();
    let eth0 = devices.iter().find(|it| it.interface.name == "eth0").expect("eth0");
    let [a, b, c, d, e, f] = eth0.interface.mac.expect("an Ethernet interface");
    u64::from_be_bytes([a ^ 2, b, c, 0xff, 0xfe, d, e, f])
}

#[tier1]
fn ten_thousand_guessed_datagrams_end_no_connection_and_a_request_of_its_queue_pair_ends_it() {
    if !may_be_others() {
        return;
    }
    for (round, backend) in (0..rounds())
        .flat_map(|round| [Backend::AfPacket, Backend::Udp, Backend::AfXdp].map(|it| (round, it)))
    {
        let cable = Cable::with_mtu(1500);
        let [client, server] = [&cable.left, &cable.right]
            .map(|host| End { host, channel: EventChannel::new(by(backend)).unwrap() });
        let _listener = server.listen(PortSpace::TCP, "10.1.0.2");
        let [(_active, here), (_passive, there)] = connect(&client, &server, "10.1.0.2");
        let guid = guid(&cable.left);
        guess(&cable.left, guid, here.qp.number(), round);
        here.send(3);
        there.receive(3);
        for end in [&client, &server] {
            let event = end.channel.next(Some(Duration::from_millis(50))).unwrap();
            assert!(event.is_none(), "{backend}: {event:?}");
        }
        // What SECURITY.md says of a neighbour that has found the number: a user of the host knows half of it.
        as_stranger(&cable.left, || {
            tell(&forger(), 7, forgotten(guid, CommunicationId(7), here.qp.number()));
        });
        // The server then asks for the end.
        assert_eq!(client.event().kind, EventKind::Disconnected, "{backend}");
    }
}
