//! How a rank waits for its neighbours: by looking, or by giving its core away.

use std::time::{Duration, Instant};

/// A yield that takes longer has let somebody run: one for nothing takes some 0.3 µs.
const FOR_NOTHING: Duration = Duration::from_nanos(800);
/// How long a rank looks at most between two yields: about what a neighbour takes to receive and to
/// send a message.
const LONGEST_LOOK: Duration = Duration::from_micros(6);
/// First looks in vain, in a row, after which there is none.
const IN_VAIN: u32 = 8;
/// One wait in so many begins with a look all the same.
const TRIED_AGAIN: u32 = 64;
/// Of the others, the yield of one in so many is timed.
const TIMED: u32 = 8;

/// When a rank that has nothing to do looks, and when it yields.
///
/// With more ranks than cores, some of them share one, and within an operation it has to be given
/// from one to the other. Three things are learned from one wait for the next:
///
/// - whether anybody wants the core: a yield tells by how long it takes. Where nobody does, the rank
///   looks and looks, since a message that comes during a yield waits;
/// - whether the first look is in vain: who has just sent something has no answer yet, and the look
///   delays the neighbour whose turn it is;
/// - whether what is waited for comes soon after the neighbours had their turn. Then the rank looks
///   for a while: two that yield to each other with nothing to do take 1 µs a turn, in which a
///   message waits. Where it takes longer, since others have to run first, it yields at once.
///
/// All this is for neighbours that hand the core on after a message. Where others use up whole time
/// slices, a poll of the completion queue blocks by itself, and the rank leaves it at that: see
/// [`roce_verbs::polls_give_way`].
///
/// A sum of one float over three ranks on two cores took 3 to 6 % longer with a yield after every
/// look.
#[derive(Debug)]
pub(crate) struct Waiting {
    core_is_wanted: bool,
    comes_soon: bool,
    /// First looks in vain in a row.
    in_vain: u32,
    /// Waits since the last that began with a look.
    unlooked: u32,
    /// The core was given away in this wait.
    has_yielded: bool,
    /// Since when there was nothing to do after that.
    looking_since: Option<Instant>,
    /// Since when the rank has looked without a yield.
    this_look: Option<Instant>,
}

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Look whether something has come.
    Look,
    /// Give the core away, then look.
    Yield,
}

impl Waiting {
    pub(crate) fn new() -> Self {
        Self {
            core_is_wanted: true,
            comes_soon: true,
            in_vain: 0,
            unlooked: 0,
            has_yielded: false,
            looking_since: None,
            this_look: None,
        }
    }

    /// Whether the yield that a wait begins with is to be timed: one in some is enough, and reading a
    /// clock twice takes as long as a look.
    pub(crate) fn wants_time(&self) -> bool {
        self.unlooked.is_multiple_of(TIMED)
    }

    /// A wait begins.
    pub(crate) fn begin(&mut self) -> Next {
        (self.has_yielded, self.looking_since, self.this_look) = (false, None, None);
        if !self.core_is_wanted || self.in_vain < IN_VAIN || self.unlooked >= TRIED_AGAIN {
            self.unlooked = 0;
            return Next::Look;
        }
        self.unlooked += 1;
        Next::Yield
    }

    /// There was nothing at `now`.
    pub(crate) fn nothing(&mut self, now: Instant) -> Next {
        if !self.has_yielded {
            if self.looking_since.is_none() {
                self.in_vain = self.in_vain.saturating_add(1);
            }
            if self.core_is_wanted {
                return Next::Yield;
            }
        }
        self.looking_since.get_or_insert(now);
        let since = *self.this_look.get_or_insert(now);
        let patience = if self.comes_soon { LONGEST_LOOK } else { Duration::ZERO };
        if now.duration_since(since) < patience { Next::Look } else { Next::Yield }
    }

    /// Gives the core away: a neighbour may be waiting for it. `now`, if it was read.
    pub(crate) fn give_way(&mut self, now: Option<Instant>) {
        let took = now.map(roce_verbs::yield_now);
        if took.is_none() {
            std::thread::yield_now();
        }
        self.yielded(took);
    }

    /// The core was given away for so long, if that is known.
    fn yielded(&mut self, took: Option<Duration>) {
        if let Some(took) = took {
            self.core_is_wanted = took > FOR_NOTHING;
            self.comes_soon |= !self.core_is_wanted;
        }
        (self.has_yielded, self.this_look) = (true, None);
    }

