//! The floor of a small allreduce: the frames that a ring of ranks sends for one operation, each as long as that
//! of an 8-byte WRITE, between receive rings that are polled. Nothing is added up, and there is no protocol.
//!
//! A value goes from rank 0 to the last rank, and the sum from there to rank 0 and on to the last but one: four
//! frames with three ranks, of which three follow one another before rank 0 can begin the next operation.
//!
//! ```text
//! rank 1# raw_allreduce --listen --interface eth0 --cpu 1
//! rank 2# raw_allreduce --listen --interface eth0 --cpu 0
//! rank 0# raw_allreduce --to 10.0.0.2 10.0.0.3 --interface eth0 --cpu 0
//! {"operations":113214,"program":"raw_allreduce","ranks":3,"us":8.83}
//! ```

use std::net::{Ipv4Addr, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

use clap::Parser;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::pingpong::{frame, send};
use super::port::Port;
use crate::control_channel::ControlChannel;
use crate::measurement_interval::Interval;
use crate::program::Failure;

/// What the packet path takes: the frames of an allreduce of one value over a ring, all ends polling.
#[derive(Clone, Debug, Parser)]
#[command(name = "raw_allreduce", about)]
pub struct Options {
    /// Be one of the other ranks, and wait for rank 0.
    #[arg(long, conflicts_with = "to")]
    pub listen: bool,
    /// Be rank 0: the IPv4 addresses of the others, in the order of their ranks.
    #[arg(long, value_name = "ADDRESS", num_args = 1.., required_unless_present = "listen")]
    pub to: Vec<Ipv4Addr>,
    /// The interface to use.
    #[arg(long)]
    pub interface: String,
    /// Stay on this processor, counted from 0.
    #[arg(long)]
    pub cpu: Option<usize>,
    /// How long to measure, after a warm-up of 0.3 s. Rank 0's word counts.
    #[arg(long, default_value_t = 2.0)]
    pub seconds: f64,
    /// TCP port at which the ranks meet before the measurement.
    #[arg(long, default_value_t = 47_911)]
    pub port: u16,
}

/// What rank 0 tells each other rank.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
struct Place {
    rank: usize,
    ranks: usize,
    next: Ipv4Addr,
}

/// Runs one rank and returns what there is to report: rank 0's mean time of an operation, in µs.
///
/// # Errors
/// Another rank is missing or goes, or an interface or a right is missing.
pub fn run(options: &Options) -> Result<Value, Failure> {
    if options.listen {
        let mut control = ControlChannel::listen(options.port)?;
        let place: Place = control.receive()?;
        let mut link = Link::open(&options.interface, control.local(), place.next)?;
        control.send(&READY)?;
        return serve(&mut link, place, &mut control);
    }
    let connect = |address: &Ipv4Addr| ControlChannel::connect(*address, options.port);
    let mut others = options.to.iter().map(connect).collect::<Result<Vec<_>, _>>()?;
    let Some(first) = others.first() else { return Err(Failure::told("rank 0 is alone")) };
    let (here, ranks) = (first.local(), others.len() + 1);
    let mut link = Link::open(&options.interface, here, first.peer())?;
    for (rank, other) in (1..).zip(&mut others) {
        let next = options.to.get(rank).copied().unwrap_or(here);
        other.send(&Place { rank, ranks, next })?;
    }
    for other in &mut others {
        other.receive::<u32>()?;
    }
    let report = lead(&mut link, ranks, options.seconds)?;
    others.iter_mut().try_for_each(|other| other.send(&report))?;
    Ok(report)
}

/// An interface, and the frame to the next rank.
struct Link {
    port: Port,
    frame: Vec<u8>,
}

impl Link {
    fn open(interface: &str, here: Ipv4Addr, next: Ipv4Addr) -> Result<Self, Failure> {
        let port = Port::open(interface, RING_SLOTS)?;
        // The kernel learns of a neighbour when something is sent to it.
        let doing = || Failure::doing(format!("sending a datagram to {next}"));
        let socket = UdpSocket::bind((here, 0)).map_err(doing())?;
        let deadline = Instant::now() + START_TIMEOUT;
        let addresses = loop {
            socket.send_to(&[0], (next, DISCARD_PORT)).map_err(doing())?;
            match port.addresses_to(here, next) {
                Err(_) if Instant::now() < deadline => thread::sleep(RETRY_INTERVAL),
                found => break found?,
            }
        };
        Ok(Self { port, frame: frame(&addresses) })
    }

    fn send(&self) -> Result<(), Failure> {
        send(&self.port, &self.frame)
    }

    /// Polls until a frame has come, and lets other ranks on the processor run in between; false if `give_up`
    /// (asked now and then) says so.
    fn wait(&mut self, mut give_up: impl FnMut() -> bool) -> bool {
        let mut polls = 0_u32;
        while !self.port.ring.take(|_| {}) {
            thread::yield_now();
            polls += 1;
            if polls.is_multiple_of(POLLS_PER_CHECK) && give_up() {
                return false;
            }
        }
        true
    }
}

/// Rank 0: begins operations, and passes the sums on.
fn lead(link: &mut Link, ranks: usize, seconds: f64) -> Result<Value, Failure> {
    let mut interval = Interval::new(seconds);
    let mut operations = 0_u64;
    loop {
        interval.sample(operations);
        if let Some((before, after, seconds)) = interval.ends() {
            let counted = after - before;
            let us = seconds * 1e6 / counted.max(1) as f64;
            return Ok(json!({
                "program": "raw_allreduce", "ranks": ranks, "operations": counted, "us": us,
            }));
        }
        link.send()?;
        let asked = Instant::now();
        if !link.wait(|| asked.elapsed() > REPLY_TIMEOUT) {
            return Err(Failure::told("a frame did not come round: is the link of every rank up?"));
        }
        if ranks > 2 {
            link.send()?;
        }
        operations += 1;
    }
}

/// Another rank: passes values on, and sums, until rank 0 has measured.
fn serve(link: &mut Link, place: Place, control: &mut ControlChannel) -> Result<Value, Failure> {
    let is_last = place.rank + 1 == place.ranks;
    let passes_sum = place.rank + 2 < place.ranks;
    loop {
        if !link.wait(|| control.is_readable()) {
            return control.receive();
        }
        link.send()?;
        if is_last {
            continue;
        }
        if !link.wait(|| control.is_readable()) {
            return control.receive();
        }
        if passes_sum {
            link.send()?;
        }
    }
}

const READY: u32 = 1;
const RING_SLOTS: usize = 16;
const POLLS_PER_CHECK: u32 = 1 << 12;
/// UDP's port for datagrams that are thrown away (discard, RFC 863).
const DISCARD_PORT: u16 = 9;
const START_TIMEOUT: Duration = Duration::from_secs(2);
const RETRY_INTERVAL: Duration = Duration::from_millis(10);
/// How long a frame may take to come round.
const REPLY_TIMEOUT: Duration = Duration::from_secs(1);
