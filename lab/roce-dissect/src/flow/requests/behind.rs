//! Requests that were captured before the responder got to them: packets behind a gap, and those
//! before a NAK that asks for an earlier one.
//!
//! Whether the responder kept or dropped them shows later. If they are sent again, it dropped them;
//! if it acknowledges them, or the requester goes on behind them, it kept them.

use std::collections::VecDeque;

/// The packets from the expected PSN on.
#[derive(Clone, Debug, Default)]
pub(super) struct Behind {
    packets: VecDeque<Entry>,
    /// Number of packets that were seen, up to the first that was not.
    leading: u32,
}

/// One PSN: payload bytes in the low bits, and flags.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Entry(u16);

impl Entry {
    const BYTES: u16 = 0x1fff;
    /// The packet ends a message.
    const ENDS: u16 = 1 << 13;
    /// The packet was captured, and the responder has not asked for it since.
    const SEEN: u16 = 1 << 14;
    /// The packet was counted when it was in sequence; its other facts are unknown.
    const COUNTED: u16 = 1 << 15;

    const fn has(self, flag: u16) -> bool {
        self.0 & flag != 0
    }
}

/// What the responder got with packets that it kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Taken {
    /// Payload bytes that were not counted before.
    pub(super) bytes: u64,
    /// Messages that were not counted before.
    pub(super) messages: u32,
    /// The number of messages is unknown, as some were counted before.
    pub(super) is_uncertain: bool,
    /// The capture lacks some of the packets.
    pub(super) has_missed: bool,
    /// The last packet ends a message.
    pub(super) ends: bool,
}

impl Behind {
    pub(super) fn clear(&mut self) {
        self.packets.clear();
        self.leading = 0;
    }

    /// Returns the number of packets from the expected one on that were seen without a gap.
    pub(super) const fn leading(&self) -> u32 {
        self.leading
    }

    /// Returns true if the expected packet was counted before a NAK asked for it.
    pub(super) fn is_counted(&self) -> bool {
        self.packets.front().is_some_and(|entry| entry.has(Entry::COUNTED))
    }

    /// Returns the number of packets missing from the first missing one on, of which the packet
    /// `ahead` of the expected one is the next that was seen.
    pub(super) fn missing(&self, ahead: u32) -> u32 {
        let from = self.leading as usize;
        let rest = self.packets.iter().skip(from).position(|entry| entry.has(Entry::SEEN));
        let until_packet = ahead.saturating_sub(self.leading);
        rest.map_or(until_packet, |rest| until_packet.min(rest as u32))
    }

    /// Notes a packet `ahead` of the expected one, with `psns` PSNs.
    pub(super) fn insert(&mut self, ahead: u32, psns: u32, bytes: usize, ends: bool) {
        for at in ahead..ahead.saturating_add(psns).min(MAX_PACKETS) {
            let at = at as usize;
            if self.packets.len() <= at {
                self.packets.resize(at + 1, Entry::default());
            }
            let mut entry = Entry(Entry::SEEN | self.packets[at].0 & Entry::COUNTED);
            if at == ahead as usize {
                entry.0 |= bytes.min(Entry::BYTES.into()) as u16;
            }
            if ends && at + 1 == (ahead + psns) as usize {
                entry.0 |= Entry::ENDS;
            }
            self.packets[at] = entry;
        }
        self.extend_leading();
    }

    /// Removes the first `psns` packets: the responder has them.
    pub(super) fn take(&mut self, psns: u32) -> Taken {
        let known = (psns as usize).min(self.packets.len());
        let mut taken = Taken { has_missed: known < psns as usize, ..Taken::default() };
        for entry in self.packets.drain(..known) {
            let is_counted = entry.has(Entry::COUNTED);
            taken.is_uncertain |= is_counted;
            taken.has_missed |= !is_counted && !entry.has(Entry::SEEN);
            taken.ends = entry.has(Entry::ENDS);
            if !is_counted && entry.has(Entry::SEEN) {
                taken.bytes += u64::from(entry.0 & Entry::BYTES);
                taken.messages += u32::from(taken.ends);
            }
        }
        taken.ends &= !taken.has_missed;
        self.leading = self.leading.saturating_sub(psns);
        self.extend_leading();
        taken
    }

    /// Goes back by `psns` packets, which were counted; the first is missing at the responder.
    pub(super) fn go_back(&mut self, psns: u32) {
        let kept = psns.min(MAX_PACKETS);
        self.packets.truncate((MAX_PACKETS - kept) as usize);
        if kept < psns {
            self.packets.clear();
        }
        for _ in 0..kept {
            self.packets.push_front(Entry(Entry::COUNTED | Entry::SEEN));
        }
        self.leading = 0;
        self.mark_missing(0, 1);
    }

    /// Notes that the responder misses `psns` packets, `ahead` of the expected one.
    pub(super) fn mark_missing(&mut self, ahead: u32, psns: u32) {
        for entry in self.packets.iter_mut().skip(ahead as usize).take(psns as usize) {
            // Its payload counts when it is sent again.
            entry.0 &= Entry::COUNTED;
        }
        self.leading = self.leading.min(ahead);
        self.extend_leading();
    }

    fn extend_leading(&mut self) {
        let seen = self.packets.iter().skip(self.leading as usize);
        self.leading += seen.take_while(|entry| entry.has(Entry::SEEN)).count() as u32;
    }
}

/// Maximum number of packets noted: 32 MiB of the longest payloads, in 16 KiB of memory.
const MAX_PACKETS: u32 = 8192;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kept_packets_count_once_and_only_what_was_not_counted_before() {
        let mut behind = Behind::default();
        behind.insert(1, 1, 100, false);
        behind.insert(2, 1, 20, true);
        assert_eq!((behind.leading(), behind.missing(5)), (0, 1));
        behind.go_back(2);
        assert_eq!(behind.leading(), 0);
        assert!(behind.is_counted());
        let taken = behind.take(5);
        let all = Taken { bytes: 120, messages: 1, is_uncertain: true, ..taken };
        assert_eq!((taken, taken.has_missed, taken.ends), (all, true, false), "2 was never seen");
    }

    #[test]
    fn what_is_noted_is_bounded_whatever_is_inserted() {
        let mut behind = Behind::default();
        behind.insert(MAX_PACKETS - 1, 1 << 20, 4096, true);
        behind.insert(1 << 18, 1, 4096, true);
        behind.insert(u32::MAX, u32::MAX, 9000, true);
        assert_eq!(behind.packets.len(), MAX_PACKETS as usize);
        behind.go_back(1 << 18);
        behind.go_back(3);
        assert_eq!(behind.packets.len(), MAX_PACKETS as usize);
        assert!(behind.packets.capacity() <= MAX_PACKETS as usize);
        assert!(behind.take(1 << 18).has_missed);
    }

    #[test]
    fn a_read_takes_all_its_psns_and_ends_with_the_last() {
        let mut behind = Behind::default();
        behind.insert(1, 3, 0, true);
        behind.insert(0, 1, 7, true);
        assert_eq!(behind.leading(), 4);
        assert!(!behind.take(3).ends);
        let rest = behind.take(1);
        assert_eq!((rest.messages, rest.ends), (1, true));
    }
}
