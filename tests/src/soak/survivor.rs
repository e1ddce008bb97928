//! The process that stays: several pairs on one device, each with a thread of its own.

use std::io;
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use roce_verbs::{CompletionStatus, Device, DeviceConfig};

use super::Result;
use super::card::{Card, Line};
use super::options::{INTERFACE, Place, derived_seed, faults};
use super::report::{PairState, Report};
use super::resources::Resources;
use super::traffic::{Step, Traffic};
use crate::fixtures::device_config;

/// A peer that wants to be connected.
type Caller = (Card, Line);

/// State shared by the threads of the process.
#[derive(Debug, Default)]
struct Shared {
    /// The controller wants the process to end.
    stops: AtomicBool,
    states: Mutex<Vec<PairState>>,
}

/// Serves the pairs until standard input ends.
///
/// # Errors
/// The device cannot be opened, or the address is in use. What goes wrong later is reported.
pub fn run(place: &Place) -> Result<()> {
    let before = Resources::now()?;
    let listener = TcpListener::bind(place.address)?;
    listener.set_nonblocking(true)?;
    let config = DeviceConfig { faults: Some(faults(place.seed)), ..device_config() };
    let device = Device::open(INTERFACE, config)?;
    let shared = Arc::new(Shared::default());
    let stopper = Arc::clone(&shared);
    let input = thread::spawn(move || {
        let _ended = io::stdin().read_line(&mut String::new());
        stopper.stops.store(true, Ordering::Relaxed);
    });
    Report::Ready { backend: device.backend().to_string() }.tell();
    thread::scope(|scope| {
        let mut callers = Vec::new();
        for pair in &place.pairs {
            let (caller, arrivals) = mpsc::channel();
            callers.push((*pair, caller));
            let (device, shared) = (&device, &*shared);
            let seed = derived_seed(place.seed, u64::from(*pair));
            scope.spawn(move || {
                if let Err(error) = serve(device, *pair, seed, &arrivals, shared) {
                    Report::Violation(format!("survivor of pair {pair}: {error}")).tell();
                }
            });
        }
        let shared = &*shared;
        scope.spawn(move || accept(&listener, &callers, shared));
        report_until_stopped(shared)
    })?;
    drop(device);
    input.join().map_err(|_| "the thread that reads standard input has panicked")?;
    Report::Closed { before, after: Resources::when_settled(before)? }.tell();
    Ok(())
}

/// Hands each peer that calls to the thread of its pair.
fn accept(listener: &TcpListener, callers: &[(u32, Sender<Caller>)], shared: &Shared) {
    while !shared.stops() {
        let Ok((stream, _)) = listener.accept() else {
            thread::sleep(Duration::from_millis(20));
            continue;
        };
        // The peer was killed while it connected.
        let Ok((card, line)) = hear(stream) else { continue };
        if let Some((_, caller)) = callers.iter().find(|(pair, _)| *pair == card.pair) {
            // The thread of the pair ends only after a violation.
            let _ = caller.send((card, line));
        }
    }
}

fn hear(stream: TcpStream) -> Result<Caller> {
    stream.set_nonblocking(false)?;
    let mut line = Line::new(stream)?;
    Ok((line.receive()?, line))
}

/// Serves one pair: peer after peer over one queue pair.
fn serve(
    device: &Device,
    pair: u32,
    seed: u64,
    arrivals: &Receiver<Caller>,
    shared: &Shared,
) -> Result<()> {
    let mut traffic = Traffic::new(device, pair, seed)?;
    while !shared.stops() {
        let (card, line) = match arrivals.recv_timeout(Duration::from_millis(100)) {
            Ok(caller) => caller,
            Err(RecvTimeoutError::Timeout) => continue,
            Err(RecvTimeoutError::Disconnected) => break,
        };
        let Some(line) = connect(&mut traffic, card, line)? else { continue };
        serve_connection(&mut traffic, &line, shared)?;
    }
    Ok(())
}

/// Connects to a peer; `None` if it was killed meanwhile.
fn connect(traffic: &mut Traffic, card: Card, mut line: Line) -> Result<Option<Line>> {
    let mine = traffic.prepare()?;
    traffic.connect(card)?;
    let agreed = line.send(&mine).and_then(|()| line.receive::<bool>());
    // Receives are posted: they are flushed by the failure that the next step finds, or by RESET.
    Ok(agreed.is_ok().then_some(line))
}

/// Carries requests until the peer is dead and everything is complete.
fn serve_connection(traffic: &mut Traffic, line: &Line, shared: &Shared) -> Result<()> {
    loop {
        let step = traffic.step()?;
        shared.publish(traffic.state());
        let Step::Failed(failure) = step else { continue };
        if failure.status != CompletionStatus::RetryExceeded {
            return Err(format!("a connection ended with {failure:?}").into());
        }
        if !line.is_closed_within(DEATH_NOTICE) {
            let counters = traffic.counters()?;
            return Err(format!(
                "a connection to a peer that is alive failed: {failure:?}; {:?}; {counters:?}",
                traffic.state()
            )
            .into());
        }
        return Ok(());
    }
}

fn report_until_stopped(shared: &Shared) -> Result<()> {
    let mut due = Instant::now() + REPORT_EVERY;
    while !shared.stops() {
        thread::sleep(Duration::from_millis(50));
        if Instant::now() < due {
            continue;
        }
        due += REPORT_EVERY;
        let pairs = shared.states.lock().unwrap_or_else(PoisonError::into_inner).clone();
        Report::State { pairs, resources: Resources::now()? }.tell();
    }
    Ok(())
}

impl Shared {
    fn stops(&self) -> bool {
        self.stops.load(Ordering::Relaxed)
    }

    fn publish(&self, state: PairState) {
        let mut states = self.states.lock().unwrap_or_else(PoisonError::into_inner);
        match states.iter_mut().find(|it| it.pair == state.pair) {
            Some(known) => *known = state,
            None => states.push(state),
        }
    }
}

const REPORT_EVERY: Duration = Duration::from_secs(1);
/// How long the kernel may take to close the sockets of a process that was killed: it frees memory
/// and packet rings first, and waits for processors. A peer that is alive tells of the failure
/// itself, and sooner.
const DEATH_NOTICE: Duration = Duration::from_secs(10);
