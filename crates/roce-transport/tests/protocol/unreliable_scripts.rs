//! UC and UD under scripts: every combination of loss, duplication and swap, and random ones.

use std::time::Duration;

use proptest::prelude::*;
use roce_fabric::{Fate, Impairment, LinkConfig};
use roce_wire::Service;

use crate::common::connection::{connect, of_service};
use crate::common::exchange::Kind;
use crate::common::messages::{Message, Messages};
use crate::common::repeat::for_each_case;
use crate::common::world::{World, WorldConfig, test_config};

/// Time between two full packets on the link below.
const PACKET: Duration = Duration::from_micros(1);
/// Behind the next packet.
const SWAP: Duration = Duration::from_nanos(1500);
/// Behind all others.
const LATE: Duration = Duration::from_micros(100);

/// A link on which a packet of 256 bytes takes about a microsecond.
fn link() -> LinkConfig {
    LinkConfig { bits_per_sec: Some(2_600_000_000), ..LinkConfig::with_latency(PACKET) }
}

fn message(kind: Kind, len: usize) -> Message {
    Message { kind, len, solicited: len % 2 == 1 }
}

/// Sends the messages to a peer with receives enough, under these fates of the frames.
fn run(service: Service, config: WorldConfig, messages: &[Message], fates: &[Fate]) {
    let options = of_service(service);
    let mut world = World::new(2, WorldConfig { link: link(), ..config });
    let ends = connect(&mut world, [0, 1], options);
    world.set_impairment(0, Impairment::scripted(fates.iter().copied()));
    let receives = messages.iter().filter(|it| it.kind.takes_receive()).count() * 2;
    let posted = Messages::post(&mut world, ends, options, messages, receives);
    world.settle();
    posted.check(&world, fates);
}

/// Runs every script for the packets of these messages.
fn every_script(service: Service, messages: &[Message], packets: u32) {
    const FATES: [Fate; 5] =
        [Fate::Pass, Fate::Drop, Fate::Duplicate(SWAP), Fate::Delay(SWAP), Fate::Delay(LATE)];
    for number in 0..FATES.len().pow(packets) {
        let fate = |digit| FATES[number / FATES.len().pow(digit) % FATES.len()];
        let fates: Vec<_> = (0..packets).map(fate).collect();
        let named = Named(&fates);
        run(service, test_config(), messages, &fates);
        drop(named);
    }
}

/// Tells the script when a run panics.
struct Named<'a>(&'a [Fate]);

impl Drop for Named<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("under {:?}", self.0);
        }
    }
}

//= test uc-gap
#[test]
fn uc_messages_arrive_whole_or_not_at_all_under_every_script() {
    let (send, write) = (Kind::SendImmediate, Kind::WriteImmediate);
    every_script(Service::Uc, &[message(send, 257), message(write, 300), message(send, 7)], 5);
    every_script(
        Service::Uc,
        &[message(Kind::Send, 0), message(Kind::Send, 600), message(Kind::Write, 256)],
        5,
    );
}

#[test]
fn datagrams_arrive_as_often_as_their_frames_under_every_script() {
    let sizes = [256, 0, 255, 1, 100].into_iter().enumerate();
    let kind = |i| if i % 2 == 0 { Kind::Send } else { Kind::SendImmediate };
    let messages: Vec<_> = sizes.map(|(i, len)| message(kind(i), len)).collect();
    every_script(Service::Ud, &messages, 5);
}

/// Sizes around multiples of the path MTU of 256.
const SIZES: [usize; 9] = [0, 1, 255, 256, 257, 511, 512, 1000, 2560];

#[derive(Clone, Debug)]
struct Scenario {
    service: Service,
    config: WorldConfig,
    messages: Vec<Message>,
    fates: Vec<Fate>,
}

fn scenario() -> impl Strategy<Value = Scenario> {
    let kinds = [Kind::Send, Kind::SendImmediate, Kind::Write, Kind::WriteImmediate];
    let kind = prop::sample::select(kinds.to_vec());
    let message = (kind, prop::sample::select(SIZES.to_vec()), any::<bool>());
    let later = (0..20u64).prop_map(|micros| Duration::from_nanos(micros * micros * 300));
    let fate = prop_oneof![
        12 => Just(Fate::Pass),
        1 => Just(Fate::Drop),
        1 => later.clone().prop_map(Fate::Duplicate),
        1 => later.prop_map(Fate::Delay),
        1 => any::<u16>().prop_map(|bit| Fate::Corrupt { bit: bit.into() }),
    ];
    let driving = (1..65usize, 1..20usize, any::<bool>(), any::<bool>());
    let messages = prop::collection::vec(message, 1..12);
    (any::<bool>(), driving, messages, prop::collection::vec(fate, 0..80)).prop_map(
        |(is_ud, (max_packets, batch, eager, ipv6), messages, fates)| {
            let message = |(kind, len, solicited): (Kind, usize, bool)| {
                let (kind, len) = match kind {
                    Kind::Write if is_ud => (Kind::Send, len),
                    Kind::WriteImmediate if is_ud => (Kind::SendImmediate, len),
                    kind => (kind, len),
                };
                let len = if is_ud { len.min(256) } else { len };
                // Too short to tell it from another by its bytes.
                let kind = if kind == Kind::Send && len < 8 { Kind::SendImmediate } else { kind };
                // A WRITE solicits nothing.
                Message { kind, len, solicited: solicited && kind != Kind::Write }
            };
            Scenario {
                service: if is_ud { Service::Ud } else { Service::Uc },
                config: WorldConfig {
                    train_packets: max_packets,
                    batch,
                    eager,
                    ipv6,
                    ..test_config()
                },
                messages: messages.into_iter().map(message).collect(),
                fates,
            }
        },
    )
}

#[test]
fn messages_arrive_whole_or_not_at_all_whatever_the_network_does() {
    for_each_case(3000, scenario(), |Scenario { service, config, messages, fates }| {
        run(service, config, &messages, &fates);
    });
}

#[test]
fn messages_of_every_size_cross_in_trains_and_packet_by_packet() {
    for service in [Service::Uc, Service::Ud] {
        for whole_trains in [false, true] {
            for ipv6 in [false, true] {
                for max_packets in [1, 2, 7, 64] {
                    let sizes = SIZES.into_iter().filter(|it| service == Service::Uc || *it <= 256);
                    let kinds =
                        [Kind::SendImmediate, Kind::Send, Kind::Write, Kind::WriteImmediate];
                    let kinds = &kinds[..if service == Service::Uc { 4 } else { 2 }];
                    let messages: Vec<_> = sizes
                        .flat_map(|len| kinds.iter().flat_map(move |it| [message(*it, len); 3]))
                        .collect();
                    let config = WorldConfig {
                        whole_trains,
                        ipv6,
                        train_packets: max_packets,
                        ..test_config()
                    };
                    run(service, config, &messages, &[]);
                }
            }
        }
    }
}
