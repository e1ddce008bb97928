//! Half round trips of 8 bytes over sockets.
//!
//! ```text
//! server# sockets_pingpong --listen --cpu 1
//! client# sockets_pingpong --to 10.0.0.1 --cpu 0 --kind tcp --wait spin
//! {"kind":"tcp","max":60.1,"min":2.4,"p50":2.6,"p99":3.2,"p999":9.4,"wait":"spin",…}
//! ```

use std::io;
use std::thread;
use std::time::{Duration, Instant};

use clap::{Parser, ValueEnum};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{Kind, Link, MESSAGE_LEN, broken, is_timeout};
use crate::control_channel::ControlChannel;
use crate::histogram::Histogram;
use crate::program::{EndOptions, Failure, WARM_UP};

/// Half a round trip of 8 bytes over the kernel's sockets.
#[derive(Clone, Debug, Parser)]
#[command(name = "sockets_pingpong", about)]
pub struct Options {
    /// Which end this is.
    #[command(flatten)]
    pub end: EndOptions,
    /// Which sockets. The client's word counts.
    #[arg(long, value_enum, default_value = "tcp")]
    pub kind: Kind,
    /// What both ends do until something comes. The client's word counts.
    #[arg(long, value_enum, default_value = "spin")]
    pub wait: Wait,
    /// Microseconds of silence before each message of the client.
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u64).range(0..=1_000_000))]
    pub pause: u64,
    /// Congestion control of TCP. The client's word counts.
    #[arg(long, default_value = "cubic")]
    pub congestion: String,
}

/// How to wait for a message.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Wait {
    /// Ask again and again.
    Spin,
    /// Sleep in the kernel.
    Block,
    /// The end that listens sleeps in the kernel, the other asks again and again.
    BlockServer,
}

impl Wait {
    /// What one of the ends does: spin or block.
    fn of(self, is_server: bool) -> Self {
        match (self, is_server) {
            (Self::BlockServer, true) => Self::Block,
            (Self::BlockServer, false) => Self::Spin,
            (both, _) => both,
        }
    }
}

#[derive(Clone, Debug, Deserialize, Serialize)]
struct Settings {
    kind: Kind,
    wait: Wait,
    congestion: String,
}

/// Runs one end and returns what there is to report: the client's times, in µs.
///
/// # Errors
/// The other end is missing or goes.
pub fn run(options: &Options) -> Result<Value, Failure> {
    let Some(server) = options.end.server() else {
        let mut control = ControlChannel::listen(options.end.port)?;
        let mut settings: Settings = control.receive()?;
        settings.wait = settings.wait.of(true);
        let link = Link::listen(&mut control, settings.kind, &settings.congestion)?;
        return serve(&prepared(link, &settings)?, &settings, &mut control);
    };
    let mut settings =
        Settings { kind: options.kind, wait: options.wait, congestion: options.congestion.clone() };
    let mut control = ControlChannel::connect(server, options.end.port)?;
    control.send(&settings)?;
    settings.wait = settings.wait.of(false);
    let link = Link::connect(&mut control, settings.kind, &settings.congestion)?;
    let link = prepared(link, &settings)?;
    let pause = Duration::from_micros(options.pause);
    let (times, lost) = measure(&link, &settings, options.end.seconds, pause)?;
    let mut report = times.report();
    report["program"] = json!("sockets_pingpong");
    report["kind"] = json!(settings.kind);
    report["wait"] = json!(options.wait);
    if settings.kind == Kind::Tcp {
        report["congestion"] = json!(settings.congestion);
    }
    report["lost"] = json!(lost);
    control.send(&report)?;
    Ok(report)
}

fn prepared(link: Link, settings: &Settings) -> Result<Link, Failure> {
    let doing = || Failure::doing("setting up a socket");
    link.set_nodelay(true).map_err(doing())?;
    link.set_timeouts(REPLY_TIMEOUT).map_err(doing())?;
    link.set_nonblocking(settings.wait == Wait::Spin).map_err(doing())?;
    Ok(link)
}

fn measure(
    link: &Link,
    settings: &Settings,
    seconds: f64,
    pause: Duration,
) -> Result<(Histogram, u32), Failure> {
    let mut times = Histogram::new();
    let (started, mut lost) = (Instant::now(), 0);
    let measuring = started + Duration::from_secs_f64(WARM_UP);
    let end = measuring + Duration::from_secs_f64(seconds);
    loop {
        if !pause.is_zero() {
            thread::sleep(pause);
        }
        let asked = Instant::now();
        if asked >= end {
            return Ok((times, lost));
        }
        send(link)?;
        match receive(link, settings.wait)? {
            Received::Message if asked >= measuring => times.add(asked.elapsed() / 2),
            Received::Message => {}
            Received::Nothing => lost += 1,
            Received::End => return Err(Failure::told("the other end has closed its socket")),
        }
        if lost >= MAX_LOST {
            return Err(Failure::told(format!("{lost} messages were not answered")));
        }
    }
}

fn serve(link: &Link, settings: &Settings, control: &mut ControlChannel) -> Result<Value, Failure> {
    let mut last = Instant::now();
    loop {
        match receive(link, settings.wait)? {
            Received::Message => {
                send(link)?;
                last = Instant::now();
            }
            Received::Nothing if control.is_readable() => return control.receive(),
            Received::End => return control.receive(),
            Received::Nothing if last.elapsed() > IDLE_TIMEOUT => {
                return Err(Failure::told("the client is there and sends nothing"));
            }
            Received::Nothing => {}
        }
    }
}

fn send(link: &Link) -> Result<(), Failure> {
    match link.send(&[7; MESSAGE_LEN]) {
        // What one UDP socket refuses now is asked for again.
        Ok(_) => Ok(()),
        Err(error) if is_timeout(&error) => Ok(()),
        Err(error) => Err(broken("sending a message")(error)),
    }
}

enum Received {
    Message,
    Nothing,
    End,
}

/// Waits for a whole message, for at most [`REPLY_TIMEOUT`].
fn receive(link: &Link, wait: Wait) -> Result<Received, Failure> {
    let (mut message, mut have) = ([0; MESSAGE_LEN], 0);
    let (mut spins, mut started) = (0_u32, None);
    loop {
        match link.receive(&mut message[have..]) {
            Ok(0) => return Ok(Received::End),
            Ok(len) => have += len,
            Err(error) if !is_timeout(&error) => {
                return match error.kind() {
                    io::ErrorKind::ConnectionReset => Ok(Received::End),
                    _ => Err(broken("receiving a message")(error)),
                };
            }
            Err(_) if wait == Wait::Block => return Ok(Received::Nothing),
            Err(_) => {
                spins += 1;
                if spins % SPINS_PER_CHECK == 0
                    && started.get_or_insert_with(Instant::now).elapsed() > REPLY_TIMEOUT
                {
                    return Ok(Received::Nothing);
                }
            }
        }
        if have == MESSAGE_LEN {
            return Ok(Received::Message);
        }
    }
}

const SPINS_PER_CHECK: u32 = 1 << 10;
/// How long an answer may take before the message counts as lost.
const REPLY_TIMEOUT: Duration = Duration::from_millis(200);
const MAX_LOST: u32 = 25;
const IDLE_TIMEOUT: Duration = Duration::from_secs(20);
