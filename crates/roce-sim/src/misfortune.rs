//! What goes wrong on the way: by script for the first frames, by chance for the rest.

use std::collections::VecDeque;
use std::time::Duration;

use crate::Dice;

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
}

/// How often a frame meets which fate. At most one befalls each frame, so the sum of the
/// chances is at most 1; what is left passes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Chances {
    /// Chance of [`Fate::Drop`], 0.0 to 1.0.
    pub drop: f64,
    /// Chance of [`Fate::Duplicate`], 0.0 to 1.0.
    pub duplicate: f64,
    /// Chance of [`Fate::Delay`], 0.0 to 1.0.
    pub delay: f64,
    /// Chance of [`Fate::Corrupt`], 0.0 to 1.0; the bit is drawn evenly from the frame.
    pub corrupt: f64,
    /// A delay, and the lag of a copy, is drawn evenly from zero to this.
    pub longest_delay: Duration,
}

/// The fates of all frames in one direction of a link.
///
/// First the script, frame by frame, then chance. The default lets everything pass.
///
/// ```
/// use roce_sim::{Chances, Fate, Misfortune};
///
/// let lossy = Chances { drop: 0.5, ..Chances::default() };
/// let mut fates = Misfortune::scripted([Fate::Pass, Fate::Drop]).then_by_chance(7, lossy);
/// assert_eq!(fates.next_fate(100), Fate::Pass);
/// assert_eq!(fates.next_fate(100), Fate::Drop);
/// let lost = (0..1000).filter(|_| fates.next_fate(100) == Fate::Drop).count();
/// assert!((400..600).contains(&lost));
/// ```
#[derive(Clone, Debug, Default)]
pub struct Misfortune {
    script: VecDeque<Fate>,
    chance: Option<(Dice, Chances)>,
}

impl Misfortune {
    /// The first frames meet `fates`, one each; all later ones pass.
    pub fn scripted(fates: impl IntoIterator<Item = Fate>) -> Self {
        Self { script: fates.into_iter().collect(), chance: None }
    }

    /// Every frame throws the dice of `seed`.
    pub fn by_chance(seed: u64, chances: Chances) -> Self {
        Self::default().then_by_chance(seed, chances)
    }

    /// The script first, then the dice of `seed`.
    #[must_use]
    pub fn then_by_chance(self, seed: u64, chances: Chances) -> Self {
        Self { chance: Some((Dice::seeded(seed), chances)), ..self }
    }

    /// The fate of the next frame, which is `len` bytes long.
    pub fn next_fate(&mut self, len: usize) -> Fate {
        if let Some(fate) = self.script.pop_front() {
            return fate;
        }
        let Some((dice, chances)) = &mut self.chance else { return Fate::Pass };
        let mut throw = dice.fraction();
        let mut befalls = |chance: f64| {
            let hit = throw < chance;
            throw -= chance;
            hit
        };
        if befalls(chances.drop) {
            return Fate::Drop;
        }
        if befalls(chances.duplicate) {
            return Fate::Duplicate(span(dice, chances.longest_delay));
        }
        if befalls(chances.delay) {
            return Fate::Delay(span(dice, chances.longest_delay));
        }
        if befalls(chances.corrupt) {
            return Fate::Corrupt { bit: dice.below(len as u64 * 8) as usize };
        }
        Fate::Pass
    }
}

fn span(dice: &mut Dice, longest: Duration) -> Duration {
    let nanos = u64::try_from(longest.as_nanos()).unwrap_or(u64::MAX);
    Duration::from_nanos(dice.below(nanos.saturating_add(1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_fate_comes_as_often_as_its_chance_says() {
        let chances = Chances {
            drop: 0.1,
            duplicate: 0.2,
            delay: 0.3,
            corrupt: 0.15,
            longest_delay: Duration::from_micros(9),
        };
        let mut fates = Misfortune::by_chance(3, chances);
        let mut seen = [0u32; 5];
        for _ in 0..20_000 {
            match fates.next_fate(64) {
                Fate::Pass => seen[0] += 1,
                Fate::Drop => seen[1] += 1,
                Fate::Duplicate(lag) => {
                    assert!(lag <= chances.longest_delay);
                    seen[2] += 1;
                }
                Fate::Delay(lag) => {
                    assert!(lag <= chances.longest_delay);
                    seen[3] += 1;
                }
                Fate::Corrupt { bit } => {
                    assert!(bit < 64 * 8);
                    seen[4] += 1;
                }
            }
        }
        for (count, chance) in seen.into_iter().zip([0.25, 0.1, 0.2, 0.3, 0.15]) {
            let share = f64::from(count) / 20_000.0;
            assert!((share - chance).abs() < 0.02, "{seen:?}");
        }
    }

    #[test]
    fn the_same_seed_brings_the_same_misfortune() {
        let chances = Chances { drop: 0.3, delay: 0.3, ..Chances::default() };
        let run = |seed| {
            let mut fates = Misfortune::by_chance(seed, chances);
            (0..100).map(|_| fates.next_fate(10)).collect::<Vec<_>>()
        };
        assert_eq!(run(5), run(5));
        assert_ne!(run(5), run(6));
    }
}
