//! Giving up a wait.

use std::fmt;
use std::sync::Arc;

use crate::error::Error;

/// A question to the program of a rank that waits: whether to give up.
///
/// It is asked about every 100 ms, and returns true to give up. The call then fails with
/// [`Error::Interrupted`], the group has ended, and the other ranks get an error that names this one.
/// Cloning is cheap.
///
/// ```
/// use std::sync::Arc;
/// use std::sync::atomic::{AtomicBool, Ordering};
///
/// use roce_collectives::{Error, Group, GroupConfig, Interrupt};
///
/// let gave_up = Arc::new(AtomicBool::new(false));
/// let asked = Arc::clone(&gave_up);
/// let interrupt = Interrupt::new(move || asked.load(Ordering::Relaxed));
/// // For instance in the handler of a signal:
/// gave_up.store(true, Ordering::Relaxed);
/// // Rank 1 never comes.
/// let config = GroupConfig { interrupt, ..GroupConfig::new(0, 2, "127.0.0.1:0") };
/// assert!(matches!(Group::join(config), Err(Error::Interrupted)));
/// ```
#[derive(Clone)]
pub struct Interrupt(Option<Arc<dyn Fn() -> bool + Send + Sync>>);

impl Interrupt {
    /// Returns a question that `wants` answers, in the thread that waits.
    pub fn new(wants: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(wants)))
    }

    /// Returns the question of a rank that never gives up.
    pub fn never() -> Self {
        Self(None)
    }

    /// Asks.
    ///
    /// # Errors
    /// [`Error::Interrupted`] if the program gives up.
    pub(crate) fn check(&self) -> Result<(), Error> {
        match &self.0 {
            Some(wants) if wants() => Err(Error::Interrupted),
            _ => Ok(()),
        }
    }
}

impl Default for Interrupt {
    fn default() -> Self {
        Self::never()
    }
}

impl fmt::Debug for Interrupt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Interrupt(..)" } else { "Interrupt(never)" })
    }
}
