//! Telling a program what its rank waits for.

use std::fmt;
use std::sync::Arc;

/// A function that is told, in a sentence, for which ranks a rank waits while the group forms.
///
/// It is called once a rank has waited for a second, and again when the missing ranks or the reason change; in
/// the thread that waits, which goes on when it returns. Cloning is cheap.
///
/// ```
/// use std::sync::{Arc, Mutex};
/// use std::time::Duration;
///
/// use roce_collectives::{Group, GroupConfig, WaitNotice};
///
/// let told = Arc::new(Mutex::new(Vec::new()));
/// let list = Arc::clone(&told);
/// let wait_notice = WaitNotice::new(move |text| list.lock().unwrap().push(text.to_owned()));
/// // Rank 0 never starts.
/// let timeout = Duration::from_millis(1500);
/// let config = GroupConfig { wait_notice, timeout, ..GroupConfig::new(1, 2, "127.0.0.1:9") };
/// assert!(Group::join(GroupConfig { interfaces: vec!["lo".into()], ..config }).is_err());
/// # // Without the right to open an interface the call fails before it waits.
/// # if let Some(text) = told.lock().unwrap().first() {
/// assert!(text.starts_with("rank 1 waits for rank 0 at 127.0.0.1:9"));
/// # }
/// ```
#[derive(Clone)]
pub struct WaitNotice(Option<Arc<Tell>>);

type Tell = dyn Fn(&str) + Send + Sync;

impl WaitNotice {
    /// Returns a notice that calls `tell`.
    pub fn new(tell: impl Fn(&str) + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(tell)))
    }

    /// Returns the notice of a program that is told nothing.
    pub fn silent() -> Self {
        Self(None)
    }

    pub(crate) fn tell(&self, text: &str) {
        if let Some(tell) = &self.0 {
            tell(text);
        }
    }
}

impl Default for WaitNotice {
    fn default() -> Self {
        Self::silent()
    }
}

impl fmt::Debug for WaitNotice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "WaitNotice(..)" } else { "WaitNotice(silent)" })
    }
}