    /// Something has come. `now` is asked only where it matters.
    pub(crate) fn came(&mut self, now: impl FnOnce() -> Instant) {
        if !self.has_yielded && self.looking_since.is_none() {
            self.in_vain = 0;
        }
        if let Some(since) = self.looking_since {
            self.comes_soon = now().saturating_duration_since(since) < LONGEST_LOOK;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BUSY: Duration = Duration::from_micros(5);
    const IDLE: Duration = Duration::from_nanos(300);
    const LOOK: Duration = Duration::from_nanos(100);

    /// One rank, on a core on which a yield takes so long, and what it did in its last wait.
    struct Script {
        waiting: Waiting,
        now: Instant,
        yield_takes: Duration,
        looks: u32,
        yields: u32,
        looked_first: bool,
    }

    impl Script {
        fn new(yield_takes: Duration) -> Self {
            let (waiting, now) = (Waiting::new(), Instant::now());
            Self { waiting, now, yield_takes, looks: 0, yields: 0, looked_first: true }
        }

        fn give_way(&mut self) {
            self.now += self.yield_takes;
            self.yields += 1;
            self.waiting.yielded(Some(self.yield_takes));
        }

        /// Waits for something that comes after `delay`.
        fn wait(&mut self, delay: Duration) {
            let at = self.now + delay;
            (self.looks, self.yields) = (0, 0);
            self.looked_first = self.waiting.begin() == Next::Look;
            if !self.looked_first && self.waiting.wants_time() {
                self.give_way();
            } else if !self.looked_first {
                (self.now, self.yields) = (self.now + self.yield_takes, 1);
                self.waiting.yielded(None);
            }
            loop {
                self.looks += 1;
                self.now += LOOK;
                if self.now >= at {
                    let now = self.now;
                    return self.waiting.came(|| now);
                }
                if self.waiting.nothing(self.now) == Next::Yield {
                    self.give_way();
                }
            }
        }

        fn waits(&mut self, times: u32, delay: Duration) {
            (0..times).for_each(|_| self.wait(delay));
        }
    }

    #[test]
    fn where_nobody_wants_the_core_it_is_hardly_ever_given_away() {
        let mut rank = Script::new(IDLE);
        rank.waits(3, 4 * LONGEST_LOOK);
        assert!(rank.looked_first);
        assert!(rank.yields <= 4, "{}", rank.yields);
        assert!(rank.looks > 200, "{}", rank.looks);
    }

    #[test]
    fn where_somebody_wants_it_it_is_given_away_before_the_first_look_in_vain() {
        let mut rank = Script::new(BUSY);
        rank.waits(IN_VAIN, BUSY + 5 * LOOK);
        assert!(rank.looked_first);
        rank.wait(BUSY + 5 * LOOK);
        assert!(!rank.looked_first);
        assert_eq!(rank.yields, 1, "what comes soon after is looked for");
    }

    #[test]
    fn what_is_there_already_is_found_without_a_yield() {
        let mut rank = Script::new(BUSY);
        rank.waits(100, BUSY);
        let mut looked = 0;
        for _ in 0..4 * TRIED_AGAIN {
            rank.wait(Duration::ZERO);
            looked += u32::from(rank.looked_first);
        }
        assert!(looked > 2 * TRIED_AGAIN, "{looked}");
        assert_eq!((rank.looks, rank.yields), (1, 0));
    }

    #[test]
    fn where_others_have_to_run_first_nobody_looks_twice() {
        let mut rank = Script::new(BUSY);
        rank.waits(3, 10 * BUSY);
        assert!(rank.looks <= rank.yields + 1, "{} {}", rank.looks, rank.yields);
    }

    #[test]
    fn a_core_that_is_free_again_is_kept() {
        let mut rank = Script::new(BUSY);
        rank.waits(20, 10 * BUSY);
        rank.yield_takes = IDLE;
        rank.waits(TIMED + 1, 2 * LONGEST_LOOK);
        assert!(rank.yields <= 2, "{}", rank.yields);
    }

    #[test]
    fn the_first_look_in_vain_is_the_last_before_whoever_wants_the_core_has_it() {
        let mut rank = Script::new(BUSY);
        rank.wait(BUSY + 5 * LOOK);
        assert!(rank.looked_first);
        assert!(rank.looks <= 7 && rank.yields == 1, "{} {}", rank.looks, rank.yields);
    }

    #[test]
    fn of_waits_that_begin_with_a_look_in_vain_there_are_few() {
        let mut rank = Script::new(BUSY);
        // What comes is there as soon as the others had the core.
        rank.waits(IN_VAIN + 1, BUSY);
        let mut looked = 0;
        for _ in 0..4 * TRIED_AGAIN {
            assert_eq!(rank.yields, 1);
            looked += u32::from(rank.looked_first);
            rank.wait(BUSY);
        }
        assert!((2..=4).contains(&looked), "{looked}");
    }

    #[test]
    fn that_a_core_is_free_again_is_noticed_though_every_wait_begins_with_a_yield() {
        let mut rank = Script::new(BUSY);
        rank.waits(IN_VAIN + 1, BUSY);
        rank.yield_takes = IDLE;
        rank.waits(TIMED + 2, IDLE);
        assert!(rank.looked_first);
        assert_eq!(rank.yields, 0, "what comes so soon is looked for");
    }

    #[test]
    fn each_wait_has_its_own_time_to_look() {
        let mut rank = Script::new(IDLE);
        rank.waits(2, 4 * LONGEST_LOOK);
        // What comes soon again is looked for from the next wait on.
        rank.wait(LONGEST_LOOK / 2);
        for _ in 0..20 {
            rank.wait(LONGEST_LOOK / 2);
            assert_eq!((rank.looked_first, rank.yields), (true, 0));
        }
    }
}
