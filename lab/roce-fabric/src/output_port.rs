//! One port's output: a queue per class, their order, and what is paused.

use std::collections::VecDeque;
use std::time::Duration;

use roce_wire::PfcFrame;

use crate::Instant;
use crate::{CLASSES, SwitchFrame};

/// How a class shares its port with the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClassScheduling {
    /// Before all weighted classes, and before strict classes of lower number.
    Strict,
    /// Deficit weighted round robin: a share of what strict classes leave, in proportion to this
    /// weight; 0 counts as 1.
    Weighted(u32),
}

impl ClassScheduling {
    /// Classes 6 (CNPs) and 7 strict, the others with weight 1.
    pub const DEFAULT: [Self; CLASSES] = {
        let mut all = [Self::Weighted(1); CLASSES];
        all[6] = Self::Strict;
        all[7] = Self::Strict;
        all
    };
}

/// Queues of a port towards one link.
#[derive(Debug)]
pub(crate) struct OutputPort<F> {
    queues: [Queue<F>; CLASSES],
    scheduling: [ClassScheduling; CLASSES],
    /// Weighted class whose turn it is.
    turn: usize,
    bits_per_sec: u64,
    frames: usize,
}

#[derive(Debug)]
struct Queue<F> {
    frames: VecDeque<(F, usize)>,
    bytes: u64,
    deficit: u64,
    paused_until: Option<Instant>,
    /// Start of the present pause, or of waiting in it.
    paused_since: Instant,
    /// The watchdog ignores pauses of the class until this pause ends.
    ignores_pauses: bool,
}

impl<F> Default for Queue<F> {
    fn default() -> Self {
        Self {
            frames: VecDeque::new(),
            bytes: 0,
            deficit: 0,
            paused_until: None,
            paused_since: Instant::START,
            ignores_pauses: false,
        }
    }
}

impl<F: SwitchFrame> OutputPort<F> {
    pub(crate) fn new(bits_per_sec: u64, scheduling: [ClassScheduling; CLASSES]) -> Self {
        let queues = std::array::from_fn(|_| Queue::default());
        Self { queues, scheduling, turn: 0, bits_per_sec, frames: 0 }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.frames == 0
    }

    pub(crate) fn bytes(&self, class: usize) -> u64 {
        self.queues[class].bytes
    }

    /// Queues a frame that came in by port `ingress`.
    pub(crate) fn push(&mut self, now: Instant, class: usize, frame: F, ingress: usize) {
        let queue = &mut self.queues[class];
        if queue.frames.is_empty() {
            queue.paused_since = queue.paused_since.max(now);
        }
        queue.bytes += frame.len();
        queue.frames.push_back((frame, ingress));
        self.frames += 1;
    }

    /// Takes the frame that leaves next, with the port that it came in by and its class.
    pub(crate) fn pop(&mut self, now: Instant) -> Option<(F, usize, usize)> {
        if self.frames == 0 {
            return None;
        }
        for class in (0..CLASSES).rev() {
            if self.scheduling[class] == ClassScheduling::Strict && self.may_send(now, class) {
                return self.take(now, class);
            }
        }
        let ready = |class: usize| {
            matches!(self.scheduling[class], ClassScheduling::Weighted(_))
                && self.may_send(now, class)
        };
        let ready: [bool; CLASSES] = std::array::from_fn(ready);
        if !ready.contains(&true) {
            return None;
        }
        // Every round adds to the deficit of a ready class, so one of them reaches its frame.
        loop {
            let class = self.turn;
            if ready[class] {
                let queue = &self.queues[class];
                if queue.frames.front().is_some_and(|(frame, _)| frame.len() <= queue.deficit) {
                    return self.take(now, class);
                }
            }
            self.turn = (self.turn + 1) % CLASSES;
            if let (true, ClassScheduling::Weighted(weight)) =
                (ready[self.turn], self.scheduling[self.turn])
            {
                self.queues[self.turn].deficit += u64::from(weight.max(1)) * QUANTUM_BYTES;
            }
        }
    }

    /// Takes all frames of a class.
    pub(crate) fn flush(&mut self, class: usize) -> impl Iterator<Item = (F, usize)> {
        let queue = &mut self.queues[class];
        queue.bytes = 0;
        queue.deficit = 0;
        self.frames -= queue.frames.len();
        std::mem::take(&mut queue.frames).into_iter()
    }

    /// Applies a pause frame of the other end. Returns the classes that were not paused and now
    /// are, as a bit mask.
    pub(crate) fn pause(&mut self, now: Instant, pause: &PfcFrame) -> u8 {
        let mut newly = 0;
        for class in 0..CLASSES {
            let Some(quanta) = pause.quanta(class as u8) else { continue };
            let queue = &mut self.queues[class];
            if quanta == 0 {
                queue.paused_until = None;
                queue.ignores_pauses = false;
                continue;
            }
            if queue.paused_until.is_none_or(|until| until <= now) {
                queue.ignores_pauses = false;
                newly |= 1 << class;
                queue.paused_since = now;
            }
            queue.paused_until = Some(now + PfcFrame::duration(quanta, self.bits_per_sec));
        }
        newly
    }

    pub(crate) fn is_paused(&self, now: Instant, class: usize) -> bool {
        let queue = &self.queues[class];
        !queue.ignores_pauses && queue.paused_until.is_some_and(|until| now < until)
    }

