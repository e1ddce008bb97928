//! Connections of the run's processes that have died.

use std::path::PathBuf;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::Duration;

use roce_verbs::DeviceConfig;
use roce_verbs::cm::Orphans;

use crate::error::Result;

/// Time between two looks for processes that have died.
const INTERVAL: Duration = Duration::from_millis(250);

/// Tells the peers of processes that have died without a word, as the kernel does, from a thread.
#[derive(Debug)]
pub(crate) struct OrphanWatch {
    stop: Sender<()>,
    thread: JoinHandle<()>,
}

impl OrphanWatch {
    /// Starts the thread for the processes that write down their connections in a folder. It opens devices
    /// with a configuration.
    pub(crate) fn start(folder: PathBuf, config: DeviceConfig) -> Result<Self> {
        let (stop, stopped) = mpsc::channel();
        let thread = std::thread::Builder::new().name("orphans".to_owned()).spawn(move || {
            let mut orphans = Orphans::new(folder, config);
            while stopped.recv_timeout(INTERVAL) == Err(RecvTimeoutError::Timeout) {
                orphans.look();
            }
            orphans.finish();
        })?;
        Ok(Self { stop, thread })
    }

    /// Tells the peers of all that have died by now, three seconds at most, and ends the thread.
    pub(crate) fn end(self) {
        drop(self.stop);
        // A panic there has been printed by the runtime; the program has ended all the same.
        let _ended = self.thread.join();
    }
}
