//! Impairment of one direction of a link: scripted for the first frames, random for the rest.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use roce_faults::{
    FaultAction, FaultDirection, FaultRule, PacketFacts, RuleCounter, SeenPacket, Sender, Window,
};

use crate::SplitMix64;

/// What happens to one frame in one direction of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It arrives as sent.
    Pass,
    /// It never arrives.
    Drop,
    /// It arrives, and a copy of it that much later.
    Duplicate(Duration),
    /// It arrives that much later than it should; frames behind it are not held up.
    Delay(Duration),
    /// It arrives with this one bit flipped (counted from the first byte's most significant bit,
    /// modulo the frame's length).
    Corrupt {
        /// Which bit.
        bit: usize,
    },
    /// It arrives with a congestion mark (CE) if its sender set ECT, else as sent.
    Mark,
}

/// Probabilities of the fates. A frame meets at most one, so their sum is at most 1; the rest
/// passes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ImpairmentRates {
    /// Probability of [`Fate::Drop`], 0.0 to 1.0.
    pub drop: f64,
    /// Probability of [`Fate::Duplicate`], 0.0 to 1.0.
    pub duplicate: f64,
    /// Probability of [`Fate::Delay`], 0.0 to 1.0.
    pub delay: f64,
    /// Probability of [`Fate::Corrupt`], 0.0 to 1.0; the bit is uniform over the frame.
    pub corrupt: f64,
    /// Probability of [`Fate::Mark`], 0.0 to 1.0.
    pub mark: f64,
    /// Upper bound of a delay and of the lag of a copy; both are uniform from zero.
    pub max_delay: Duration,
}

/// The fates of all frames in one direction of a link.
///
/// Rules, then a script for the first frames, then random fates. By default every frame passes.
///
/// ```
/// use roce_fabric::{Fate, Impairment, ImpairmentRates};
///
/// let lossy = ImpairmentRates { drop: 0.5, ..ImpairmentRates::default() };
/// let mut fates = Impairment::scripted([Fate::Pass, Fate::Drop]).then_random(7, lossy);
/// assert_eq!(fates.next_fate(&[0; 100]), Fate::Pass);
/// assert_eq!(fates.next_fate(&[0; 100]), Fate::Drop);
/// let lost = (0..1000).filter(|_| fates.next_fate(&[0; 100]) == Fate::Drop).count();
/// assert!((400..600).contains(&lost));
/// ```
#[derive(Clone, Debug, Default)]
pub struct Impairment {
    rules: Vec<(Fate, RuleCounter)>,
    /// Numbers of the queue pairs that send, in the order of their first packets.
    senders: HashMap<Sender, u32>,
    script: VecDeque<Fate>,
    random: Option<(SplitMix64, ImpairmentRates)>,
}

impl Impairment {
    /// Gives the first frames `fates`, one each; later frames pass.
    pub fn scripted(fates: impl IntoIterator<Item = Fate>) -> Self {
        Self { script: fates.into_iter().collect(), ..Self::default() }
    }

    /// Gives the frames that rules name their fates; the first rule that names a frame counts. `None` if
    /// a rule holds a packet or damages any bit, which a link does not do, or names a rail or a time, which it does not
    /// know.
    pub fn ruled(rules: impl IntoIterator<Item = FaultRule>) -> Option<Self> {
        let fate = |rule: FaultRule| {
            if rule.packets.rail.is_some() || rule.packets.window != Window::default() {
                return None;
            }
            let fate = match rule.action {
                FaultAction::Drop => Fate::Drop,
                FaultAction::Duplicate(lag) => Fate::Duplicate(lag),
                FaultAction::Delay(by) => Fate::Delay(by),
                FaultAction::Mark => Fate::Mark,
                FaultAction::Damage(Some(bit)) => Fate::Corrupt { bit: bit as usize },
                FaultAction::Damage(None)
                | FaultAction::HoldBehind(_)
                | FaultAction::HoldUntil(_) => return None,
            };
            Some((fate, RuleCounter::new(rule.packets)))
        };
        let rules = rules.into_iter().map(fate).collect::<Option<_>>()?;
        Some(Self { rules, ..Self::default() })
    }

    /// Draws the fate of every frame from the generator of `seed`.
    pub fn random(seed: u64, rates: ImpairmentRates) -> Self {
        Self::default().then_random(seed, rates)
    }

    /// Draws the fates after the script from the generator of `seed`.
    #[must_use]
    pub fn then_random(self, seed: u64, rates: ImpairmentRates) -> Self {
        Self { random: Some((SplitMix64::new(seed), rates)), ..self }
    }

