//! A capture of as many packets as one likes: half of them data packets of 1 KiB, half short.
//!
//! Eight connections between two hosts, in turn. Each WRITE is a FIRST and MIDDLEs of 1 KiB with
//! a LAST; the answers, and small SENDs with theirs, are the short half.

use std::io::{self, Write};
use std::net::IpAddr;

use roce_wire::{
    Aeth, Bth, Credits, Headers, KnownOpcode, MacAddr, OuterHeaders, Psn, Qpn, Reth, SealError,
    Syndrome, UdpChecksum, opcode, seal,
};

/// Writes a pcap file of at least `packets` packets; returns how many.
///
/// # Errors
/// The writer's reason.
pub fn write_capture(into: &mut impl Write, packets: u64) -> io::Result<u64> {
    into.write_all(&FILE_HEADER.map(u32::to_le_bytes).concat())?;
    let mut capture = Capture { into, written: 0, frame: vec![0; 2048] };
    let mut connections: Vec<Connection> = (0..CONNECTIONS).map(Connection::new).collect();
    while capture.written < packets {
        for connection in &mut connections {
            connection.write_message(&mut capture)?;
            // As many short packets as there were long ones.
            for _ in 0..(LONG - SHORT_BESIDE_LONG) / 2 {
                connection.small_message(&mut capture)?;
            }
        }
    }
    Ok(capture.written)
}

struct Capture<'w, W> {
    into: &'w mut W,
    written: u64,
    frame: Vec<u8>,
}

impl<W: Write> Capture<'_, W> {
    fn packet(
        &mut self,
        outer: &OuterHeaders,
        headers: &Headers,
        payload_len: usize,
    ) -> io::Result<()> {
        let start = outer.len();
        let segment_len = headers.emit_around(&mut self.frame[start..], payload_len);
        let frame = &mut self.frame[..start + segment_len];
        let identification = self.written as u16;
        let sealed = seal(outer, identification, frame, segment_len, UdpChecksum::Zero);
        sealed.map_err(|error: SealError| io::Error::other(error))?;
        // A packet every two microseconds.
        let micros = 2 * self.written;
        let (seconds, micros) = (1_700_000_000 + micros / 1_000_000, micros % 1_000_000);
        let len = frame.len() as u32;
        let header = [seconds as u32, micros as u32, len, len];
        self.into.write_all(&header.map(u32::to_le_bytes).concat())?;
        self.into.write_all(frame)?;
        self.written += 1;
        Ok(())
    }
}

/// A requester and a responder.
struct Connection {
    there: OuterHeaders,
    back: OuterHeaders,
    requester: Qpn,
    responder: Qpn,
    psn: Psn,
    msn: u32,
}

impl Connection {
    fn new(number: u32) -> Self {
        let [a, b]: [IpAddr; 2] = [[10, 9, 0, 1].into(), [10, 9, 0, 2].into()];
        let (requester, responder) = (Qpn::new(0x11 + number), Qpn::new(0x81 + number));
        let (requester, responder) = (requester.unwrap_or(Qpn::GSI), responder.unwrap_or(Qpn::GSI));
        let outer = |source, destination| OuterHeaders {
            source_mac: MacAddr([2, 0, 0, 0, 0, 1]),
            destination_mac: MacAddr([2, 0, 0, 0, 0, 2]),
            source_port: roce_wire::source_port_for(requester, responder, 0),
            ..OuterHeaders::new(source, destination)
        };
        Self {
            there: outer(a, b),
            back: outer(b, a),
            requester,
            responder,
            psn: Psn::wrapping(number.wrapping_mul(0x0123_4567)),
            msn: 0,
        }
    }

    fn request(
        &mut self,
        capture: &mut Capture<'_, impl Write>,
        opcode: KnownOpcode,
        payload_len: usize,
        ack_request: bool,
    ) -> io::Result<()> {
        let bth = Bth { ack_request, ..Bth::new(opcode, self.responder, self.psn) };
        let reth = Reth { addr: 0x7f00_0000_0000, rkey: 0x1234, len: (LONG * LONG_LEN) as u32 };
        let is_first = opcode == opcode::RC_WRITE_FIRST;
        let headers = Headers { reth: is_first.then_some(reth), ..Headers::new(bth) };
        capture.packet(&self.there, &headers, payload_len)?;
        self.psn = self.psn.advanced_by(1);
        Ok(())
    }

    fn answer(&mut self, capture: &mut Capture<'_, impl Write>) -> io::Result<()> {
        let bth = Bth::new(opcode::RC_ACKNOWLEDGE, self.requester, self.psn.previous());
        let syndrome = Syndrome::Ack { credits: Credits::UNLIMITED };
        let headers = Headers { aeth: Some(Aeth { syndrome, msn: self.msn }), ..Headers::new(bth) };
        capture.packet(&self.back, &headers, 0)
    }

    /// A WRITE of [`LONG`] packets, with an answer after every eighth.
    fn write_message(&mut self, capture: &mut Capture<'_, impl Write>) -> io::Result<()> {
        for i in 0..LONG {
            let ack_request = i % ACK_REQ_INTERVAL == ACK_REQ_INTERVAL - 1;
            let opcode = match i {
                0 => opcode::RC_WRITE_FIRST,
                i if i == LONG - 1 => opcode::RC_WRITE_LAST,
                _ => opcode::RC_WRITE_MIDDLE,
            };
            self.request(capture, opcode, LONG_LEN, ack_request)?;
            if i == LONG - 1 {
                // Only a whole message counts.
                self.msn = (self.msn + 1) & 0xff_ffff;
            }
            if ack_request {
                self.answer(capture)?;
            }
        }
        Ok(())
    }

    fn small_message(&mut self, capture: &mut Capture<'_, impl Write>) -> io::Result<()> {
        self.msn = (self.msn + 1) & 0xff_ffff;
        self.request(capture, opcode::RC_SEND_ONLY, SHORT_LEN, true)?;
        self.answer(capture)
    }
}

/// pcap, microseconds, Ethernet.
const FILE_HEADER: [u32; 6] = [0xa1b2_c3d4, 0x0004_0002, 0, 0, 65_535, 1];
const CONNECTIONS: u32 = 8;
/// Packets of 1 KiB in a message, and how many of them ask for an answer.
const LONG: usize = 64;
const LONG_LEN: usize = 1024;
const ACK_REQ_INTERVAL: usize = 8;
const SHORT_BESIDE_LONG: usize = LONG / ACK_REQ_INTERVAL;
/// With all its headers a small SEND has 90 bytes.
const SHORT_LEN: usize = 32;
