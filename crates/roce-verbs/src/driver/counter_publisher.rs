//! Counters for other processes.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use super::shards::Shards;
use crate::answer::{Answerer, answer};
use crate::process::background_thread::BackgroundThread;
use crate::process::thread_placement::ThreadPlacement;
use crate::run::counter_file::{self, SharedCounterFile};

/// Time between two looks at the counters.
const INTERVAL: Duration = Duration::from_millis(250);

/// Writes the counters of a device into a file, from a thread.
#[derive(Debug)]
pub(super) struct CounterPublisher {
    file: SharedCounterFile,
    stop: Option<Answerer<()>>,
    thread: Option<JoinHandle<()>>,
}

impl CounterPublisher {
    /// Starts the thread, unless the file cannot be made, as where the program has changed its user; a device
    /// works without it.
    pub(super) fn start_if_possible(shards: &Arc<Shards>, path: &Path) -> Option<Self> {
        static IS_TOLD: AtomicBool = AtomicBool::new(false);
        match Self::start(shards, path) {
            Ok(publisher) => Some(publisher),
            Err(error) => {
                if !IS_TOLD.swap(true, Ordering::Relaxed) {
                    tracing::warn!(
                        "the counters of this process are not shown: {}: {error}",
                        path.display()
                    );
                }
                None
            }
        }
    }

    /// Starts the thread.
    fn start(shards: &Arc<Shards>, path: &Path) -> io::Result<Self> {
        let file = counter_file::open(path)?;
        let (stop, stopped) = answer();
        let (shards, its) = (Arc::clone(shards), Arc::clone(&file));
        let thread =
            std::thread::Builder::new().name(format!("roce-c {}", shards.common.port.name()));
        let thread = thread.spawn(move || {
            let own = BackgroundThread::begin();
            // A refusal leaves the thread where its creator is bound to.
            let _placed = own.place(ThreadPlacement::default());
            while !stopped.is_over_within(INTERVAL) {
                for shard in shards.iter() {
                    let engine = shard.lock_engine();
                    // With the engine locked, so that no round publishes newer counters before.
                    counter_file::write(&its, shard.number, &engine.counters());
                }
            }
        })?;
        Ok(Self { file, stop: Some(stop), thread: Some(thread) })
    }

    pub(super) fn file(&self) -> &SharedCounterFile {
        &self.file
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
