//! Whether rxe sends a request again under the PSN that it had before.
//!
//! In Linux 6.1 its requester and its completer both use the PSN of the oldest packet that is not
//! acknowledged (`rxe_req.c: req_retry`). A resend that begins while an acknowledgement is taken reads
//! two values of it, and rxe sends the rest of the message under other PSNs than before: a responder
//! has to refuse that, or waits for ever for what rxe believes acknowledged. Guests with one processor
//! do it seldom, not never.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use pcap_file::PcapError;
use pcap_file::pcapng::{Block, PcapNgReader};
use roce_wire::{Frame, KnownOpcode, Qpn};

use crate::Fault;
use crate::world::GUEST_ADDRESS;

/// Times that a case is run while it fails because rxe has changed the PSNs of a message.
const ATTEMPTS: usize = 3;

/// Runs a case in which rxe is the requester and packets get lost. `run` gets `ours`, the arguments of our
/// agent, and those that let it capture.
///
/// A case that fails is run again if rxe has changed the PSNs of a message in it, and only then.
///
/// # Errors
/// The fault of the last time.
pub(crate) fn repeat_while_changed(
    ours: &[OsString],
    mut run: impl FnMut(&[OsString]) -> Result<(), Fault>,
) -> Result<(), Fault> {
    let own = std::env::temp_dir().join(format!("roce-interop-{}.pcapng", std::process::id()));
    let asked = ours.iter().skip_while(|argument| *argument != "--pcap").nth(1);
    let capture = asked.map_or_else(|| own.clone(), PathBuf::from);
    let mut arguments = ours.to_vec();
    if asked.is_none() {
        arguments.extend(["--pcap".into(), own.clone().into()]);
    }
    let mut attempt = 1;
    let ended = loop {
        // Our agent appends to what is there.
        remove(&capture)?;
        let Err(fault) = run(&arguments) else { break Ok(()) };
        let is_changed = is_changed(&capture).map_err(Fault::ours("read its capture"))?;
        if !is_changed || attempt == ATTEMPTS {
            break Err(fault);
        }
        eprintln!(
            "     rxe has changed the PSNs of a message, so that this is tried again: {fault}"
        );
        attempt += 1;
    };
    remove(&own)?;
    ended
}

fn remove(capture: &Path) -> Result<(), Fault> {
    match std::fs::remove_file(capture) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(Fault::ours("remove an old capture")(error))
        }
        _ => Ok(()),
    }
}

/// Returns true if the capture has requests of rxe of different kinds under one PSN.
fn is_changed(capture: &Path) -> Result<bool, PcapError> {
    let file = File::open(capture).map_err(PcapError::IoError)?;
    let mut reader = PcapNgReader::new(io::BufReader::new(file))?;
    let mut requests = Requests::default();
    while let Some(block) = reader.next_block() {
        if let Block::EnhancedPacket(packet) = block? {
            requests.add(&packet.data);
        }
    }
    Ok(requests.is_changed)
}

/// The requests that rxe has sent to the queue pairs of a case, none of which uses all PSNs.
#[derive(Debug, Default)]
struct Requests {
    /// The opcode by queue pair number and PSN.
    opcodes: HashMap<(Qpn, u32), KnownOpcode>,
    is_changed: bool,
}

impl Requests {
    fn add(&mut self, frame: &[u8]) {
        let Ok(frame) = Frame::parse(frame) else { return };
        if frame.source() != GUEST_ADDRESS.parse::<IpAddr>().expect("an address") {
            return;
        }
        for packet in frame.packets(None).flatten() {
            let bth = packet.headers().bth;
            if !bth.opcode.info().is_request() {
                continue;
            }
            let before = *self.opcodes.entry((bth.dest_qp, bth.psn.get())).or_insert(bth.opcode);
            self.is_changed |= before != bth.opcode;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// See `testdata/README.md`.
    fn recorded() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../testdata/rxe_renumbers.pcapng")
    }

    fn frames() -> Vec<Vec<u8>> {
        let mut reader = PcapNgReader::new(File::open(recorded()).unwrap()).unwrap();
        let mut frames = Vec::new();
        while let Some(block) = reader.next_block() {
            if let Block::EnhancedPacket(packet) = block.unwrap() {
                frames.push(packet.data.into_owned());
            }
        }
        frames
    }

    #[test]
    fn a_message_that_begins_again_at_another_psn_is_seen() {
        assert!(is_changed(&recorded()).unwrap());
    }

    #[test]
    fn packets_that_are_sent_again_as_they_were_are_no_change() {
        // Up to the packets that rxe sent wrongly.
        let right = &frames()[..8];
        let mut requests = Requests::default();
        for frame in right.iter().chain(right) {
            requests.add(frame);
        }
        assert_eq!(requests.opcodes.len(), 7, "the other one is an acknowledgement");
        assert!(!requests.is_changed);
    }

    #[test]
    fn a_case_is_repeated_only_for_what_rxe_has_changed() {
        let wrong = || Fault::Wrong("red".into());
        let fixed = |captured: &'static [usize]| {
            let mut runs = 0;
            let ended = repeat_while_changed(&[], |arguments| {
                let frames: Vec<_> =
                    captured.iter().map(|frame| frames().swap_remove(*frame)).collect();
                write(Path::new(&arguments[1]), &frames);
                runs += 1;
                Err(wrong())
            });
            assert!(ended.is_err());
            runs
        };
        assert_eq!(fixed(&[0, 2, 3, 4, 2, 3, 4]), 1);
        assert_eq!(fixed(&[0, 2, 3, 4, 10]), ATTEMPTS);
    }

    fn write(path: &Path, frames: &[Vec<u8>]) {
        use pcap_file::DataLink;
        use pcap_file::pcapng::PcapNgWriter;
        use pcap_file::pcapng::blocks::enhanced_packet::EnhancedPacketBlock;
        use pcap_file::pcapng::blocks::interface_description::InterfaceDescriptionBlock;

        let mut writer = PcapNgWriter::new(File::create(path).unwrap()).unwrap();
        let interface = InterfaceDescriptionBlock {
            linktype: DataLink::ETHERNET,
            snaplen: 0,
            options: Vec::new(),
        };
        writer.write_pcapng_block(interface).unwrap();
        for frame in frames {
            let packet = EnhancedPacketBlock {
                interface_id: 0,
                timestamp: std::time::Duration::ZERO,
                original_len: frame.len() as u32,
                data: frame.into(),
                options: Vec::new(),
            };
            writer.write_pcapng_block(packet).unwrap();
        }
    }
}