    /// Returns the fate of the next frame.
    pub fn next_fate(&mut self, frame: &[u8]) -> Fate {
        if !self.rules.is_empty()
            && let Some(fate) = self.ruled_fate(frame)
        {
            return fate;
        }
        if let Some(fate) = self.script.pop_front() {
            return fate;
        }
        let Some((rng, rates)) = &mut self.random else { return Fate::Pass };
        let mut draw = rng.fraction();
        let mut hits = |rate: f64| {
            let hit = draw < rate;
            draw -= rate;
            hit
        };
        if hits(rates.drop) {
            return Fate::Drop;
        }
        if hits(rates.duplicate) {
            return Fate::Duplicate(up_to(rng, rates.max_delay));
        }
        if hits(rates.delay) {
            return Fate::Delay(up_to(rng, rates.max_delay));
        }
        if hits(rates.corrupt) {
            return Fate::Corrupt { bit: rng.below(frame.len() as u64 * 8) as usize };
        }
        if hits(rates.mark) {
            return Fate::Mark;
        }
        Fate::Pass
    }

    fn ruled_fate(&mut self, frame: &[u8]) -> Option<Fate> {
        let facts = PacketFacts::of(frame);
        let next = self.senders.len() as u32 + 1;
        let number = |facts: PacketFacts| *self.senders.entry(facts.sender).or_insert(next);
        let queue_pair = facts.map(number);
        let direction = FaultDirection::Sent;
        let packet = SeenPacket {
            facts,
            direction,
            queue_pair,
            rank: None,
            rail: None,
            time: Duration::ZERO,
        };
        let mut found = None;
        for (fate, counter) in &mut self.rules {
            // Each counts every packet.
            if counter.admits(&packet) {
                found.get_or_insert(*fate);
            }
        }
        found
    }
}

fn up_to(rng: &mut SplitMix64, max: Duration) -> Duration {
    let nanos = u64::try_from(max.as_nanos()).unwrap_or(u64::MAX);
    Duration::from_nanos(rng.below(nanos.saturating_add(1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_give_the_frames_that_they_name_their_fates() {
        let rules = ["drop packet 2", "mark packets 2 to 3", "delay every 5th packet by 3us"];
        let rules = rules.map(|rule| FaultRule::parse(rule).unwrap());
        let mut fates = Impairment::ruled(rules).unwrap();
        let (mark, late) = (Fate::Mark, Fate::Delay(Duration::from_micros(3)));
        let expected = [Fate::Pass, Fate::Drop, mark, Fate::Pass, late, Fate::Pass];
        assert_eq!([(); 6].map(|()| fates.next_fate(&[0; 60])), expected);
        let held = FaultRule::parse("hold packet 1 behind 2 packets").unwrap();
        assert!(Impairment::ruled([held]).is_none());
    }

    #[test]
    fn fates_occur_at_their_rates() {
        let rates = ImpairmentRates {
            drop: 0.1,
            duplicate: 0.2,
            delay: 0.3,
            corrupt: 0.15,
            mark: 0.1,
            max_delay: Duration::from_micros(9),
        };
        let mut fates = Impairment::random(3, rates);
        let mut seen = [0u32; 6];
        for _ in 0..20_000 {
            match fates.next_fate(&[0; 64]) {
                Fate::Pass => seen[0] += 1,
                Fate::Drop => seen[1] += 1,
                Fate::Duplicate(lag) => {
                    assert!(lag <= rates.max_delay);
                    seen[2] += 1;
                }
                Fate::Delay(lag) => {
                    assert!(lag <= rates.max_delay);
                    seen[3] += 1;
                }
                Fate::Corrupt { bit } => {
                    assert!(bit < 64 * 8);
                    seen[4] += 1;
                }
                Fate::Mark => seen[5] += 1,
            }
        }
        for (count, rate) in seen.into_iter().zip([0.15, 0.1, 0.2, 0.3, 0.15, 0.1]) {
            let share = f64::from(count) / 20_000.0;
            assert!((share - rate).abs() < 0.02, "{seen:?}");
        }
    }

    #[test]
    fn the_same_seed_gives_the_same_fates() {
        let rates = ImpairmentRates { drop: 0.3, delay: 0.3, ..ImpairmentRates::default() };
        let run = |seed| {
            let mut fates = Impairment::random(seed, rates);
            (0..100).map(|_| fates.next_fate(&[0; 10])).collect::<Vec<_>>()
        };
        assert_eq!(run(5), run(5));
        assert_ne!(run(5), run(6));
    }
}
