//! Packets that another user of the same host makes, which knows all that the host shows it.

use std::net::IpAddr;
use std::thread;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use roce_netns::Host;
use roce_test_macros::tier1;
use roce_tests::fixtures::{Cable, TestDevice, connect, contents, pattern};
use roce_tests::forged_datagrams::{DatagramForger, EVERY_MEANS, Means};
use roce_tests::services::{by, over, succeeded};
use roce_tests::stranger::{as_stranger, may_be_others, rounds, shown_blocks};
use roce_verbs::cm::UDP_Q_KEY;
use roce_verbs::{
    Backend, ConnectOptions, Device, GRH_LEN, MemoryRegion, QueuePair, RecvWr, RemoteAddr,
    SendOperation, SendWr, Service,
};
use roce_wire::{Bth, Deth, Headers, Psn, Qpn, opcode};

const BACKENDS: [Backend; 3] = [Backend::AfPacket, Backend::Udp, Backend::AfXdp];
const SERVICES: [Service; 3] = [Service::Rc, Service::Uc, Service::Ud];
/// Receives of a queue pair that is attacked, and bytes of each.
const RECEIVES: usize = 64;
const SLOT: usize = 256;
const TRUE: &[u8] = b"what the peer says";
const FORGED: &[u8] = b"what a stranger says";
/// Time in which what was sent arrives.
const QUIET: Duration = Duration::from_millis(50);
/// The same on a busy machine.
const LATE: Duration = Duration::from_secs(10);
/// Guessed packets of a round.
const GUESSES: usize = 10_000;
/// Packets that are sent without a pause, so that the receiver's socket has room for all.
const BATCH: usize = 32;

fn device(host: &Host, interface: &str, backend: Backend) -> TestDevice {
    TestDevice::of(host.run(|| Device::open(interface, by(backend))).unwrap())
}

/// A device of its own completion queue.
fn apart(end: &TestDevice) -> TestDevice {
    let cq = end.device.create_cq(4096, None).unwrap();
    TestDevice { device: end.device.clone(), pd: end.pd.clone(), cq }
}

/// A queue pair that is attacked, and the end that it talks to.
struct Target {
    service: Service,
    end: TestDevice,
    qp: QueuePair,
    region: MemoryRegion,
    peer: TestDevice,
    peers: QueuePair,
    addresses: [IpAddr; 2],
    /// The PSN that it expects first.
    expected: Psn,
    /// The row of its address.
    row: u8,
}

impl Target {
    fn new(service: Service, [end, peer]: [&TestDevice; 2], row: u8) -> Self {
        let [end, peer] = [end, peer].map(apart);
        let options = over(row);
        let [qp, peers] = [&end, &peer].map(|end| {
            let builder = end.pd.queue_pair(&end.cq, &end.cq).service(service);
            builder.max_recv_wr(RECEIVES as u32).max_inline(64).build().unwrap()
        });
        let dests = [&qp, &peers].map(|qp| qp.dest(options.gid_index).unwrap());
        match service {
            Service::Ud => [&qp, &peers].map(|qp| qp.ready_for_datagrams(UDP_Q_KEY).unwrap()),
            _ => [(&qp, 1), (&peers, 0)]
                .map(|(qp, other)| qp.connect(&dests[other], &options).unwrap()),
        };
        let region = end.region(RECEIVES * SLOT, 0);
        let addresses = [dests[0].gid.ip(), dests[1].gid.ip()];
        let expected = dests[1].psn;
        let target = Self { service, end, qp, region, peer, peers, addresses, expected, row };
        (0..RECEIVES).for_each(|slot| target.post(slot));
        target
    }

    fn post(&self, slot: usize) {
        let place = self.region.sge(slot * SLOT..(slot + 1) * SLOT).unwrap();
        self.qp.post_recv([RecvWr::new(slot as u64, [place])]).unwrap();
    }

    /// Returns a packet of a message to a number.
    fn forgery(&self, number: Qpn, psn: Psn) -> Headers {
        let opcode = match self.service {
            Service::Rc => opcode::RC_SEND_ONLY,
            Service::Uc => opcode::UC_SEND_ONLY,
            Service::Ud => opcode::UD_SEND_ONLY,
            other => unreachable!("{other:?} has no queue pairs"),
        };
        let headers = Headers::new(Bth::new(opcode, number, psn));
        match self.service {
            Service::Ud => {
                let deth = Deth { q_key: UDP_Q_KEY, source_qp: self.peers.number() };
                Headers { deth: Some(deth), ..headers }
            }
            _ => headers,
        }
    }

    /// Takes a message; returns what it says.
    fn taken(&self, completion: &roce_verbs::Completion) -> Vec<u8> {
        let slot = completion.wr_id as usize;
        let header = if self.service == Service::Ud { GRH_LEN } else { 0 };
        let end = completion.byte_len as usize;
        let bytes = contents(&self.region)[slot * SLOT..][header..end].to_vec();
        self.post(slot);
        bytes
    }

