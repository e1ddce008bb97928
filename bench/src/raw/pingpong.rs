//! The floor of latency: one frame each way, as long as that of an 8-byte WRITE, between two
//! receive rings that are spun on. Nothing is computed but the time.
//!
//! ```text
//! server# raw_pingpong --listen --interface eth0 --cpu 1
//! client# raw_pingpong --to 10.0.0.1 --interface eth0 --cpu 0
//! {"max":41.3,"min":1.1,"p50":1.15,"p99":1.31,"p999":6.2,…}
//! ```

use std::time::{Duration, Instant};

use clap::Parser;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::frame::{self, Addresses, BTH_LEN, ICRC_LEN, OUTER_LEN};
use super::port::{self, Port};
use super::sys::VIRTIO_LEN;
use crate::control_channel::ControlChannel;
use crate::histogram::Histogram;
use crate::program::{EndOptions, Failure, WARM_UP};

/// What the packet path takes: half a round trip of one small frame, both ends spinning.
#[derive(Clone, Debug, Parser)]
#[command(name = "raw_pingpong", about)]
pub struct Options {
    /// Which end this is.
    #[command(flatten)]
    pub end: EndOptions,
    /// The interface to use.
    #[arg(long)]
    pub interface: String,
}

/// What the client tells the server; the server answers by sending back what comes.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
struct Begin;

/// Runs one end and returns what there is to report: the client's times, in µs.
///
/// # Errors
/// The other end is missing or goes, or an interface or a right is missing.
pub fn run(options: &Options) -> Result<Value, Failure> {
    let Some(server) = options.end.server() else {
        let mut control = ControlChannel::listen(options.end.port)?;
        let _: Begin = control.receive()?;
        let mut port = Port::open(&options.interface, RING_SLOTS)?;
        control.send(&Begin)?;
        return serve(&mut port, &mut control);
    };
    let mut port = Port::open(&options.interface, RING_SLOTS)?;
    let mut control = ControlChannel::connect(server, options.end.port)?;
    control.send(&Begin)?;
    let _: Begin = control.receive()?;
    let frame = frame(&port.addresses(&control)?);
    let ask = |port: &mut Port| -> Result<Option<Duration>, Failure> {
        let asked = Instant::now();
        send(port, &frame)?;
        let answered = wait(port, || asked.elapsed() > REPLY_TIMEOUT);
        Ok(answered.then(|| asked.elapsed()))
    };
    let mut times = Histogram::new();
    let started = Instant::now();
    let measuring = started + Duration::from_secs_f64(WARM_UP);
    let end = measuring + Duration::from_secs_f64(options.end.seconds);
    let mut lost = 0_u32;
    loop {
        let now = Instant::now();
        if now >= end {
            break;
        }
        match ask(&mut port)? {
            Some(time) if now >= measuring => times.add(time / 2),
            Some(_) => {}
            None if control.is_readable() => {
                return control.receive::<Value>().and_then(|said| {
                    Err(Failure::told(format!("the other end has ended early: {said}")))
                });
            }
            None => lost += 1,
        }
        if lost >= MAX_LOST {
            return Err(Failure::told(format!(
                "{lost} frames were not answered: is the link up at both ends?"
            )));
        }
    }
    let mut report = times.report();
    report["program"] = json!("raw_pingpong");
    report["frame_bytes"] = json!(frame.len() - VIRTIO_LEN);
    report["lost"] = json!(lost);
    control.send(&report)?;
    Ok(report)
}

fn serve(port: &mut Port, control: &mut ControlChannel) -> Result<Value, Failure> {
    let frame = frame(&port.addresses(control)?);
    let mut last = Instant::now();
    loop {
        let mut silent = false;
        let came = wait(port, || {
            silent = last.elapsed() > IDLE_TIMEOUT;
            silent || control.is_readable()
        });
        if came {
            send(port, &frame)?;
            last = last.max(Instant::now());
        } else if silent {
            return Err(Failure::told("the client is there and sends nothing: is the link up?"));
        } else {
            return control.receive();
        }
    }
}

/// Spins until a frame has come, or until `give_up` (asked now and then) says so.
fn wait(port: &mut Port, mut give_up: impl FnMut() -> bool) -> bool {
    let mut spins = 0_u32;
    while !port.ring.take(|_| {}) {
        std::hint::spin_loop();
        spins += 1;
        if spins == SPINS_PER_CHECK {
            spins = 0;
            if give_up() {
                return false;
            }
        }
    }
    true
}

pub(super) fn send(port: &Port, frame: &[u8]) -> Result<(), Failure> {
    match port.socket.send(frame) {
        Err(error) if !port::is_passing(&error) => Err(Failure::doing("sending a frame")(error)),
        // A frame that a full queue drops is sent again.
        _ => Ok(()),
    }
}

/// A frame as long as that of an 8-byte WRITE, behind its virtio header.
pub(super) fn frame(addresses: &Addresses) -> Vec<u8> {
    let payload = BTH_LEN + RETH_LEN + 8 + ICRC_LEN;
    let outer = addresses.outer(0, payload);
    let mut frame = [&frame::virtio(None)[..], &outer, &frame::bth(0)].concat();
    frame.resize(VIRTIO_LEN + OUTER_LEN + payload, 0);
    // Without an offload the checksum stays incomplete; zero means none.
    frame[VIRTIO_LEN + OUTER_LEN - 2..VIRTIO_LEN + OUTER_LEN].fill(0);
    frame
}

const RETH_LEN: usize = 16;
const RING_SLOTS: usize = 16;
const SPINS_PER_CHECK: u32 = 1 << 16;
/// How long an answer may take before the frame counts as lost.
const REPLY_TIMEOUT: Duration = Duration::from_millis(200);
const MAX_LOST: u32 = 25;
const IDLE_TIMEOUT: Duration = Duration::from_secs(20);
