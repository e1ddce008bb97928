//! Packets as one line of text, for traces and error messages.

use core::fmt;

use crate::{FrameV1, Headers, NakCode, Packet, Syndrome};

/// `10.9.0.2 port 53823 > 10.9.0.1 RC SEND Only qp 0x000012 psn 0x123456 ack-req 5 bytes`
impl<Trust> fmt::Display for Packet<'_, Trust> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (source, port) = (self.source(), self.frame().source_port());
        write!(f, "{source} port {port} > {} {}", self.destination(), self.headers())?;
        payload_len(f, self.payload())
    }
}

/// As a RoCEv2 packet, with GIDs.
impl fmt::Display for FrameV1<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let grh = self.grh();
        write!(f, "RoCEv1 {} > {} {}", grh.source, grh.destination, self.headers())?;
        payload_len(f, self.payload())
    }
}

fn payload_len(f: &mut fmt::Formatter<'_>, payload: &[u8]) -> fmt::Result {
    if payload.is_empty() { Ok(()) } else { write!(f, " {} bytes", payload.len()) }
}

impl fmt::Display for Headers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bth = &self.bth;
        write!(f, "{} qp {} psn {}", bth.opcode, bth.dest_qp, bth.psn)?;
        let flags = [
            (bth.ack_request, " ack-req"),
            (bth.solicited_event, " solicited"),
            (bth.fecn, " fecn"),
            (bth.becn, " becn"),
        ];
        for (_, name) in flags.into_iter().filter(|(set, _)| *set) {
            f.write_str(name)?;
        }
        if let Some(deth) = self.deth {
            write!(f, " from qp {} q-key {:#010x}", deth.source_qp, deth.q_key)?;
        }
        if let Some(reth) = self.reth {
            write!(f, " key {:#010x} address {:#x} length {}", reth.rkey, reth.addr, reth.len)?;
        }
        if let Some(atomic) = self.atomic_eth {
            write!(f, " key {:#010x} address {:#x}", atomic.rkey, atomic.addr)?;
            write!(f, " operand {:#x} compare {:#x}", atomic.swap_or_add, atomic.compare)?;
        }
        if let Some(aeth) = self.aeth {
            write!(f, " {} msn {}", aeth.syndrome, aeth.msn)?;
        }
        if let Some(ack) = self.atomic_ack {
            write!(f, " original {:#x}", ack.original)?;
        }
        if let Some(immediate) = self.immediate {
            write!(f, " immediate {:#010x}", u32::from_be_bytes(immediate.0))?;
        }
        if let Some(key) = self.invalidate {
            write!(f, " invalidate key {:#010x}", key.0)?;
        }
        Ok(())
    }
}

impl fmt::Display for Syndrome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ack { credits } => match credits.count() {
                Some(count) => write!(f, "ACK credits {count}"),
                None => f.write_str("ACK"),
            },
            Self::RnrNak { timer } => write!(f, "RNR NAK wait {:?}", timer.duration()),
            Self::Nak(code) => write!(f, "NAK {code}"),
            Self::Reserved(byte) => write!(f, "syndrome {byte:#04x}"),
        }
    }
}

impl fmt::Display for NakCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::PsnSequence => "PSN sequence error",
            Self::InvalidRequest => "invalid request",
            Self::RemoteAccess => "remote access error",
            Self::RemoteOperational => "remote operational error",
            Self::InvalidRdRequest => "invalid RD request",
            Self::Reserved(code) => return write!(f, "code {code}"),
        })
    }
}