    /// Takes the forged messages that have come, and waits for as many as have to come. Returns how many.
    fn forged(&self, expected: usize) -> usize {
        let mut forged = 0;
        let wait = |forged| if forged < expected { LATE } else { QUIET };
        while let Some(completion) = self.end.cq.spin_wait(wait(forged)) {
            assert_eq!(self.taken(&succeeded(completion)), FORGED, "{:?}", self.service);
            forged += 1;
        }
        forged
    }

    /// Sends a message by the peer, and takes it.
    fn hear_the_peer(&self) {
        let work = SendWr::inline(7, SendOperation::send(), TRUE).signaled();
        match self.service {
            Service::Ud => {
                let vector = roce_verbs::AddressVector::new(self.row, self.addresses[0].into());
                let ah = self.peer.pd.create_ah(&vector).unwrap();
                self.peers.post_send_to([work], &ah, self.qp.number(), UDP_Q_KEY).unwrap();
            }
            _ => self.peers.post_send([work]).unwrap(),
        }
        succeeded(self.peer.completion());
        let message = self.taken(&succeeded(self.end.completion()));
        assert!(message == TRUE, "{:?}: {message:?}", self.service);
    }
}

/// The ways by which the kernel lets an ordinary user of the left host send from an address.
fn forgers(left: &Host, from: IpAddr, to: IpAddr) -> Vec<(Means, DatagramForger)> {
    as_stranger(left, || {
        let open = |means| Some((means, DatagramForger::new(means, from, to).ok()?));
        EVERY_MEANS.into_iter().filter_map(open).collect()
    })
}

#[tier1]
fn a_user_that_knows_all_numbers_reaches_no_queue_pair_of_packet_sockets_on_its_own_host() {
    if !may_be_others() {
        return;
    }
    for backend in [Backend::AfPacket, Backend::AfXdp] {
        let cable = Cable::with_another();
        let [victim, near] = ["eth0", "eth1"].map(|name| device(&cable.left, name, backend));
        let far = device(&cable.right, "eth0", backend);
        for service in SERVICES {
            for (peer, row) in [(&near, 1), (&near, 2), (&far, 1), (&far, 2)] {
                let target = Target::new(service, [&victim, peer], row);
                let [to, from] = target.addresses;
                let forgers = forgers(&cable.left, from, to);
                // The kernel lets every user send from a foreign address of IPv6.
                let ways = if std::ptr::eq(peer, &near) {
                    4..
                } else if row == 2 {
                    1..
                } else {
                    0..
                };
                assert!(ways.contains(&forgers.len()), "{from}: {forgers:?}");
                for (_, forger) in &forgers {
                    let headers = target.forgery(target.qp.number(), target.expected);
                    for _ in 0..3 {
                        as_stranger(&cable.left, || forger.send(&headers, FORGED)).unwrap();
                    }
                }
                let forged = target.forged(0);
                assert_eq!(forged, 0, "{backend} {service:?} from {from} by {forgers:?}");
                target.hear_the_peer();
            }
        }
    }
}

#[tier1]
fn udp_sockets_take_no_packet_from_their_own_host_that_shows_an_address_of_another() {
    if !may_be_others() {
        return;
    }
    let cable = Cable::with_another();
    let [victim, near] = ["eth0", "eth1"].map(|name| device(&cable.left, name, Backend::Udp));
    let far = device(&cable.right, "eth0", Backend::Udp);
    for service in SERVICES {
        let target = Target::new(service, [&victim, &far], 2);
        let [to, from] = target.addresses;
        let forgers = forgers(&cable.left, from, to);
        assert!(!forgers.is_empty(), "{from}");
        for (_, forger) in &forgers {
            let headers = target.forgery(target.qp.number(), target.expected);
            as_stranger(&cable.left, || forger.send(&headers, FORGED)).unwrap();
        }
        assert_eq!(target.forged(0), 0, "{service:?} from {from} by {forgers:?}");
        target.hear_the_peer();
        // Traffic within the host goes on.
        for row in [1, 2] {
            Target::new(service, [&victim, &near], row).hear_the_peer();
        }
    }
    assert!(victim.device.counter("socket_rcvd_dropped").unwrap() > 0, "they came so far");
}

