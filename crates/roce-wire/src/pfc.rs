//! Priority-based flow control (PFC, IEEE 802.1Qbb): the pause frame of Ethernet.

use core::time::Duration;

use crate::{MacAddr, link::ETHERNET_LEN};

/// A PFC frame: which priorities of the sender's link pause, and for how long.
///
/// A frame changes only the priorities that it enables. A time of 0 resumes a priority.
///
/// ```
/// use roce_wire::{MacAddr, PfcFrame};
/// use std::time::Duration;
///
/// let pause = PfcFrame::new(MacAddr([2, 0, 0, 0, 0, 1])).with(3, u16::MAX);
/// let received = PfcFrame::parse(&pause.to_bytes()).unwrap();
/// assert_eq!(received.quanta(3), Some(u16::MAX));
/// assert_eq!(received.quanta(4), None);
/// assert_eq!(PfcFrame::duration(100, 1_000_000_000), Duration::from_nanos(51_200));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PfcFrame {
    source: MacAddr,
    enabled: u8,
    quanta: [u16; PFC_PRIORITIES],
}

/// Reason why a frame is not a PFC frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PfcError {
    /// The frame ends before its last pause time.
    #[error("a PFC frame needs {PFC_FIELDS_LEN} bytes, {have} left")]
    Short {
        /// Bytes of the frame.
        have: usize,
    },
    /// The destination is not 01:80:c2:00:00:01.
    #[error("destination {0} is not the address of MAC control frames")]
    Destination(MacAddr),
    /// The EtherType is not 0x8808.
    #[error("EtherType {0:#06x} is not MAC control")]
    EtherType(u16),
    /// Another MAC control opcode, for example 0x0001, the PAUSE of all priorities.
    #[error("MAC control opcode {0:#06x} is not PFC")]
    Opcode(u16),
}

impl PfcFrame {
    /// Creates a frame that changes no priority.
    pub const fn new(source: MacAddr) -> Self {
        Self { source, enabled: 0, quanta: [0; PFC_PRIORITIES] }
    }

    /// Returns the frame with a pause of `priority` of that many quanta; 0 resumes it. One quantum
    /// is the time of 512 bits on the link.
    ///
    /// # Panics
    /// If `priority` is above 7.
    #[must_use]
    pub const fn with(mut self, priority: u8, quanta: u16) -> Self {
        assert!((priority as usize) < PFC_PRIORITIES, "a priority lies between 0 and 7");
        self.enabled |= 1 << priority;
        self.quanta[priority as usize] = quanta;
        self
    }

    /// Returns the pause of `priority` in quanta; `None` if the frame does not change this priority.
    pub const fn quanta(&self, priority: u8) -> Option<u16> {
        if (priority as usize) < PFC_PRIORITIES && self.enabled & 1 << priority != 0 {
            Some(self.quanta[priority as usize])
        } else {
            None
        }
    }

    /// Returns the address of the port that sent the frame.
    pub const fn source(&self) -> MacAddr {
        self.source
    }

    /// Returns the duration of that many quanta on a link of `bits_per_sec`, rounded down to
    /// nanoseconds; the longest duration if the rate is 0.
    //= rule wire-pfc-quantum: IEEE 802.3 annex 31B
    //# A pause quantum is the time of 512 bits.
    pub fn duration(quanta: u16, bits_per_sec: u64) -> Duration {
        let bits = u64::from(quanta) * QUANTUM_BITS;
        match (bits * 1_000_000_000).checked_div(bits_per_sec) {
            Some(nanos) => Duration::from_nanos(nanos),
            None => Duration::MAX,
        }
    }

    /// Returns the frame, padded to the smallest length of Ethernet, without its FCS.
    //= rule wire-pfc: IEEE 802.1Qbb
    //# Layout of a priority flow control frame.
    pub fn to_bytes(&self) -> [u8; PFC_FRAME_LEN] {
        let mut bytes = [0; PFC_FRAME_LEN];
        bytes[..6].copy_from_slice(&DESTINATION.0);
        bytes[6..12].copy_from_slice(&self.source.0);
        bytes[12..14].copy_from_slice(&MAC_CONTROL.to_be_bytes());
        bytes[14..16].copy_from_slice(&OPCODE.to_be_bytes());
        bytes[17] = self.enabled;
        for (place, quanta) in bytes[TIMES_AT..PFC_FIELDS_LEN].chunks_exact_mut(2).zip(self.quanta)
        {
            place.copy_from_slice(&quanta.to_be_bytes());
        }
        bytes
    }

