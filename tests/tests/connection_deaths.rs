//! Processes with connection management that die in every state, beside others on the same address.

use std::collections::BTreeMap;
use std::env;
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rand::rngs::StdRng;
use rand::seq::{IndexedRandom, SliceRandom};
use rand::{Rng, SeedableRng};
use roce_netns::Host;
use roce_test_macros::tier1;
use roce_tests::fixtures::Cable;
use roce_tests::verbs_program::roce_run;
use roce_verbs::cm::{
    ConnectionParameters, Event, EventChannel, EventKind, Id, PortSpace, RejectReason,
};
use roce_verbs::{Device, DeviceConfig, Qpn};

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
const PEER: &str = "10.1.0.2:7174";
/// The ports of the victim and of the two processes beside it.
const PORTS: [u16; 3] = [7200, 7201, 7202];
/// A port that both processes beside the victim want at the same time.
const WANTED: &str = "10.1.0.1:7203";

/// How far the victim is when it dies, as seen by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum State {
    Listening,
    ReqSent,
    ReqReceived,
    RepSent,
    RepReceived,
    EstablishedActive,
    EstablishedPassive,
    /// Its peer disconnects in the moment of its death.
    EstablishedBoth,
    DreqSent,
    DreqReceived,
    Timewait,
}

const STATES: [State; 11] = [
    State::Listening,
    State::ReqSent,
    State::ReqReceived,
    State::RepSent,
    State::RepReceived,
    State::EstablishedActive,
    State::EstablishedPassive,
    State::EstablishedBoth,
    State::DreqSent,
    State::DreqReceived,
    State::Timewait,
];

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Death {
    Kill,
    Terminate,
    Exit,
    Exec,
}

const DEATHS: [Death; 4] = [Death::Kill, Death::Terminate, Death::Exit, Death::Exec];

/// A process that does what it is told.
struct Process {
    child: Child,
    input: ChildStdin,
    output: Receiver<String>,
    number: Pid,
}

impl Process {
    fn start(host: &Host, mut command: Command) -> Self {
        // `roce run` says there that its program was ended.
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = host.run(|| command.spawn()).expect("the process starts");
        let (sender, output) = mpsc::channel();
        let from = BufReader::new(child.stdout.take().expect("a pipe"));
        std::thread::spawn(move || {
            from.lines().map_while(Result::ok).all(|line| sender.send(line).is_ok())
        });
        let input = child.stdin.take().expect("a pipe");
        let mut process = Self { child, input, output, number: Pid::from_raw(0) };
        let line = process.line();
        let number = line.strip_prefix("process ").and_then(|number| number.parse().ok());
        process.number = Pid::from_raw(number.expect("its number"));
        process
    }

    fn helper() -> Command {
        Command::new(env!("CARGO_BIN_EXE_roce-test-cm-process"))
    }

    fn line(&self) -> String {
        self.output.recv_timeout(LIMIT).expect("a line within the time allowed")
    }

    fn tell(&mut self, line: &str) {
        writeln!(self.input, "{line}").expect("the process reads");
    }

    fn expect(&self, line: &str) {
        assert_eq!(self.line(), line);
    }

    /// Lets the process die. Returns when that was.
    fn die(&mut self, death: Death) -> Instant {
        let at = Instant::now();
        match death {
            Death::Kill => kill(self.number, Signal::SIGKILL).expect("it lives"),
            Death::Terminate => kill(self.number, Signal::SIGTERM).expect("it lives"),
            Death::Exit => self.tell("exit"),
            Death::Exec => self.tell("exec"),
        }
        at
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Its program ends with `roce run`.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The peer: this process, on the other host.
struct Peer<'a> {
    host: &'a Host,
    channel: EventChannel,
    _listener: Id,
    next_qpn: u32,
}

impl<'a> Peer<'a> {
    fn new(host: &'a Host) -> Self {
        let channel = EventChannel::new(DeviceConfig::default()).unwrap();
        let listener = channel.create_id(PortSpace::TCP, 0).unwrap();
        host.run(|| listener.bind(PEER.parse().unwrap()).and_then(|()| listener.listen(64)))
            .unwrap();
        Self { host, channel, _listener: listener, next_qpn: 0x1000 }
    }

    fn event(&self, limit: Duration) -> Option<Event> {
        let deadline = Instant::now() + limit;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let event = self.channel.next(Some(left)).unwrap()?;
            if event.kind != EventKind::TimewaitExit {
                return Some(event);
            }
        }
    }

    fn next(&self) -> Event {
        self.event(LIMIT).expect("an event within the time allowed")
    }

    fn parameters(&mut self) -> ConnectionParameters<'static> {
        self.next_qpn += 1;
        ConnectionParameters::new(Qpn::new(self.next_qpn).unwrap())
    }

    fn connect(&mut self, port: u16) -> Id {
        let id = self.channel.create_id(PortSpace::TCP, 0).unwrap();
        let address = SocketAddr::from(([10, 1, 0, 1], port));
        self.host.run(|| id.resolve_addr(None, address, LIMIT)).unwrap();
        assert_eq!(self.next().kind, EventKind::AddressResolved);
        id.resolve_route().unwrap();
        assert_eq!(self.next().kind, EventKind::RouteResolved);
        let parameters = self.parameters();
        id.connect(&parameters).unwrap();
        id
    }

    fn request(&self) -> Id {
        let event = self.next();
        assert!(matches!(event.kind, EventKind::ConnectRequest(_)), "{event:?}");
        event.id
    }

    /// Connects to the port of a process.
    fn connect_to(&mut self, process: &mut Process, port: u16) -> Id {
        let id = self.connect(port);
        process.expect("request");
        process.tell("accept");
        let event = self.next();
        assert!(matches!(event.kind, EventKind::ConnectResponse(_)), "{event:?}");
        id.establish().unwrap();
        process.expect("established");
        id
    }

    /// Returns how many datagrams its device has dropped.
    fn dropped(&self) -> u64 {
        let device: Device = self.channel.devices().pop().expect("a device");
        let counters = device.counters().unwrap();
        counters
            .iter()
            .filter(|(name, _)| name.starts_with("cm_drop_"))
            .map(|(_, count)| count)
            .sum()
    }

    /// Looks at nothing but further events of `ids`, of which there is none.
    fn expect_silence(&self, time: Duration) {
        if let Some(event) = self.event(time) {
            panic!("told again: {event:?}");
        }
    }
}

