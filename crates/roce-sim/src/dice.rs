//! Seeded randomness: the same seed, the same throws.

/// A small seeded generator (SplitMix64), so that a run can be repeated from one number.
///
/// Good enough for misfortune, useless for secrets.
///
/// ```
/// use roce_sim::Dice;
///
/// let (mut one, mut two) = (Dice::seeded(7), Dice::seeded(7));
/// assert_eq!(one.next_u64(), two.next_u64());
/// assert!(one.below(6) < 6);
/// ```
#[derive(Clone, Debug)]
pub struct Dice(u64);

impl Dice {
    /// Dice whose throws follow from `seed` alone.
    pub const fn seeded(seed: u64) -> Self {
        Self(seed)
    }

    /// The next 64 random bits.
    pub const fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number in `0..bound`; 0 when `bound` is 0.
    pub const fn below(&mut self, bound: u64) -> u64 {
        ((self.next_u64() as u128 * bound as u128) >> 64) as u64
    }

    /// A number in `0.0..1.0`.
    pub fn fraction(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// True once in `1 / probability` throws.
    pub fn chance(&mut self, probability: f64) -> bool {
        self.fraction() < probability
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_face_comes_up_about_as_often_as_it_should() {
        let mut dice = Dice::seeded(1);
        let mut faces = [0u32; 6];
        for _ in 0..60_000 {
            faces[dice.below(6) as usize] += 1;
        }
        assert!(faces.iter().all(|count| (9_500..10_500).contains(count)), "{faces:?}");
    }

    #[test]
    fn a_chance_of_zero_never_comes_and_a_chance_of_one_always_does() {
        let mut dice = Dice::seeded(2);
        assert!((0..1000).all(|_| !dice.chance(0.0) && dice.chance(1.0)));
        assert_eq!(dice.below(0), 0);
    }
}