    /// Parses an Ethernet frame. Pause times of priorities that the frame does not enable, the
    /// reserved bits of the enable vector, and padding are ignored.
    ///
    /// # Errors
    /// [`PfcError`] names the field that is not one of a PFC frame.
    pub fn parse(frame: &[u8]) -> Result<Self, PfcError> {
        let have = frame.len();
        let fields: &[u8; PFC_FIELDS_LEN] = frame.first_chunk().ok_or(PfcError::Short { have })?;
        let (ethernet, control) = fields.split_at(ETHERNET_LEN);
        let [d0, d1, d2, d3, d4, d5, s0, s1, s2, s3, s4, s5, t0, t1] = *ethernet else {
            return Err(PfcError::Short { have });
        };
        let destination = MacAddr([d0, d1, d2, d3, d4, d5]);
        if destination != DESTINATION {
            return Err(PfcError::Destination(destination));
        }
        let ether_type = u16::from_be_bytes([t0, t1]);
        if ether_type != MAC_CONTROL {
            return Err(PfcError::EtherType(ether_type));
        }
        let opcode = u16::from_be_bytes([control[0], control[1]]);
        if opcode != OPCODE {
            return Err(PfcError::Opcode(opcode));
        }
        let mut pause = Self::new(MacAddr([s0, s1, s2, s3, s4, s5]));
        pause.enabled = control[3];
        for (priority, time) in control[4..].chunks_exact(2).enumerate() {
            if pause.enabled & 1 << priority != 0 {
                pause.quanta[priority] = u16::from_be_bytes([time[0], time[1]]);
            }
        }
        Ok(pause)
    }

    /// Parses an Ethernet frame that pauses a link: a PFC frame, or the PAUSE of IEEE 802.3x, which is
    /// one for all priorities.
    ///
    /// # Errors
    /// As [`parse`](Self::parse).
    pub fn parse_any(frame: &[u8]) -> Result<Self, PfcError> {
        match (Self::parse(frame), frame.get(PAUSE_TIME_AT..PAUSE_TIME_AT + 2)) {
            (Err(PfcError::Opcode(PAUSE_OPCODE)), Some(&[high, low])) => {
                let quanta = [u16::from_be_bytes([high, low]); PFC_PRIORITIES];
                let source = frame.get(6..12).and_then(|bytes| bytes.try_into().ok());
                Ok(Self { source: MacAddr(source.unwrap_or_default()), enabled: u8::MAX, quanta })
            }
            (parsed, _) => parsed,
        }
    }
}

/// Number of priorities of a link.
pub const PFC_PRIORITIES: usize = 8;

/// Length of a PFC frame in bytes, without its FCS.
pub const PFC_FRAME_LEN: usize = 60;

