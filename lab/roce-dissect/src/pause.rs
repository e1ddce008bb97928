//! Ethernet pause frames: 802.3 and, by priority, 802.1Qbb.

use roce_wire::{Layer, LenError};

use crate::link::Link;
use crate::{Finding, Pause, PauseKind};

/// Parses a MAC control frame and adds errors to `findings`; `None` for a broken one.
pub(crate) fn parse(frame: &[u8], link: &Link, findings: &mut Vec<Finding>) -> Option<Pause> {
    let bytes = &frame[link.len..];
    let kind = match bytes {
        [0x00, 0x01, q0, q1, ..] => PauseKind::All { quanta: u16::from_be_bytes([*q0, *q1]) },
        [0x01, 0x01, reserved, enabled, times @ ..] if times.len() >= PRIORITY_TIMES_LEN => {
            if *reserved != 0 {
                let (place, value) = ("PFC class-enable vector", u32::from(*reserved));
                findings.push(Finding::ReservedBits { place, value });
            }
            let mut quanta = [0; 8];
            for (quanta, time) in quanta.iter_mut().zip(times.chunks_exact(2)) {
                *quanta = u16::from_be_bytes([time[0], time[1]]);
            }
            PauseKind::Priority { enabled: *enabled, quanta }
        }
        [0x00 | 0x01, 0x01, ..] | [] | [_] => {
            let need = if bytes.first() == Some(&1) { 4 + PRIORITY_TIMES_LEN } else { 4 };
            let short = LenError::new(Layer::Ethernet, need, bytes.len()).beneath(link.len);
            findings.push(Finding::Wire(short.into()));
            return None;
        }
        [o0, o1, ..] => PauseKind::Unknown { opcode: u16::from_be_bytes([*o0, *o1]) },
    };
    Some(Pause { source: link.source, offset: link.len, kind })
}

/// Bytes of eight pause times, one for each priority.
const PRIORITY_TIMES_LEN: usize = 16;
