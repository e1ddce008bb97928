//! The options of `roce send`.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use roce_dissect::Filter;
use roce_generator::{
    AddressMapping, Change, PacketSource, QueuePairMapping, parse_count, parse_payload, parse_rate,
    parse_time,
};

/// Send packets of any kind, right or deliberately wrong, and show what comes back
///
/// A packet is one of an opcode, with any field set by name, or one of a capture; --replay sends a whole
/// capture to other addresses and queue pairs, and --script runs a file of packets and expectations. Send
/// only in networks that you may test.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Options {
    /// Destination: an address or the name of a host
    #[arg(value_name = "TO", value_parser = parse_host)]
    pub(super) to: Option<IpAddr>,
    /// Interface to send from [default: the one in the destination's network, or the first that can
    /// carry RoCE]
    #[arg(short = 'd', long = "ib-dev", alias = "dev", value_name = "INTERFACE")]
    pub(super) device: Option<String>,
    #[command(flatten)]
    pub(super) packet: PacketOptions,
    #[command(flatten)]
    pub(super) script: ScriptOptions,
    #[command(flatten)]
    pub(super) replay: ReplayOptions,
    #[command(flatten)]
    pub(super) responses: ResponseOptions,
    #[command(flatten)]
    pub(super) output: OutputOptions,
}

/// The packet of the command line.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Packet")]
pub(super) struct PacketOptions {
    /// Opcode of the packet, whose headers are zeros: a name such as rc_send_only, or a number
    #[arg(short, long, value_name = "OPCODE", value_parser = parse_opcode)]
    #[arg(conflicts_with_all = ["from", "script", "replay"])]
    pub(super) opcode: Option<PacketSource>,
    /// Send frame N of a capture instead
    #[arg(long, value_name = "FILE:N", value_parser = parse_frame)]
    #[arg(conflicts_with_all = ["script", "replay", "payload"])]
    pub(super) from: Option<PacketSource>,
    /// Set a field; NAME+=N raises it by N with each further packet. `roce dissect --fields` lists the
    /// names
    #[arg(short, long, value_name = "NAME=VALUE", conflicts_with = "script")]
    pub(super) set: Vec<Change>,
    /// Payload: a number of bytes, or bytes such as 0xdeadbeef
    #[arg(short, long, value_name = "BYTES", value_parser = payload)]
    #[arg(conflicts_with_all = ["script", "replay"])]
    pub(super) payload: Option<Payload>,
    /// Make the ICRC wrong (--set icrc.icrc=VALUE sets it)
    #[arg(long, conflicts_with_all = ["script", "replay"])]
    pub(super) wrong_icrc: bool,
    /// Packets to send; with --replay, how often the capture is sent [default: 1]
    #[arg(short, long, value_name = "N", value_parser = parse_count, conflicts_with = "script")]
    pub(super) count: Option<u32>,
    /// Packets per second [default: 1000; with --replay as they were captured]
    #[arg(short, long, value_name = "N", value_parser = parse_rate, conflicts_with = "script")]
    pub(super) rate: Option<u32>,
}

/// A payload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Payload(pub(super) Vec<u8>);

/// A script and its variables.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Script")]
pub(super) struct ScriptOptions {
    /// Run the statements of a file (`-`: standard input)
    #[arg(long, value_name = "FILE", conflicts_with = "replay")]
    pub(super) script: Option<PathBuf>,
    /// Give a variable of the script its value
    #[arg(long = "let", value_name = "NAME=VALUE", value_parser = parse_variable)]
    #[arg(requires = "script")]
    pub(super) variables: Vec<(String, String)>,
}

/// A capture to replay.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Replay")]
pub(super) struct ReplayOptions {
    /// Send the RoCEv2 packets of a capture, each in a frame of its own, at the times of the capture
    #[arg(long, value_name = "FILE")]
    pub(super) replay: Option<PathBuf>,
    /// Only packets that meet a condition, such as `source == 10.0.0.1`
    #[arg(short = 'Y', long = "filter", value_name = "FILTER", requires = "replay")]
    pub(super) filter: Option<Filter>,
    /// Put an address in the place of another, also inside connection management
    #[arg(long, value_name = "OLD=NEW", requires = "replay")]
    pub(super) map_address: Vec<AddressMapping>,
    /// Put a queue pair in the place of another, also inside connection management; OLD@ADDRESS is
    /// that of one host of the capture
    #[arg(long, value_name = "OLD=NEW", requires = "replay")]
    pub(super) map_qp: Vec<QueuePairMapping>,
}

