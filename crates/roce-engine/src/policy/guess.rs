//! A guess that is not made for a while after it was wrong.

/// Consecutive wrong guesses after which it is not made.
const MAX_WRONG: u32 = 3;
/// Fewest exchanges in which it is not made then.
const MIN_BACKOFF: u32 = 64;
/// Most such exchanges.
const MAX_BACKOFF: u32 = 1 << 16;

/// Backs off exponentially from a guess that is wrong, in exchanges of messages.
#[derive(Debug)]
pub(super) struct Guess {
    /// Consecutive times that it was wrong.
    wrong: u32,
    /// Exchanges left before it is made again.
    backoff: u32,
    /// Value of `backoff` after the next time.
    next_backoff: u32,
}

impl Default for Guess {
    fn default() -> Self {
        Self { wrong: 0, backoff: 0, next_backoff: MIN_BACKOFF }
    }
}

impl Guess {
    /// Returns true if it is made now.
    #[inline]
    pub(super) fn is_made(&self) -> bool {
        self.backoff == 0
    }

    /// Notes an exchange of messages.
    #[inline]
    pub(super) fn on_exchange(&mut self) {
        self.backoff = self.backoff.saturating_sub(1);
    }

    /// Notes that it was right.
    #[inline]
    pub(super) fn on_right(&mut self) {
        self.wrong = 0;
        self.next_backoff = self.next_backoff.saturating_sub(1).max(MIN_BACKOFF);
    }

    /// Notes that it was wrong.
    pub(super) fn on_wrong(&mut self) {
        self.wrong += 1;
        if self.wrong >= MAX_WRONG {
            self.wrong = 0;
            self.backoff = self.next_backoff;
            self.next_backoff = (2 * self.next_backoff).min(MAX_BACKOFF);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guess_that_is_always_wrong_is_made_ever_less_often() {
        let mut guess = Guess::default();
        let mut made = 0;
        for _ in 0..1_000_000 {
            guess.on_exchange();
            if guess.is_made() {
                made += 1;
                guess.on_wrong();
            }
        }
        assert!((1..100).contains(&made), "{made}");
    }

    #[test]
    fn a_guess_that_is_right_again_is_made_as_at_first() {
        let mut guess = Guess::default();
        for _ in 0..100 {
            (0..MAX_WRONG).for_each(|_| guess.on_wrong());
            (0..MAX_BACKOFF).for_each(|_| guess.on_exchange());
        }
        assert_eq!(guess.next_backoff, MAX_BACKOFF);
        (0..MAX_BACKOFF).for_each(|_| guess.on_right());
        assert!(guess.is_made() && guess.next_backoff == MIN_BACKOFF);
    }
}
