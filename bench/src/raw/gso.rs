//! Raw trains, the ceiling of throughput: packet trains without a protocol. Each packet's ICRC is
//! computed and checked, and the payload is copied out of a working set and into one.
//!
//! There is no acknowledgement and no window: the sender sends as fast as it can, and what counts
//! is what the receiver has received, checked and copied. What it lost is said beside it.
//!
//! The defaults are what measured best between two namespaces over a veth pair: trains as long
//! as fit (half as long: a tenth less), four of them a system call (two and eight are as good,
//! sixteen a tenth less), 64 slots (32 lose more, 128 are no faster). Looking the headers' part
//! of an ICRC up in tables is worth a tenth with payloads of 1024 bytes and a twentieth with 4096
//! (`--plain-icrc` does without). Huge pages make no difference there. Receiving by `recvmmsg`
//! was slower than by the ring, though it takes a copy from the busier processor to the other:
//! the memory of frames then wanders between them.
//!
//! ```text
//! server# raw_trains --listen --interface eth0 --cpu 1
//! client# raw_trains --to 10.0.0.1 --interface eth0 --cpu 0 --payload 4096 --working-set 1M
//! {"bad_icrc":0,"dropped":0,"gbits":57.1,"packets":3485013,…}
//! ```

mod receiver;
mod sender;

use clap::Parser;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::frame::{IP_UDP_LEN, OUTER_LEN, PACKET_OVERHEAD, RETH_LEN};
use super::port::Port;
use super::sys::Memory;
use crate::control_channel::ControlChannel;
use crate::program::{Bytes, EndOptions, Failure};

/// What the packet path carries: trains with an ICRC, copied in and out, without a protocol.
#[derive(Clone, Debug, Parser)]
#[command(name = "raw_trains", about)]
pub struct Options {
    /// Which end this is.
    #[command(flatten)]
    pub end: EndOptions,
    /// The interface to use.
    #[arg(long)]
    pub interface: String,
    /// Payload bytes of a packet: a power of two, 8 to 4096.
    #[arg(long, default_value_t = 4096)]
    pub payload: usize,
    /// The MTU that both interfaces must have; without this, whatever they have.
    #[arg(long)]
    pub mtu: Option<usize>,
    /// Memory that the payload comes from, and the same again where it goes: a power of two.
    #[arg(long, default_value = "1M")]
    pub working_set: Bytes,
    /// Neither make nor check ICRCs.
    #[arg(long)]
    pub no_icrc: bool,
    /// Compute the headers' part of each ICRC instead of looking it up in tables.
    #[arg(long, conflicts_with = "no_icrc")]
    pub plain_icrc: bool,
    /// Packets that are each a whole WRITE, with the header that says where it goes, instead of
    /// those in the middle of one.
    #[arg(long)]
    pub whole: bool,
    /// Packets of a train, 1 to 128; 0: as many as fit, up to the 64 that every kernel takes.
    #[arg(long, default_value_t = 0)]
    pub train: usize,
    /// Trains of a system call: 1 to 64.
    #[arg(long, default_value_t = 4)]
    pub batch: usize,
    /// Slots of the receive ring; rounded up to a multiple of 16.
    #[arg(long, default_value_t = 64)]
    pub ring_slots: usize,
    /// Ask for huge pages for the working set at both ends.
    #[arg(long)]
    pub huge_pages: bool,
}

/// What the client asks the server for.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
struct Settings {
    payload: usize,
    whole: bool,
    mtu: Option<usize>,
    working_set: usize,
    icrc: bool,
    icrc_tables: bool,
    train: usize,
    batch: usize,
    ring_slots: usize,
    huge_pages: bool,
    seconds: f64,
}

impl Settings {
    fn of(options: &Options) -> Self {
        let overhead = overhead(options.whole);
        Self {
            payload: options.payload,
            whole: options.whole,
            mtu: options.mtu,
            working_set: options.working_set.0,
            icrc: !options.no_icrc,
            icrc_tables: !options.no_icrc && !options.plain_icrc,
            train: match options.train {
                0 => (MAX_TRAIN_LEN / (options.payload + overhead)).min(MAX_PACKETS_ALL_KERNELS),
                train => train,
            },
            batch: options.batch,
            ring_slots: options.ring_slots,
            huge_pages: options.huge_pages,
            seconds: options.end.seconds,
        }
    }

