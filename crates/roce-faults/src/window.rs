//! A part of a run's time.

use core::fmt::{self, Display, Formatter};
use core::time::Duration;

use crate::sentence::{FaultRuleError, MAX_TIME, Result, Time, Words};

/// From one time since the beginning of a run to another, which is not part of it.
///
/// ```
/// use core::time::Duration;
/// use roce_faults::Window;
///
/// let window = Window { from: Duration::from_secs(2), until: Duration::MAX };
/// assert!(window.includes(Duration::from_secs(2)) && !window.includes(Duration::from_secs(1)));
/// assert_eq!(window.to_string(), " from 2s");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Window {
    /// Begin.
    pub from: Duration,
    /// End; [`Duration::MAX`] without one.
    pub until: Duration,
}

impl Default for Window {
    /// All of the run.
    fn default() -> Self {
        Self { from: Duration::ZERO, until: Duration::MAX }
    }
}

impl Window {
    /// Returns true if a time is part of it.
    pub fn includes(&self, time: Duration) -> bool {
        self.from <= time && time < self.until
    }

    /// Takes `"from" time [("to" | "for") time]`, if it is there.
    pub(crate) fn take<'a>(words: &mut Words<'a>) -> Result<'a, Self> {
        let mut window = Self::default();
        if !words.takes("from") {
            return Ok(window);
        }
        window.from = words.time()?;
        let is_end = words.takes("to");
        if is_end || words.takes("for") {
            let word = words.peek();
            let time = words.time()?;
            window.until = if is_end { time } else { window.from + time };
            if window.until <= window.from || window.until > MAX_TIME {
                let expected = "a time behind the first, at most a day,";
                return Err(FaultRuleError { word, expected });
            }
        }
        Ok(window)
    }
}

impl Display for Window {
    /// Writes what stands in a sentence, with a space in front; nothing for all of the run.
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if *self == Self::default() {
            return Ok(());
        }
        write!(f, " from {}", Time(self.from))?;
        match self.until {
            Duration::MAX => Ok(()),
            until => write!(f, " to {}", Time(until)),
        }
    }
}
