//! Pauses of the link: what its other end must not be sent for a time.

use roce_transport::{Endpoint, Instant, Observer, TransmitQueue};
use roce_wire::{PFC_PRIORITIES, PfcFrame};

use super::transmit_queues::FIRST_PAUSED_QUEUE;

/// Classes that the other end of the link has paused by frames of IEEE 802.1Qbb or 802.3x.
///
/// The class of a packet is the upper three bits of its DSCP. While a class is paused, its packets
/// have a transmit queue of their own, which is suspended. Where the rate of the link is not known no
/// pause has a duration, and all are ignored: on a link in software any neighbour can send some.
#[derive(Debug, Default)]
pub(super) struct LinkPauses {
    /// End of each class's pause.
    until: [Instant; PFC_PRIORITIES],
    /// Paused classes, a bit each.
    paused: u8,
    /// Rate of the link, if it is known.
    bits_per_sec: Option<u64>,
    received: u64,
    ignored: u64,
}

impl LinkPauses {
    pub(super) fn set_rate(&mut self, bits_per_sec: Option<u64>) {
        self.bits_per_sec = bits_per_sec;
    }

    /// Returns true if a class is paused.
    #[inline]
    pub(super) fn any(&self) -> bool {
        self.paused != 0
    }

    /// Pauses and resumes what the frame says.
    pub(super) fn apply(
        &mut self,
        now: Instant,
        pause: &PfcFrame,
        endpoint: &mut Endpoint<impl Observer>,
    ) {
        self.received += 1;
        let Some(bits_per_sec) = self.bits_per_sec else {
            self.ignored += 1;
            return;
        };
        for class in 0..PFC_PRIORITIES {
            match pause.quanta(class as u8) {
                None => {}
                Some(0) => self.resume(class, endpoint),
                Some(quanta) => {
                    self.until[class] = now + PfcFrame::duration(quanta, bits_per_sec);
                    self.paused |= 1 << class;
                    endpoint.suspend_transmit(queue(class));
                }
            }
        }
    }

    /// Ends the pauses whose time is over.
    #[cold]
    pub(super) fn end_due(&mut self, now: Instant, endpoint: &mut Endpoint<impl Observer>) {
        for class in 0..PFC_PRIORITIES {
            if self.is_paused(class) && self.until[class] <= now {
                self.resume(class, endpoint);
            }
        }
    }

    /// Returns when the next pause ends.
    #[inline]
    pub(super) fn next_end(&self) -> Option<Instant> {
        if !self.any() {
            return None;
        }
        (0..PFC_PRIORITIES).filter(|class| self.is_paused(*class)).map(|it| self.until[it]).min()
    }

    /// Returns the queue of packets with this traffic class, if their class is paused.
    #[inline]
    pub(super) fn queue_of(&self, traffic_class: u8) -> Option<TransmitQueue> {
        let class = usize::from(traffic_class >> 5);
        self.is_paused(class).then(|| queue(class))
    }

    /// Returns the numbers of pause frames received and ignored, each under its name, if there were any.
    pub(super) fn counters(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let all = [("rcvd_pause_frames", self.received), ("ignored_pause_frames", self.ignored)];
        all.into_iter().filter(|(_, count)| *count > 0)
    }

    #[inline]
    fn is_paused(&self, class: usize) -> bool {
        self.paused & 1 << class != 0
    }

    fn resume(&mut self, class: usize, endpoint: &mut Endpoint<impl Observer>) {
        self.paused &= !(1 << class);
        endpoint.resume_transmit(queue(class));
    }
}

#[inline]
fn queue(class: usize) -> TransmitQueue {
    TransmitQueue(FIRST_PAUSED_QUEUE.0 + class as u8)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use roce_transport::EndpointConfig;
    use roce_wire::MacAddr;

    use super::*;

    const THREE: u8 = 3 << 5;
    const FOUR: u8 = 4 << 5;

    /// Pauses of a link with quanta of 1 µs.
    fn pauses() -> (LinkPauses, Endpoint) {
        let mut pauses = LinkPauses::default();
        pauses.set_rate(Some(512_000_000));
        (pauses, Endpoint::new(EndpointConfig::default()))
    }

    fn at(micros: u64) -> Instant {
        Instant::default() + Duration::from_micros(micros)
    }

    #[test]
    fn a_pause_lasts_for_its_quanta_unless_it_is_renewed_or_resumed() {
        let (mut pauses, mut endpoint) = pauses();
        let frame = |class, quanta| PfcFrame::new(MacAddr::default()).with(class, quanta);
        assert_eq!((pauses.next_end(), pauses.counters().count()), (None, 0));
        pauses.apply(at(0), &frame(3, 10).with(4, 30), &mut endpoint);
        assert_eq!(pauses.next_end(), Some(at(10)));
        pauses.apply(at(5), &frame(3, 10), &mut endpoint);
        assert_eq!(pauses.next_end(), Some(at(15)));
        pauses.end_due(at(14), &mut endpoint);
        assert!(pauses.queue_of(THREE).is_some());
        pauses.end_due(at(15), &mut endpoint);
        assert_eq!((pauses.queue_of(THREE), pauses.next_end()), (None, Some(at(30))));
        assert!(pauses.queue_of(FOUR | 0x1f).is_some());
        pauses.apply(at(16), &frame(4, 0), &mut endpoint);
        assert!(!pauses.any() && pauses.queue_of(FOUR).is_none());
        assert!(pauses.counters().eq([("rcvd_pause_frames", 3)]));
    }

    #[test]
    fn pauses_of_a_link_of_unknown_rate_are_counted_and_ignored() {
        let (mut pauses, mut endpoint) = pauses();
        pauses.set_rate(None);
        let pause = PfcFrame::new(MacAddr::default()).with(3, u16::MAX);
        pauses.apply(at(0), &pause, &mut endpoint);
        assert!(!pauses.any() && pauses.queue_of(THREE).is_none());
        assert!(pauses.counters().eq([("rcvd_pause_frames", 1), ("ignored_pause_frames", 1)]));
    }
}