    /// Holds them to what can be; they may come from the other end.
    fn check(&self) -> Result<(), Failure> {
        let told = |why: &str| Err(Failure::told(why));
        if !self.payload.is_power_of_two() || !(8..=4096).contains(&self.payload) {
            return told("--payload is a power of two from 8 to 4096");
        }
        let fits = (self.payload..=MAX_WORKING_SET).contains(&self.working_set);
        if !self.working_set.is_power_of_two() || !fits {
            return told("--working-set is a power of two, at least the payload and at most 1G");
        }
        let fits = (1..=MAX_PACKETS).contains(&self.train);
        if !fits || self.train * self.packet_len() > MAX_TRAIN_LEN {
            return told("--train is 1 to 128, and to as many packets as fit 65400 bytes");
        }
        if !(1..=super::sys::MAX_BATCH).contains(&self.batch) {
            return told("--batch is 1 to 64");
        }
        if !(1..=4096).contains(&self.ring_slots) {
            return told("--ring-slots is 1 to 4096");
        }
        if !(0.0..=600.0).contains(&self.seconds) {
            return told("--seconds is at most 600");
        }
        Ok(())
    }

    fn check_mtu(&self, port: &Port, name: &str) -> Result<(), Failure> {
        let (mtu, ip_len) = (port.interface.mtu, IP_UDP_LEN + self.packet_len());
        if self.mtu.is_some_and(|wanted| wanted != mtu) {
            let fix = format!("ip link set {name} mtu {}", self.mtu.unwrap_or(mtu));
            return Err(Failure::told(format!("{name} has an MTU of {mtu}: `{fix}`")));
        }
        if ip_len > mtu {
            return Err(Failure::told(format!(
                "packets of {ip_len} bytes do not fit {name}, whose MTU is {mtu}: choose a \
                 smaller --payload"
            )));
        }
        Ok(())
    }

    /// Whether the working set is so large that the next piece of it had better be fetched ahead.
    ///
    /// With 64 MiB that is worth a fifteenth with payloads of 4096 bytes and a fifth with 1024;
    /// with 1 MiB it costs a thirtieth.
    fn fetches_ahead(&self) -> bool {
        self.working_set > CACHE
    }

    /// UDP payload bytes of a packet.
    fn packet_len(&self) -> usize {
        self.payload + overhead(self.whole)
    }
}

/// UDP payload bytes of a packet that are not payload of the message.
fn overhead(whole: bool) -> usize {
    if whole { PACKET_OVERHEAD + RETH_LEN } else { PACKET_OVERHEAD }
}

/// Runs one end and returns what there is to report.
///
/// # Errors
/// The other end is missing or goes, an interface or a right is missing, or data came out wrong.
pub fn run(options: &Options) -> Result<Value, Failure> {
    match options.end.server() {
        None => listen(options),
        Some(server) => {
            let settings = Settings::of(options);
            settings.check()?;
            let port = Port::open(&options.interface, 1)?;
            settings.check_mtu(&port, &options.interface)?;
            let mut control = ControlChannel::connect(server, options.end.port)?;
            control.send(&settings)?;
            let memory = filled(&settings);
            receive_result::<()>(&mut control)?;
            let sent = sender::send(&port, &mut control, &settings, &memory)?;
            control.send(&END)?;
            let mut report: Value = receive_result(&mut control)?;
            report["sent_packets"] = json!(sent);
            Ok(report)
        }
    }
}

fn listen(options: &Options) -> Result<Value, Failure> {
    let mut control = ControlChannel::listen(options.end.port)?;
    let settings: Settings = control.receive()?;
    let outcome = serve(options, &settings, &mut control);
    // The client shall know why it gets no figure.
    let said = match &outcome {
        Ok(report) => Ok(report.clone()),
        Err(failure) => Err(failure.to_string()),
    };
    let told = control.send(&said);
    outcome.and_then(|report| told.map(|()| report))
}

