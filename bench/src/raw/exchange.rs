//! The floor of a large allreduce over two ranks: the trains that it sends, with the copies, sums and ICRCs that
//! it needs, and no protocol.
//!
//! Each end sends one half of its vector, adds the half that comes to its own, sends the sums, and takes those of
//! the other half. So every byte is copied four times: into a train, into the kernel, into the receiver's ring,
//! and out of that, each train right before it leaves or behind its arrival. What came is added out of memory of
//! its own, since a packet must not change the vector before its ICRC is checked. An end sends at most
//! 32 trains more than it has received: there is no acknowledgement. At the end both vectors are
//! compared with the sums.
//!
//! ```text
//! rank 1# raw_exchange --listen --interface eth0 --cpu 1
//! rank 0# raw_exchange --to 10.0.0.2 --interface eth0 --cpu 0 --size 1M
//! {"gbytes":2.21,"operations":4215,"program":"raw_exchange","us":474.5}
//! ```

use std::time::{Duration, Instant};

use clap::Parser;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::crc_tables::CrcTables;
use super::frame::{
    self, Addresses, BTH_LEN, Covered, ICRC_LEN, IP_UDP_LEN, OUTER_LEN, PACKET_OVERHEAD,
    TRAIN_BUFFER_LEN, TRAIN_START,
};
use super::port::Port;
use super::sys::{Frame, Memory, VIRTIO_LEN, prefetch, prefetch_to_write};
use crate::control_channel::ControlChannel;
use crate::measurement_interval::Interval;
use crate::program::{Bytes, EndOptions, Failure};

/// What the packet path takes: the trains of an allreduce of floats over two ranks, both ends polling.
#[derive(Clone, Debug, Parser)]
#[command(name = "raw_exchange", about)]
pub struct Options {
    /// Which end this is.
    #[command(flatten)]
    pub end: EndOptions,
    /// The interface to use; its MTU has to be at least 4140.
    #[arg(long)]
    pub interface: String,
    /// Bytes of the vector: a multiple of 8192.
    #[arg(long, default_value = "1M")]
    pub size: Bytes,
    /// Neither make nor check ICRCs.
    #[arg(long)]
    pub no_icrc: bool,
}

/// What rank 0 tells rank 1.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
struct Settings {
    size: usize,
    icrc: bool,
}

/// Runs one end and returns what there is to report: rank 0's mean time of an operation, in µs, and bytes of the
/// vector in that time.
///
/// # Errors
/// The other end is missing or goes, an interface or a right is missing, or the sums are wrong.
pub fn run(options: &Options) -> Result<Value, Failure> {
    let mut port = Port::open(&options.interface, RING_SLOTS)?;
    if port.interface.mtu < IP_UDP_LEN + PACKET_LEN {
        let (name, mtu) = (&options.interface, IP_UDP_LEN + PACKET_LEN);
        return Err(Failure::told(format!(
            "{name} carries too little: `ip link set {name} mtu {mtu}`"
        )));
    }
    let Some(other) = options.end.server() else {
        let mut control = ControlChannel::listen(options.end.port)?;
        let settings: Settings = control.receive()?;
        let mut rank = Rank::new(1, settings, port.addresses(&control)?)?;
        control.send(&READY)?;
        while rank.step(&mut port)?.may_go_on(|| control.is_readable())? {}
        let report: Value = control.receive()?;
        return rank.check().map(|()| report);
    };
    let settings = Settings { size: options.size.0, icrc: !options.no_icrc };
    let mut control = ControlChannel::connect(other, options.end.port)?;
    let mut rank = Rank::new(0, settings, port.addresses(&control)?)?;
    control.send(&settings)?;
    control.receive::<u32>()?;
    let mut interval = Interval::new(options.end.seconds);
    while interval.ends().is_none() {
        if rank.step(&mut port)?.may_go_on(|| control.is_readable())? {
            interval.sample(rank.operations());
        } else {
            // It is gone, or has a reason to tell.
            return control.receive::<Value>().and(Err(Failure::told("the other end has ended")));
        }
    }
    let (before, after, seconds) = interval.ends().unwrap_or_default();
    let us = seconds * 1e6 / (after - before).max(1) as f64;
    let report = json!({
        "program": "raw_exchange", "operations": after - before, "us": us,
        "gbytes": settings.size as f64 / us / 1e3,
    });
    control.send(&report)?;
    rank.check().map(|()| report)
}

/// What a step has done.
enum Step {
    /// Something was sent or received.
    Moved,
    /// Nothing, this many times in a row, for so long.
    Idle(u32, Duration),
}