/// Starts the victim under `roce run`, and brings it into a state. Returns it with the peer's end.
fn victim_in(
    state: State,
    is_inner: bool,
    host: &Host,
    peer: &mut Peer<'_>,
) -> (Process, Option<Id>) {
    let mut command = roce_run();
    command.arg("--");
    if is_inner {
        // `roce run` sees the end of its program much later than that of the victim.
        command.args(["sh", "-c", "\"$0\"; exec sleep 20"]);
    }
    command.arg(Process::helper().get_program());
    let mut victim = Process::start(host, command);
    let is_passive = matches!(
        state,
        State::Listening | State::ReqReceived | State::RepSent | State::EstablishedPassive
    );
    if is_passive {
        victim.tell(&format!("listen 0.0.0.0:{}", PORTS[0]));
        victim.expect("listening");
        if state == State::Listening {
            return (victim, None);
        }
        let id = peer.connect(PORTS[0]);
        victim.expect("request");
        if state == State::ReqReceived {
            return (victim, Some(id));
        }
        victim.tell("accept");
        let event = peer.next();
        assert!(matches!(event.kind, EventKind::ConnectResponse(_)), "{event:?}");
        if state == State::EstablishedPassive {
            id.establish().unwrap();
            victim.expect("established");
        }
        return (victim, Some(id));
    }
    victim.tell(&format!("connect {PEER}"));
    victim.expect("connecting");
    let id = peer.request();
    if state == State::ReqSent {
        return (victim, Some(id));
    }
    let parameters = peer.parameters();
    id.accept(&parameters).unwrap();
    victim.expect("response");
    if state == State::RepReceived {
        return (victim, Some(id));
    }
    victim.tell("establish");
    let event = peer.next();
    assert!(matches!(event.kind, EventKind::Established(_)), "{event:?}");
    match state {
        State::DreqSent | State::Timewait => {
            victim.tell("disconnect");
            assert_eq!(peer.next().kind, EventKind::Disconnected);
            if state == State::Timewait {
                id.disconnect().unwrap();
                victim.expect("disconnected");
            }
        }
        State::DreqReceived => {
            id.disconnect().unwrap();
            victim.expect("disconnected");
        }
        _ => {}
    }
    (victim, Some(id))
}

/// Checks that the end is told as the state of the victim demands.
fn check_end(state: State, event: &Event) {
    let is_right = match (state, &event.kind) {
        (State::Listening, EventKind::Rejected { reason, .. }) => {
            *reason == RejectReason::INVALID_SERVICE_ID
        }
        (State::ReqSent, EventKind::Rejected { reason, .. }) => *reason == RejectReason::TIMEOUT,
        (State::ReqReceived | State::RepReceived, EventKind::Rejected { reason, .. }) => {
            *reason == RejectReason::CONSUMER
        }
        // REJ and DREQ are under way together.
        (State::RepSent, EventKind::Rejected { .. } | EventKind::Disconnected) => true,
        (
            State::EstablishedActive
            | State::EstablishedPassive
            | State::EstablishedBoth
            | State::DreqReceived,
            kind,
        ) => *kind == EventKind::Disconnected,
        _ => false,
    };
    assert!(is_right, "{state:?}: {event:?}");
}

/// Times from deaths to the peer's events.
#[derive(Default)]
struct Times(BTreeMap<(State, Death), Vec<Duration>>);

impl Times {
    fn report(&self) -> String {
        let mut text = String::new();
        for ((state, death), times) in &self.0 {
            let longest = times.iter().max().unwrap().as_millis();
            let mean = times.iter().sum::<Duration>().as_millis() / times.len() as u128;
            let state = format!("{state:?}");
            let death = format!("{death:?}");
            let count = times.len();
            writeln!(
                text,
                "{state:20} {death:10} {count:5} times, {mean:4} ms, at most {longest:4} ms"
            )
            .unwrap();
        }
        text
    }

    fn late(&self) -> usize {
        self.0.values().flatten().filter(|time| **time > TOLD).count()
    }

    fn count(&self) -> usize {
        self.0.values().map(Vec::len).sum()
    }
}

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

/// `ROCE_ROUNDS` says how many processes die, `ROCE_ROUND_SEED` repeats their states.
#[tier1]
fn a_process_that_dies_in_any_state_holds_no_port_and_its_peer_is_told_once_and_in_time() {
    let setting = |name: &str| env::var(name).ok().map(|it| it.parse::<u64>().expect("a number"));
    let rounds = setting("ROCE_ROUNDS");
    let seed = setting("ROCE_ROUND_SEED").unwrap_or_else(rand::random);
    println!("ROCE_ROUND_SEED={seed}");
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
        println!("{done}: {state:?}, {death:?}, inner: {is_inner}");
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