fn serve(
    options: &Options,
    settings: &Settings,
    control: &mut ControlChannel,
) -> Result<Value, Failure> {
    settings.check()?;
    let mut port = Port::open(&options.interface, settings.ring_slots)?;
    settings.check_mtu(&port, &options.interface)?;
    let mut memory = Memory::new(settings.working_set, settings.huge_pages);
    control.send(&Ok::<(), String>(()))?;
    let counts = receiver::receive(&mut port, control, settings, &mut memory)?;
    let wrong = wrong_pieces(&memory, &filled(settings), settings.payload);
    if wrong > 0 {
        return Err(Failure::told(format!(
            "{wrong} pieces of the working set hold what was never sent: a fault of this program"
        )));
    }
    Ok(json!({
        "program": "raw_trains",
        "gbits": counts.gbits,
        "packets": counts.packets,
        "per_second": counts.packets as f64 / counts.seconds,
        "dropped": counts.dropped,
        "bad_icrc": counts.bad_icrc,
        "ring_full": counts.ring_full,
        "seconds": counts.seconds,
        "mtu": port.interface.mtu,
        "settings": settings,
    }))
}

/// The other end's word, or its reason.
fn receive_result<T: serde::de::DeserializeOwned>(
    control: &mut ControlChannel,
) -> Result<T, Failure> {
    let said: Result<T, String> = control.receive()?;
    said.map_err(|why| Failure::told(format!("the other end: {why}")))
}

/// The working set that is sent: the same at each run, and no piece like its neighbour.
fn filled(settings: &Settings) -> Memory {
    let mut memory = Memory::new(settings.working_set, settings.huge_pages);
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    for word in memory.chunks_exact_mut(8) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        word.copy_from_slice(&state.to_le_bytes());
    }
    memory
}

/// Pieces that are neither as sent nor untouched.
fn wrong_pieces(received: &[u8], sent: &[u8], payload: usize) -> usize {
    let pairs = received.chunks_exact(payload).zip(sent.chunks_exact(payload));
    pairs.filter(|(is, should)| is != should && is.iter().any(|&byte| byte != 0)).count()
}

/// The client's last word.
const END: &str = "end";
/// UDP payload bytes of a train: a slot of the ring has to hold it and its headers.
const MAX_TRAIN_LEN: usize = 65_400 - OUTER_LEN;
/// A working set of this size stays in the caches of a processor of its own.
const CACHE: usize = 2 << 20;
const MAX_WORKING_SET: usize = 1 << 30;
/// Packets of a train that every kernel takes, and those that newer ones take.
const MAX_PACKETS_ALL_KERNELS: usize = 64;
const MAX_PACKETS: usize = 128;

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(more: &[&str]) -> Settings {
        let fixed = ["raw_trains", "--to", "10.0.0.1", "--interface", "eth0"];
        Settings::of(&Options::parse_from(fixed.iter().chain(more)))
    }

    #[test]
    fn a_train_is_as_long_as_a_slot_holds() {
        let standard = settings(&[]);
        assert_eq!((standard.train, standard.check().is_ok()), (15, true));
        assert_eq!(settings(&["--payload", "1024"]).train, 62);
        let whole = settings(&["--payload", "8", "--whole"]);
        assert_eq!((whole.train, whole.packet_len(), whole.check().is_ok()), (64, 40, true));
        assert!(settings(&["--payload", "8", "--train", "129"]).check().is_err());
        assert!(settings(&["--train", "16"]).check().is_err());
    }

    #[test]
    fn what_cannot_be_is_refused() {
        for nonsense in [
            ["--payload", "0"],
            ["--payload", "4"],
            ["--payload", "1000"],
            ["--payload", "8192"],
            ["--working-set", "3M"],
            ["--working-set", "1K"],
            ["--batch", "0"],
            ["--batch", "65"],
            ["--ring-slots", "0"],
        ] {
            assert!(settings(&nonsense).check().is_err(), "{nonsense:?}");
        }
    }

    #[test]
    fn a_piece_is_right_or_untouched_or_wrong() {
        let sent = filled(&settings(&["--working-set", "16K"]));
        let mut received = vec![0; sent.len()];
        assert_eq!(wrong_pieces(&received, &sent, 4096), 0);
        received[4096..8192].copy_from_slice(&sent[4096..8192]);
        assert_eq!(wrong_pieces(&received, &sent, 4096), 0);
        received[8192..12288].copy_from_slice(&sent[4096..8192]);
        assert_eq!(wrong_pieces(&received, &sent, 4096), 1);
        received[5000] ^= 1;
        assert_eq!(wrong_pieces(&received, &sent, 4096), 2);
    }
}