/// Sends guessed packets to queue pairs of every service, as a user of the left host. Returns how many of them
/// name one, of each target.
fn guess(left: &Host, targets: &[Target], is_own_host: bool, seed: u64) -> Vec<usize> {
    as_stranger(left, || {
        let mut dice = StdRng::seed_from_u64(seed);
        let blocks = shown_blocks();
        assert!(!blocks.is_empty(), "the host shows the blocks");
        let ways: Vec<Vec<_>> = targets
            .iter()
            .map(|target| {
                let [to, from] = target.addresses;
                let open = |means| DatagramForger::new(means, from, to).ok();
                EVERY_MEANS.into_iter().filter_map(open).collect()
            })
            .collect();
        let mut right = vec![0; targets.len()];
        for number in 0..GUESSES {
            let place = number % targets.len();
            let (target, ways) = (&targets[place], &ways[place]);
            let guess = match is_own_host {
                true => {
                    blocks[dice.random_range(0..blocks.len())] << 12 | dice.random_range(0..1 << 12)
                }
                false => dice.random_range(0x10..1 << 24),
            };
            let guess = Qpn::new(guess).expect("24 bits");
            // Beyond what a queue pair keeps: the odds of that are 2^-12 for each right number.
            let distance = dice.random_range(2 * 4096..(1 << 24) - 2 * 4096);
            let psn = Psn::wrapping(target.expected.get() + distance);
            let way = &ways[dice.random_range(0..ways.len())];
            way.send(&target.forgery(guess, psn), FORGED).expect("the kernel sends it");
            // A datagram service takes packets of both IP versions.
            let is_right = |other: &&Target| {
                other.qp.number() == guess
                    && other.service == target.service
                    && (other.row == target.row || target.service == Service::Ud)
            };
            if let Some(place) = targets.iter().position(|other| is_right(&other)) {
                right[place] += 1;
            }
            if number % BATCH == BATCH - 1 {
                thread::sleep(Duration::from_micros(300));
            }
        }
        right
    })
}

/// A transfer beside an attack.
struct Transfer {
    ends: [TestDevice; 2],
    qp: QueuePair,
    _theirs: QueuePair,
    regions: [MemoryRegion; 2],
}

const LEN: usize = 64 << 10;

impl Transfer {
    fn new(ends: [&TestDevice; 2]) -> Self {
        let ends = ends.map(apart);
        let (qp, theirs) = connect(&ends[0], &ends[1], &ConnectOptions::default());
        let regions = [ends[0].region(LEN, 1), ends[1].region(LEN, 2)];
        Self { ends, qp, _theirs: theirs, regions }
    }

    /// Writes messages until an attack is over, and checks them. Returns how many.
    fn run(&self, is_over: impl Fn() -> bool) -> usize {
        let [ours, theirs] = &self.regions;
        let remote = RemoteAddr { addr: theirs.address(), rkey: theirs.rkey() };
        for number in 1.. {
            ours.write(0, &pattern(LEN, number as u8)).unwrap();
            let data = [ours.sge(..LEN).unwrap()];
            self.qp
                .post_send([SendWr::new(1, SendOperation::write(remote), data).signaled()])
                .unwrap();
            succeeded(self.ends[0].completion());
            assert!(contents(theirs) == pattern(LEN, number as u8), "message {number}");
            if is_over() {
                return number;
            }
        }
        unreachable!("no attack lasts so long")
    }
}

#[tier1]
fn of_ten_thousand_guesses_of_an_ordinary_user_those_have_an_effect_that_the_odds_allow() {
    if !may_be_others() {
        return;
    }
    for round in 0..rounds() {
        for backend in BACKENDS {
            let cable = Cable::with_another();
            let [victim, near] = ["eth0", "eth1"].map(|name| device(&cable.left, name, backend));
            let far = device(&cable.right, "eth0", backend);
            for is_own_host in [true, false] {
                let ends = if is_own_host { [&victim, &near] } else { [&far, &victim] };
                let rows = [1, 2].into_iter();
                let targets: Vec<_> = rows
                    .flat_map(|row| SERVICES.map(|service| Target::new(service, ends, row)))
                    .collect();
                let transfer = Transfer::new(ends);
                let seed = round << 8 | u64::from(is_own_host);
                let right = thread::scope(|threads| {
                    let attack = threads.spawn(|| guess(&cable.left, &targets, is_own_host, seed));
                    let messages = transfer.run(|| attack.is_finished());
                    println!("{backend}: {messages} messages beside the attack");
                    attack.join().unwrap()
                });
                for (target, right) in targets.iter().zip(right) {
                    // Packet sockets take none of an ordinary user of their own host.
                    let is_reached = !is_own_host || backend == Backend::Udp;
                    let allowed = match target.service {
                        Service::Uc | Service::Ud if is_reached => right,
                        _ => 0,
                    };
                    let forged = target.forged(allowed);
                    let (service, to) = (target.service, target.addresses[0]);
                    println!(
                        "{backend} {service:?} {to}: {right} right numbers, {forged} executed"
                    );
                    assert_eq!(forged, allowed, "{backend} {service:?} {to}, seed {seed}");
                    target.hear_the_peer();
                }
            }
        }
    }
}