impl Step {
    /// Returns false if nothing more is to come. Asks now and then.
    fn may_go_on(self, mut has_ended: impl FnMut() -> bool) -> Result<bool, Failure> {
        match self {
            Self::Idle(times, _) if times % IDLE_STEPS_PER_CHECK != 0 => Ok(true),
            Self::Idle(..) if has_ended() => Ok(false),
            Self::Idle(_, long) if long > IDLE_TIMEOUT => Err(Failure::told(
                "no train comes although the other end is there: is one lost, or a link down?",
            )),
            Self::Idle(..) | Self::Moved => Ok(true),
        }
    }
}

/// One end, and how far it has come. Trains are counted from the first operation on; each operation has
/// `2 * half` of them, first those of the half that the other rank adds up, then those of sums.
struct Rank {
    number: usize,
    settings: Settings,
    addresses: Addresses,
    tables: CrcTables,
    input: Memory,
    output: Memory,
    /// What came of a half, until it is added.
    arrived: Vec<u8>,
    trains: Memory,
    half: u64,
    sent: u64,
    received: u64,
    idle: u32,
    moved_at: Instant,
}

impl Rank {
    fn new(number: usize, settings: Settings, addresses: Addresses) -> Result<Self, Failure> {
        let fits = (2 * PAYLOAD..=MAX_SIZE).contains(&settings.size);
        if !fits || !settings.size.is_multiple_of(2 * PAYLOAD) {
            return Err(Failure::told("--size is a multiple of 8192, at most 1G"));
        }
        let mut input = Memory::new(settings.size, true);
        for (index, value) in input.chunks_exact_mut(4).enumerate() {
            value.copy_from_slice(&Self::value(number, index).to_le_bytes());
        }
        let output = Memory::new(settings.size, true);
        let trains = Memory::new(BATCH * TRAIN_BUFFER_LEN, true);
        let half = (settings.size / 2 / PAYLOAD).div_ceil(TRAIN) as u64;
        Ok(Self {
            number,
            settings,
            addresses,
            tables: CrcTables::new(),
            input,
            output,
            arrived: vec![0; TRAIN * PAYLOAD],
            trains,
            half,
            sent: 0,
            received: 0,
            idle: 0,
            moved_at: Instant::now(),
        })
    }

    /// An element of a rank's vector. The sums are exact.
    fn value(number: usize, index: usize) -> f32 {
        (index % 1000 + 1000 * number) as f32
    }

    fn operations(&self) -> u64 {
        self.received / (2 * self.half)
    }

    /// Sends what may leave, and takes a train that has come.
    fn step(&mut self, port: &mut Port) -> Result<Step, Failure> {
        let mut lens = [0; BATCH];
        let mut count = 0;
        while count < BATCH && self.may_send() {
            lens[count] = self.write(count);
            self.sent += 1;
            count += 1;
        }
        if count > 0 {
            let buffers = self.trains.chunks_exact(TRAIN_BUFFER_LEN).zip(&lens[..count]);
            port.send_all(buffers.map(|(buffer, len)| &buffer[TRAIN_START..][..VIRTIO_LEN + len]))?;
        }
        let mut outcome = Ok(());
        let has_come = port.ring.take(|frame| outcome = self.take(frame));
        outcome?;
        if count > 0 || has_come {
            self.idle = 0;
            return Ok(Step::Moved);
        }
        if self.idle == 0 {
            self.moved_at = Instant::now();
        }
        self.idle += 1;
        std::hint::spin_loop();
        Ok(Step::Idle(self.idle, self.moved_at.elapsed()))
    }

    /// The next train may leave: what it holds is there, the operation before has ended, and the other end has
    /// room.
    fn may_send(&self) -> bool {
        let (operation, train) = (self.sent / (2 * self.half), self.sent % (2 * self.half));
        let needed = operation * 2 * self.half + (train + 1).saturating_sub(self.half);
        self.received >= needed && self.sent < self.received + MAX_AHEAD
    }

    /// Which bytes of the vector a train holds: of the first half, or the second.
    fn place(&self, train: u64, of_half: usize) -> std::ops::Range<usize> {
        let half = self.settings.size / 2;
        let from = (train % self.half) as usize * TRAIN * PAYLOAD;
        let to = (from + TRAIN * PAYLOAD).min(half);
        of_half * half + from..of_half * half + to
    }

