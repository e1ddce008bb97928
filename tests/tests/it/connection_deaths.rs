//! Processes with connection management that die in every state, beside others on the same address.

mod peer;
mod process;
mod times;
mod victim;

use std::env;
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::seq::{IndexedRandom, SliceRandom};
use rand::{Rng, SeedableRng};
use roce_netns::Host;
use roce_test_macros::tier1;
use roce_tests::fixtures::Cable;
use roce_verbs::cm::EventKind;

use peer::Peer;
use process::{DEATHS, Death, Process};
use times::Times;
use victim::{STATES, State, check_end, victim_in};

/// Far beyond the time of any step.
const LIMIT: Duration = Duration::from_secs(20);
/// Time in which the peer of a process under `roce run` is told of its death.
const TOLD: Duration = Duration::from_secs(1);
/// Time in which what has no answer is sent again; a second event would have come then.
const LONG_GRACE: Duration = Duration::from_millis(620);
/// Time between two looks of `roce run`, and some more.
const GRACE: Duration = Duration::from_millis(300);
/// Time for what is under way.
const SHORT_GRACE: Duration = Duration::from_millis(20);
/// The ports of the victim and of the two processes beside it.
const PORTS: [u16; 3] = [7200, 7201, 7202];
/// A port that both processes beside the victim want at the same time.
const WANTED: &str = "10.1.0.1:7203";

/// The processes of one address and their peer.
struct Network<'a> {
    host: &'a Host,
    peer: Peer<'a>,
    /// They have a connection each, which lives through all rounds.
    beside: [Process; 2],
    times: Times,
    /// When the last victim with a half-open connection died: the peer drops what it is sent again.
    half_open: Option<Instant>,
}

impl Network<'_> {
    fn round(&mut self, state: State, death: Death, is_inner: bool, is_long: bool) {
        let Self { host, peer, beside, times, half_open } = self;
        let (mut victim, id) = victim_in(state, is_inner, host, peer);
        let dropped = peer.dropped();
        let at = victim.die(death);
        let id = match state {
            State::Listening => {
                // A port is refused once its process is gone.
                wait_until_free(&mut beside[0]);
                Some(peer.connect(PORTS[0]))
            }
            State::EstablishedBoth => {
                // The victim may have told the end already.
                let _ = id.as_ref().expect("a connection").disconnect();
                id
            }
            _ => id,
        };
        match state {
            State::DreqSent | State::Timewait => peer.expect_silence(GRACE),
            _ => {
                let event = peer.event(LIMIT).unwrap_or_else(|| panic!("{state:?}: not told"));
                times.0.entry((state, death)).or_default().push(at.elapsed());
                assert_eq!(Some(&event.id), id.as_ref());
                check_end(state, &event);
                peer.expect_silence(if is_long { LONG_GRACE } else { SHORT_GRACE });
            }
        }
        if state == State::Listening && half_open.is_none_or(|at| at.elapsed() > 2 * LONG_GRACE) {
            assert_eq!(peer.dropped(), dropped, "REJ 8 was sent twice");
        }
        let is_half_open = matches!(
            state,
            State::ReqSent | State::ReqReceived | State::RepSent | State::RepReceived
        );
        if is_half_open {
            *half_open = Some(at);
        }
        if state == State::DreqSent {
            id.expect("a connection").disconnect().unwrap();
        }
        wait_until_free(&mut beside[0]);
        // Of two processes that want one port at the same time one gets it.
        beside.iter_mut().for_each(|process| process.tell(&format!("hold {WANTED}")));
        let mut answers = beside.each_ref().map(Process::line);
        beside.iter_mut().for_each(|process| process.tell("release"));
        beside.iter().for_each(|process| process.expect("released"));
        answers.sort();
        assert_eq!(answers, ["held", "in use"]);
    }
}

/// Waits until no process has the victim's port.
fn wait_until_free(process: &mut Process) {
    let deadline = Instant::now() + TOLD;
    loop {
        process.tell(&format!("bind 10.1.0.1:{}", PORTS[0]));
        if process.line() == "bound" {
            return;
        }
        assert!(Instant::now() < deadline, "a port is held after the death of its process");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// `ROCE_ROUNDS` says how many processes die, `ROCE_SEED` repeats their states.
#[tier1]
fn a_process_that_dies_in_any_state_holds_no_port_and_its_peer_is_told_once_and_in_time() {
    let setting = |name: &str| env::var(name).ok().map(|it| it.parse::<u64>().expect("a number"));
    let rounds = setting("ROCE_ROUNDS");
    let seed = setting("ROCE_SEED").unwrap_or_else(rand::random);
    println!("ROCE_SEED={seed}");
    let mut random = StdRng::seed_from_u64(seed);
    let cable = Cable::with_mtu(1500);
    let mut peer = Peer::new(&cable.right);
    let mut beside = [1, 2].map(|number| {
        let mut process = Process::start(&cable.left, Process::helper());
        process.tell(&format!("listen 10.1.0.1:{}", PORTS[number]));
        process.expect("listening");
        process
    });
    let lasting = [1, 2].map(|number| peer.connect_to(&mut beside[number - 1], PORTS[number]));
    let mut network =
        Network { host: &cable.left, peer, beside, times: Times::default(), half_open: None };
    let begin = Instant::now();
    // Every pair once, then any.
    let mut pairs: Vec<_> =
        STATES.iter().flat_map(|state| DEATHS.map(|death| (*state, death))).collect();
    pairs.shuffle(&mut random);
    let is_over = |done: u64| match rounds {
        Some(rounds) => done >= rounds,
        None => begin.elapsed() > Duration::from_secs(20),
    };
    let mut done = 0;
    while !is_over(done) {
        let any = || (*STATES.choose(&mut random).unwrap(), *DEATHS.choose(&mut random).unwrap());
        let (state, death) = pairs.pop().unwrap_or_else(any);
        let is_inner = random.random_bool(0.5);
        let is_long = random.random_bool(0.1);
        let at = begin.elapsed().as_millis();
        println!("{done}, at {at} ms: {state:?}, {death:?}, inner: {is_inner}");
        network.round(state, death, is_inner, is_long);
        done += 1;
    }
    let Network { peer, mut beside, times, .. } = network;
    for (id, process) in lasting.iter().zip(&mut beside) {
        id.disconnect().unwrap();
        process.expect("disconnected");
        process.tell("disconnect");
        let event = peer.next();
        assert_eq!((&event.id, &event.kind), (id, &EventKind::Disconnected));
    }
    println!("{}{done} rounds in {:?}", times.report(), begin.elapsed());
    // A busy machine may be late now and then.
    assert!(times.late() * 20 <= times.count(), "{} of {} late", times.late(), times.count());
}