/// Group address of MAC control frames, which no bridge forwards.
const DESTINATION: MacAddr = MacAddr([0x01, 0x80, 0xc2, 0, 0, 0x01]);
const MAC_CONTROL: u16 = 0x8808;
const OPCODE: u16 = 0x0101;
/// Opcode of the PAUSE of IEEE 802.3x, and the offset of its only time.
const PAUSE_OPCODE: u16 = 0x0001;
const PAUSE_TIME_AT: usize = ETHERNET_LEN + 2;
const TIMES_AT: usize = ETHERNET_LEN + 4;
const PFC_FIELDS_LEN: usize = TIMES_AT + 2 * PFC_PRIORITIES;
const QUANTUM_BITS: u64 = 512;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SOURCE: MacAddr = MacAddr([0x02, 0, 0, 0, 0, 0x2a]);

    fn known() -> [u8; PFC_FRAME_LEN] {
        let mut bytes = [0; PFC_FRAME_LEN];
        let fields = [
            0x01, 0x80, 0xc2, 0x00, 0x00, 0x01, 0x02, 0x00, 0x00, 0x00, 0x00, 0x2a, 0x88, 0x08,
            0x01, 0x01, 0x00, 0x48, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, 0,
        ];
        bytes[..fields.len()].copy_from_slice(&fields);
        bytes
    }

    //= test wire-pfc
    #[test]
    fn a_pause_of_priority_3_and_a_resume_of_priority_6_have_known_bytes() {
        let frame = PfcFrame::new(SOURCE).with(3, 0xffff).with(6, 0);
        assert_eq!(frame.to_bytes(), known());
        assert_eq!(PfcFrame::parse(&known()), Ok(frame));
        assert_eq!(frame.source(), SOURCE);
    }

    //= test wire-pfc-quantum
    #[test]
    fn the_longest_pause_shrinks_with_the_rate_of_the_link() {
        let longest = |gigabits: u64| PfcFrame::duration(u16::MAX, gigabits * 1_000_000_000);
        assert_eq!(longest(1).as_micros(), 33_553);
        assert_eq!(longest(10).as_micros(), 3_355);
        assert_eq!(longest(100).as_micros(), 335);
        assert_eq!(longest(400).as_micros(), 83);
        assert_eq!(PfcFrame::duration(1, 0), Duration::MAX);
    }

    #[test]
    fn a_frame_with_another_address_type_or_opcode_is_refused() {
        let changed = |at: usize, byte: u8| {
            let mut bytes = known();
            bytes[at] = byte;
            PfcFrame::parse(&bytes)
        };
        assert!(matches!(changed(5, 0), Err(PfcError::Destination(_))));
        assert_eq!(changed(13, 9), Err(PfcError::EtherType(0x8809)));
        assert_eq!(changed(14, 0), Err(PfcError::Opcode(1)));
    }

    #[test]
    fn a_pause_of_the_link_pauses_every_priority() {
        let mut bytes = known();
        bytes[14..18].copy_from_slice(&[0, 1, 0x12, 0x34]);
        let pause = PfcFrame::parse_any(&bytes).unwrap();
        assert!((0..8).all(|priority| pause.quanta(priority) == Some(0x1234)));
        assert_eq!(pause.source(), SOURCE);
        assert_eq!(PfcFrame::parse(&bytes), Err(PfcError::Opcode(1)));
        assert_eq!(PfcFrame::parse_any(&known()), PfcFrame::parse(&known()));
        bytes[15] = 2;
        assert_eq!(PfcFrame::parse_any(&bytes), Err(PfcError::Opcode(2)));
    }

    #[test]
    fn every_prefix_without_all_times_is_too_short() {
        let bytes = known();
        for len in 0..bytes.len() {
            let parsed = PfcFrame::parse(&bytes[..len]);
            if len < PFC_FIELDS_LEN {
                assert_eq!(parsed, Err(PfcError::Short { have: len }), "{len} bytes");
            } else {
                assert!(parsed.is_ok(), "{len} bytes");
            }
        }
    }

    #[test]
    fn the_time_of_a_priority_that_is_not_enabled_is_ignored() {
        let mut bytes = known();
        bytes[TIMES_AT] = 0xff; // priority 0
        bytes[16] = 0xff; // reserved half of the enable vector
        assert_eq!(PfcFrame::parse(&bytes), PfcFrame::parse(&known()));
    }

    proptest! {
        #[test]
        fn a_written_frame_is_read_unchanged(source: [u8; 6], times: [Option<u16>; 8]) {
            let mut frame = PfcFrame::new(MacAddr(source));
            for (priority, time) in times.iter().enumerate() {
                if let Some(quanta) = time {
                    frame = frame.with(priority as u8, *quanta);
                }
            }
            prop_assert_eq!(PfcFrame::parse(&frame.to_bytes()), Ok(frame));
            for (priority, time) in times.into_iter().enumerate() {
                prop_assert_eq!(frame.quanta(priority as u8), time);
            }
        }

        #[test]
        fn any_bytes_behind_a_valid_start_are_parsed_or_refused(
            start in 0usize..60, tail in proptest::collection::vec(any::<u8>(), 0..80),
        ) {
            let mut bytes = known()[..start].to_vec();
            bytes.extend(tail);
            if let Ok(frame) = PfcFrame::parse(&bytes) {
                prop_assert_eq!(PfcFrame::parse(&frame.to_bytes()), Ok(frame));
            }
        }
    }
}
