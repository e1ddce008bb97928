//! Messages of 8 bytes a second over sockets, one `send` each, counted where they arrive.
//!
//! ```text
//! server# sockets_rate --listen --cpu 1
//! client# sockets_rate --to 10.0.0.1 --cpu 0 --kind tcp
//! {"kind":"tcp","messages":5120344,"per_second":2560172.0,…}
//! ```
//!
//! A stream is allowed to gather messages (Nagle's algorithm): that is the faster way, and what
//! a program gets that does not ask for anything. `--nodelay` forbids it.

use std::io;
use std::time::{Duration, Instant};

use clap::Parser;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{CHECK_INTERVAL, Kind, Link, MESSAGE_LEN, broken, is_timeout};
use crate::control_channel::ControlChannel;
use crate::measurement_interval::Interval;
use crate::program::{EndOptions, Failure, WARM_UP};

/// Messages of 8 bytes a second over the kernel's sockets, one `send` each.
#[derive(Clone, Debug, Parser)]
#[command(name = "sockets_rate", about)]
pub struct Options {
    /// Which end this is.
    #[command(flatten)]
    pub end: EndOptions,
    /// Which sockets. The client's word counts.
    #[arg(long, value_enum, default_value = "tcp")]
    pub kind: Kind,
    /// Let a stream send each message at once.
    #[arg(long)]
    pub nodelay: bool,
    /// Congestion control of TCP. The client's word counts.
    #[arg(long, default_value = "cubic")]
    pub congestion: String,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
struct Settings {
    kind: Kind,
    nodelay: bool,
    congestion: String,
    seconds: f64,
}

/// Runs one end and returns what there is to report.
///
/// # Errors
/// The other end is missing or goes.
pub fn run(options: &Options) -> Result<Value, Failure> {
    let doing = || Failure::doing("setting up a socket");
    let Some(server) = options.end.server() else {
        let mut control = ControlChannel::listen(options.end.port)?;
        let settings: Settings = control.receive()?;
        if !(0.0..=600.0).contains(&settings.seconds) {
            return Err(Failure::told("the client asks for more than 600 seconds"));
        }
        let link = Link::listen(&mut control, settings.kind, &settings.congestion)?;
        link.set_timeouts(CHECK_INTERVAL).map_err(doing())?;
        let report = count(&link, &settings, &mut control)?;
        control.send(&report)?;
        return Ok(report);
    };
    let settings = Settings {
        kind: options.kind,
        nodelay: options.nodelay,
        congestion: options.congestion.clone(),
        seconds: options.end.seconds,
    };
    let mut control = ControlChannel::connect(server, options.end.port)?;
    control.send(&settings)?;
    let link = Link::connect(&mut control, settings.kind, &settings.congestion)?;
    link.set_nodelay(settings.nodelay).map_err(doing())?;
    link.set_timeouts(STUCK).map_err(doing())?;
    let sent = send(&link, settings.seconds)?;
    drop(link);
    control.send(&END)?;
    let mut report: Value = control.receive()?;
    report["sent_messages"] = json!(sent);
    Ok(report)
}

/// Sends for as long as the receiver counts and a little longer; returns how many.
fn send(link: &Link, seconds: f64) -> Result<u64, Failure> {
    let end = Instant::now() + Duration::from_secs_f64(WARM_UP + seconds + MARGIN);
    let message = [7; MESSAGE_LEN];
    let mut sent = 0_u64;
    loop {
        if sent.is_multiple_of(MESSAGES_BETWEEN_LOOKS) && Instant::now() >= end {
            return Ok(sent);
        }
        let mut rest = &message[..];
        while !rest.is_empty() {
            match link.send(rest) {
                Ok(len) => rest = &rest[len..],
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // A queue on the way is full: the message is lost, as datagrams are.
                Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => break,
                Err(error) => return Err(broken("sending a message")(error)),
            }
        }
        sent += 1;
    }
}

/// Receives until the client says that it has ended.
fn count(link: &Link, settings: &Settings, control: &mut ControlChannel) -> Result<Value, Failure> {
    let mut buffer = vec![0; 1 << 16];
    let mut interval = Interval::new(settings.seconds);
    let (mut bytes, mut calls, mut last) = (0_u64, 0_u64, Instant::now());
    loop {
        match link.receive(&mut buffer) {
            // The end of a stream: the client's word follows.
            Ok(0) => break,
            Ok(len) => {
                bytes += len as u64;
                calls += 1;
                // A look costs something beside a datagram of 8 bytes.
                if settings.kind == Kind::Tcp || calls.is_multiple_of(MESSAGES_BETWEEN_LOOKS) {
                    interval.sample((bytes, calls));
                    last = Instant::now();
                }
            }
            Err(error) if !is_timeout(&error) => {
                return Err(broken("receiving messages")(error));
            }
            Err(_) if control.is_readable() => break,
            Err(_) if last.elapsed() > IDLE_TIMEOUT => {
                return Err(Failure::told("the client is there and sends nothing"));
            }
            Err(_) => {}
        }
    }
    let said: String = control.receive()?;
    let ended_early = || Failure::told("the client has ended before the measurement did");
    let ((from, calls_before), (to, calls_after), seconds) =
        interval.ends().filter(|_| said == END).ok_or_else(ended_early)?;
    let messages = (to - from) / MESSAGE_LEN as u64;
    let mut report = json!({
        "program": "sockets_rate",
        "kind": settings.kind,
        "per_second": messages as f64 / seconds,
        "messages": messages,
        "receive_calls": calls_after - calls_before,
        "seconds": seconds,
    });
    if settings.kind == Kind::Tcp {
        report["congestion"] = json!(settings.congestion);
        report["nodelay"] = json!(settings.nodelay);
    }
    Ok(report)
}

/// The client's last word.
const END: &str = "end";
/// The sender goes on this much longer, in seconds, than the receiver counts.
const MARGIN: f64 = 0.2;
const MESSAGES_BETWEEN_LOOKS: u64 = 64;
/// A stream that takes nothing for so long has lost its receiver.
const STUCK: Duration = Duration::from_secs(10);
const IDLE_TIMEOUT: Duration = Duration::from_secs(20);
