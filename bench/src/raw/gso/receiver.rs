//! The receiving end: takes trains out of the ring, checks each packet and copies it out.

use std::time::{Duration, Instant};

use super::{END, Settings};
use crate::control_channel::ControlChannel;
use crate::measurement_interval::Interval;
use crate::program::Failure;
use crate::raw::crc_tables::CrcTables;
use crate::raw::frame::{self, BTH_LEN, Covered, ICRC_LEN, OUTER_LEN};
use crate::raw::port::Port;
use crate::raw::sys::{Frame, prefetch_to_write};

/// What was received while it was measured.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    /// Payload bits a second, in 10⁹, of packets that were checked and copied.
    pub(super) gbits: f64,
    pub(super) packets: u64,
    /// Packets that were sent and never seen.
    pub(super) dropped: u64,
    pub(super) bad_icrc: u64,
    /// Frames that found the ring full, over the whole run.
    pub(super) ring_full: u32,
    pub(super) seconds: f64,
}

/// Receives until the client says that it has ended.
pub(super) fn receive(
    port: &mut Port,
    control: &mut ControlChannel,
    settings: &Settings,
    memory: &mut [u8],
) -> Result<Counts, Failure> {
    let tables = settings.icrc_tables.then(CrcTables::new);
    let mut sink = Sink { settings, memory, expected: None, seen: Seen::default(), tables };
    let mut interval = Interval::new(settings.seconds);
    let (mut idle, mut last, mut seen_at_last) = (0_u32, Instant::now(), 0);
    loop {
        if port.ring.take(|frame| sink.take(frame)) {
            idle = 0;
            interval.sample(sink.seen);
            continue;
        }
        idle += 1;
        if idle < SPINS_PER_CHECK {
            std::hint::spin_loop();
            continue;
        }
        idle = 0;
        if control.is_readable() {
            let said: String = control.receive()?;
            if said != END {
                return Err(Failure::told(format!("the client says {said:?} where it should end")));
            }
            // All that it sent is in the ring.
            while port.ring.take(|frame| sink.take(frame)) {
                interval.sample(sink.seen);
            }
            break;
        }
        let seen = sink.seen.packets + sink.seen.bad_icrc;
        if seen > seen_at_last {
            (last, seen_at_last) = (Instant::now(), seen);
        } else if last.elapsed() > IDLE_TIMEOUT {
            return Err(Failure::told(
                "no packet comes although the client is there: is the link up, and does its \
                 interface lead here?",
            ));
        }
    }
    let ring_full = port.socket.take_dropped().map_err(Failure::doing("asking what was lost"))?;
    let (from, to, seconds) = interval.ends().ok_or_else(|| {
        Failure::told(if sink.seen.packets == 0 {
            "no packet came although the client has sent: is the link up?"
        } else {
            "the client has ended before the measurement did"
        })
    })?;
    let packets = to.packets - from.packets;
    Ok(Counts {
        gbits: packets as f64 * settings.payload as f64 * 8.0 / seconds / 1e9,
        packets,
        dropped: to.dropped - from.dropped,
        bad_icrc: to.bad_icrc - from.bad_icrc,
        ring_full,
        seconds,
    })
}

/// Counted since the first packet.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    packets: u64,
    dropped: u64,
    bad_icrc: u64,
}

struct Sink<'a> {
    settings: &'a Settings,
    memory: &'a mut [u8],
    expected: Option<u32>,
    seen: Seen,
    tables: Option<CrcTables>,
}

impl Sink<'_> {
    fn take(&mut self, frame: Frame<'_>) {
        let Some((outer, packets)) = frame.bytes.split_first_chunk::<OUTER_LEN>() else { return };
        let (packet_len, payload_len) = (self.settings.packet_len(), self.settings.payload);
        if frame.segment_len.is_some_and(|len| len != packet_len) {
            return;
        }
        let mut covered = Covered::new(outer, packet_len, self.tables.as_ref());
        for (number, packet) in packets.chunks_exact(packet_len).enumerate() {
            let (Some((bth, rest)), Some(psn)) =
                (packet.split_first_chunk::<BTH_LEN>(), frame::psn(packet))
            else {
                return;
            };
            let (body, icrc) = rest.split_at(rest.len() - ICRC_LEN);
            if self.settings.icrc && covered.icrc(number, bth, body).to_le_bytes() != icrc {
                self.seen.bad_icrc += 1;
                continue;
            }
            // Behind the header that says where it goes, where there is one.
            let payload = &body[body.len() - payload_len..];
            let gap = psn.wrapping_sub(self.expected.unwrap_or(psn)) & 0xff_ffff;
            if gap < 1 << 23 {
                self.seen.dropped += u64::from(gap);
            }
            self.expected = Some((psn + 1) & 0xff_ffff);
            let at = (psn as usize * payload_len) & (self.memory.len() - 1);
            if self.settings.fetches_ahead() {
                let next = (at + payload_len) & (self.memory.len() - 1);
                prefetch_to_write(&self.memory[next..next + payload_len]);
            }
            self.memory[at..at + payload_len].copy_from_slice(payload);
            self.seen.packets += 1;
        }
    }
}

/// A few milliseconds.
const SPINS_PER_CHECK: u32 = 100_000;
/// How long a client that is there may send nothing.
const IDLE_TIMEOUT: Duration = Duration::from_secs(20);