/// What has to come back.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Responses")]
pub(super) struct ResponseOptions {
    /// Fail unless a packet comes that meets a condition, such as `aeth.kind == nak`
    #[arg(long, value_name = "FILTER", conflicts_with = "script")]
    pub(super) expect: Vec<Filter>,
    /// Fail if a packet comes that meets a condition
    #[arg(long, value_name = "FILTER", conflicts_with = "script")]
    pub(super) forbid: Vec<Filter>,
    /// How long to wait for responses after the last packet
    #[arg(short = 'W', long, value_name = "TIME", default_value = "500ms", value_parser = parse_time)]
    #[arg(conflicts_with = "script")]
    pub(super) wait: Duration,
}

/// What is shown.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Output")]
pub(super) struct OutputOptions {
    /// Show every layer of each packet
    #[arg(short, long)]
    pub(super) verbose: bool,
    /// Show the bytes of each packet
    #[arg(short = 'x', long)]
    pub(super) hex: bool,
    /// Show every packet, also where a step sends or receives many
    #[arg(long)]
    pub(super) all: bool,
    /// Write all packets, sent and received, to a file: pcapng, or pcap if its name ends so
    #[arg(short, long, value_name = "FILE")]
    pub(super) write: Option<PathBuf>,
    /// Show the packets and send nothing; needs no privileges
    #[arg(short = 'n', long)]
    pub(super) dry_run: bool,
}

const EXAMPLES: &str = "\
Examples:
  roce send 10.9.0.2 -o rc_send_only -s qp=0x12 -s psn=7 -s ack_request=1 -p 64
  roce send 10.9.0.2 -o rc_acknowledge -s qp=0x12 -s aeth.syndrome=0x63 --wrong-icrc
  roce send 10.9.0.2 -o ud_send_only -s qp=5 -s deth.q_key=1 -s psn+=1 -c 1000 -r 200
  roce send 10.9.0.2 --from trace.pcapng:12 -s psn=9 --expect 'aeth.kind == nak'
  roce send 10.9.0.2 --script duplicate.roce --let qp=0x12 --let psn=0x000010
  roce send --replay trace.pcapng -Y 'source == 10.0.0.1' --map-address 10.0.0.1=10.9.0.1 \\
      --map-address 10.0.0.2=10.9.0.2 --map-qp 0x11@10.0.0.2=0x2a

The exit code is 1 if an expectation does not hold. Needs CAP_NET_RAW, as root has it. docs/send.md
describes scripts and replays.";

fn parse_host(text: &str) -> Result<IpAddr, String> {
    if let Ok(address) = text.parse() {
        return Ok(address);
    }
    let found = std::net::ToSocketAddrs::to_socket_addrs(&(text, 0));
    let mut found = found.map_err(|error| format!("no address is known for it: {error}"))?;
    found.next().map(|it| it.ip()).ok_or_else(|| "no address is known for it".to_owned())
}

fn parse_opcode(text: &str) -> Result<PacketSource, String> {
    let opcode = roce_generator::find_opcode(text).map_err(|error| error.to_string())?;
    Ok(PacketSource::Opcode(opcode))
}

fn parse_frame(text: &str) -> Result<PacketSource, String> {
    match text.parse() {
        Ok(source @ PacketSource::Capture { .. }) => Ok(source),
        _ => Err("write the file, a colon and the number of the frame: trace.pcapng:12".to_owned()),
    }
}

fn payload(text: &str) -> Result<Payload, String> {
    parse_payload(text).map(Payload).map_err(|error| error.to_string())
}

fn parse_variable(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("write NAME=VALUE, such as psn=0x000010")?;
    Ok((name.to_owned(), value.to_owned()))
}