    /// Returns true if the watchdog ignores pauses of the class.
    pub(crate) fn ignores_pauses(&self, class: usize) -> bool {
        self.queues[class].ignores_pauses
    }

    /// Returns when the next pause ends.
    pub(crate) fn next_resume(&self) -> Option<Instant> {
        self.queues.iter().filter_map(|queue| queue.paused_until).min()
    }

    /// Returns the earliest time at which [`expire`](Self::expire) can find a queue.
    pub(crate) fn next_expiry(&self, limit: Duration) -> Option<Instant> {
        let paused = self
            .queues
            .iter()
            .filter(|queue| queue.paused_until.is_some() && !queue.ignores_pauses);
        paused.map(|queue| queue.paused_since + limit).min()
    }

    /// Ends pauses whose time is over.
    pub(crate) fn end_pauses(&mut self, now: Instant) {
        for queue in &mut self.queues {
            if queue.paused_until.is_some_and(|until| until <= now) {
                queue.paused_until = None;
                queue.ignores_pauses = false;
            }
        }
    }

    /// Returns the classes whose frames have waited for `limit` in one pause, and ignores pauses
    /// of them from now on, until the other end resumes the class or its pause ends.
    pub(crate) fn expire(&mut self, now: Instant, limit: Duration) -> Vec<usize> {
        let mut expired = Vec::new();
        for (class, queue) in self.queues.iter_mut().enumerate() {
            let paused = queue.paused_until.is_some_and(|until| now < until);
            if !paused || queue.ignores_pauses || queue.paused_since + limit > now {
                continue;
            }
            if queue.frames.is_empty() {
                queue.paused_since = now;
                continue;
            }
            queue.ignores_pauses = true;
            expired.push(class);
        }
        expired
    }

    fn may_send(&self, now: Instant, class: usize) -> bool {
        !self.queues[class].frames.is_empty() && !self.is_paused(now, class)
    }

    fn take(&mut self, now: Instant, class: usize) -> Option<(F, usize, usize)> {
        let queue = &mut self.queues[class];
        let (frame, ingress) = queue.frames.pop_front()?;
        queue.bytes -= frame.len();
        queue.deficit = queue.deficit.saturating_sub(frame.len());
        if queue.frames.is_empty() {
            queue.deficit = 0;
        }
        queue.paused_since = queue.paused_since.max(now);
        self.frames -= 1;
        Some((frame, ingress, class))
    }
}

/// Bytes that weight 1 adds to a deficit in each round.
const QUANTUM_BYTES: u64 = 1024;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_frame::TestFrame;
    use roce_wire::MacAddr;

    fn port(scheduling: [ClassScheduling; CLASSES]) -> OutputPort<TestFrame> {
        OutputPort::new(1_000_000_000, scheduling)
    }

    fn drain(port: &mut OutputPort<TestFrame>, frames: usize) -> [u64; CLASSES] {
        let mut bytes = [0; CLASSES];
        for _ in 0..frames {
            let (frame, _, class) = port.pop(Instant::START).expect("frames wait");
            bytes[class] += frame.len();
        }
        bytes
    }

    #[test]
    fn weighted_classes_share_the_port_by_bytes_in_proportion_to_their_weights() {
        let mut scheduling = ClassScheduling::DEFAULT;
        scheduling[3] = ClassScheduling::Weighted(3);
        let mut port = port(scheduling);
        for _ in 0..8000 {
            port.push(Instant::START, 0, TestFrame::new(0, 300), 0);
        }
        for _ in 0..2000 {
            port.push(Instant::START, 3, TestFrame::new(3, 4000), 0);
        }
        let bytes = drain(&mut port, 2000);
        let ratio = bytes[3] as f64 / bytes[0] as f64;
        assert!((2.9..3.1).contains(&ratio), "{bytes:?}");
    }

    #[test]
    fn a_strict_class_leaves_before_all_weighted_classes() {
        let mut port = port(ClassScheduling::DEFAULT);
        for class in [0, 6, 3, 7, 6] {
            port.push(Instant::START, class, TestFrame::new(class, 100), 0);
        }
        let order: Vec<_> =
            std::iter::from_fn(|| port.pop(Instant::START)).map(|it| it.2).collect();
        assert_eq!(order[..3], [7, 6, 6]);
        assert!(port.is_empty());
    }

    #[test]
    fn a_pause_stops_only_its_class_and_ends_by_itself() {
        let mut port = port(ClassScheduling::DEFAULT);
        port.push(Instant::START, 3, TestFrame::new(3, 100), 0);
        port.push(Instant::START, 0, TestFrame::new(0, 100), 0);
        let pause = PfcFrame::new(MacAddr::default()).with(3, 2);
        assert_eq!(port.pause(Instant::START, &pause), 1 << 3);
        assert_eq!(port.pause(Instant::START, &pause), 0);
        assert_eq!(port.pop(Instant::START).unwrap().2, 0);
        assert!(port.pop(Instant::from_nanos(1023)).is_none());
        assert_eq!(port.next_resume(), Some(Instant::from_nanos(1024)));
        assert_eq!(port.pop(Instant::from_nanos(1024)).unwrap().2, 3);
    }
}
