//! Counters for other processes.

use std::fmt::Write;
use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use super::Shared;
use super::thread::set_up_background_thread;
use crate::thread_placement::ThreadPlacement;

/// Time between two looks at the counters.
const INTERVAL: Duration = Duration::from_millis(250);

/// Writes the counters of a device into a file, from a thread.
#[derive(Debug)]
pub(super) struct CounterPublisher {
    file: Arc<CounterFile>,
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct CounterFile {
    path: PathBuf,
    /// Text that the file has.
    written: Mutex<String>,
}

impl CounterPublisher {
    /// Starts the thread.
    pub(super) fn start(shared: &Arc<Shared>, path: PathBuf) -> io::Result<Self> {
        let file = Arc::new(CounterFile { path, written: Mutex::default() });
        let (stop, stopped) = mpsc::channel();
        let (shared, its) = (Arc::clone(shared), Arc::clone(&file));
        let thread = std::thread::Builder::new().name(format!("roce-c {}", shared.port.name()));
        let thread = thread.spawn(move || {
            // Without it the thread runs where its creator is bound to.
            let _placed = set_up_background_thread(ThreadPlacement::default());
            while stopped.recv_timeout(INTERVAL) == Err(RecvTimeoutError::Timeout) {
                let counters = shared.lock().counters();
                its.write(&counters);
            }
        })?;
        Ok(Self { file, stop: Some(stop), thread: Some(thread) })
    }

    /// Writes counters into the file.
    pub(super) fn publish(&self, counters: &[(&'static str, u64)]) {
        self.file.write(counters);
    }

    /// Ends the thread. A child after `fork` does not call this: it has no such thread.
    pub(super) fn end(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            // A panic there has been printed by the runtime.
            let _ended = thread.join();
        }
    }
}

impl CounterFile {
    /// Replaces the file if the counters have changed. A device works without it, so that an error
    /// is only logged.
    fn write(&self, counters: &[(&'static str, u64)]) {
        let mut text = String::with_capacity(4096);
        for (name, count) in counters {
            let _infallible = writeln!(text, "{name} {count}");
        }
        let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        if *written == text {
            return;
        }
        let mut new = self.path.clone().into_os_string();
        new.push(".new");
        let replaced = fs::write(&new, &text).and_then(|()| fs::rename(&new, &self.path));
        if let Err(error) = replaced {
            tracing::debug!(%error, file = %self.path.display(), "counters are not published");
        }
        *written = text;
    }
}