    /// Writes the next train into a buffer; returns its bytes behind the virtio header.
    fn write(&mut self, buffer: usize) -> usize {
        let is_sums = self.sent % (2 * self.half) >= self.half;
        // Sums of this rank's half, or the input that the other rank needs for its own.
        let of_half = if is_sums { self.number } else { 1 - self.number };
        let place = self.place(self.sent, of_half);
        let next = place.end..self.settings.size.min(place.end + PAYLOAD);
        let from = if is_sums { &self.output } else { &self.input };
        prefetch(&from[next]);
        let payload = &from[place];
        let len = payload.len() / PAYLOAD * PACKET_LEN;
        let buffer = &mut self.trains[buffer * TRAIN_BUFFER_LEN + TRAIN_START..];
        let (virtio, buffer) = buffer.split_at_mut(VIRTIO_LEN);
        virtio.copy_from_slice(&frame::virtio(Some(PACKET_LEN).filter(|_| len > PACKET_LEN)));
        let outer = self.addresses.outer(0, len);
        let (head, packets) = buffer[..OUTER_LEN + len].split_at_mut(OUTER_LEN);
        head.copy_from_slice(&outer);
        let mut covered = Covered::new(&outer, PACKET_LEN, Some(&self.tables));
        let pieces = packets.chunks_exact_mut(PACKET_LEN).zip(payload.chunks_exact(PAYLOAD));
        for (number, (packet, piece)) in pieces.enumerate() {
            let (body, icrc) = packet.split_at_mut(PACKET_LEN - ICRC_LEN);
            let bth = frame::bth(self.sent as u32 & 0xff_ffff);
            body[..BTH_LEN].copy_from_slice(&bth);
            body[BTH_LEN..].copy_from_slice(piece);
            if self.settings.icrc {
                icrc.copy_from_slice(&covered.icrc(number, &bth, &body[BTH_LEN..]).to_le_bytes());
            }
        }
        OUTER_LEN + len
    }

    /// Checks a train, copies it out of the ring, and adds it to the input where that is what it is for.
    fn take(&mut self, frame: Frame<'_>) -> Result<(), Failure> {
        let is_sums = self.received % (2 * self.half) >= self.half;
        let of_half = if is_sums { 1 - self.number } else { self.number };
        let place = self.place(self.received, of_half);
        let Some((outer, packets)) = frame.bytes.split_first_chunk::<OUTER_LEN>() else {
            return Ok(());
        };
        let is_whole = packets.len() == place.len() / PAYLOAD * PACKET_LEN;
        if !is_whole || frame::psn(packets) != Some(self.received as u32 & 0xff_ffff) {
            return Err(Failure::told("a train is lost, or none of the other end"));
        }
        let next = place.end..self.settings.size.min(place.end + PAYLOAD);
        prefetch_to_write(&self.output[next]);
        let mut covered = Covered::new(outer, PACKET_LEN, Some(&self.tables));
        let into = match is_sums {
            true => &mut self.output[place.clone()],
            false => &mut self.arrived[..place.len()],
        };
        let pieces = packets.chunks_exact(PACKET_LEN).zip(into.chunks_exact_mut(PAYLOAD));
        for (number, (packet, piece)) in pieces.enumerate() {
            let (body, icrc) = packet.split_at(PACKET_LEN - ICRC_LEN);
            let (bth, payload) = body.split_first_chunk::<BTH_LEN>().expect("longer than a BTH");
            if self.settings.icrc && covered.icrc(number, bth, payload).to_le_bytes() != icrc {
                return Err(Failure::told("a packet came with a wrong ICRC"));
            }
            piece.copy_from_slice(payload);
        }
        if !is_sums {
            add(&self.arrived[..place.len()], &self.input[place.clone()], &mut self.output[place]);
        }
        self.received += 1;
        Ok(())
    }

    /// Compares the result of the operations that have ended.
    fn check(&self) -> Result<(), Failure> {
        let sum = |index| Self::value(0, index) + Self::value(1, index);
        let values = self.output.chunks_exact(4).enumerate();
        let wrong = values.filter(|(index, value)| *value != sum(*index).to_le_bytes()).count();
        match (self.operations(), wrong) {
            (0, _) => Err(Failure::told("not a single operation ended")),
            (_, 0) => Ok(()),
            _ => Err(Failure::told(format!("{wrong} sums are wrong: a fault of this program"))),
        }
    }
}

/// Adds floats.
fn add(a: &[u8], b: &[u8], sums: &mut [u8]) {
    let values = a.as_chunks::<4>().0.iter().zip(b.as_chunks::<4>().0);
    for (sum, (a, b)) in sums.as_chunks_mut::<4>().0.iter_mut().zip(values) {
        *sum = (f32::from_le_bytes(*a) + f32::from_le_bytes(*b)).to_le_bytes();
    }
}

const READY: u32 = 1;
/// Bytes of a packet that are payload, and of UDP payload.
const PAYLOAD: usize = 4096;
const PACKET_LEN: usize = PAYLOAD + PACKET_OVERHEAD;
/// Packets of a train.
const TRAIN: usize = 15;
/// Trains of a system call.
const BATCH: usize = 2;
/// Trains that an end may be ahead of what it has received. The ring of the other end has room for them.
const MAX_AHEAD: u64 = 32;
const RING_SLOTS: usize = 64;
const MAX_SIZE: usize = 1 << 30;
const IDLE_STEPS_PER_CHECK: u32 = 100_000;
const IDLE_TIMEOUT: Duration = Duration::from_secs(5);
