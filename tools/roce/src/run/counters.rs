//! The counters of a run.

use std::path::PathBuf;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::Duration;

use roce_view::CounterTotals;

use super::scratch::Scratch;
use crate::error::Result;

/// Time between two looks at the counters that processes publish.
const INTERVAL: Duration = Duration::from_millis(250);

/// Writes what the processes publish into the files of the view, from a thread.
#[derive(Debug)]
pub(crate) struct LiveCounters {
    published: PathBuf,
    devices: Vec<String>,
    stop: Sender<()>,
    thread: JoinHandle<()>,
}

impl LiveCounters {
    /// Starts the thread for devices of these names.
    pub(crate) fn start(scratch: &Scratch, devices: Vec<String>) -> Result<Self> {
        let (published, view) = (scratch.counters(), scratch.view());
        let (stop, stopped) = mpsc::channel();
        let (folder, names) = (published.clone(), devices.clone());
        let thread = std::thread::Builder::new().name("counters".to_owned()).spawn(move || {
            let mut written = vec![CounterTotals::default(); names.len()];
            while stopped.recv_timeout(INTERVAL) == Err(RecvTimeoutError::Timeout) {
                for (name, before) in names.iter().zip(&mut written) {
                    let Ok(totals) = CounterTotals::of_device(&folder, name) else { continue };
                    if totals != *before {
                        // The program goes on with the counters of before.
                        let outcome = totals.write_below(&view, name);
                        if let Err(error) = outcome {
                            tracing::warn!(%error, "the counters of {name} are not up to date");
                        }
                        *before = totals;
                    }
                }
            }
        })?;
        Ok(Self { published, devices, stop, thread })
    }

    /// Ends the thread. Returns the totals of each device.
    pub(crate) fn end(self) -> Vec<(String, CounterTotals)> {
        let Self { published, devices, stop, thread } = self;
        drop(stop);
        // A panic there has been printed.
        let _ended = thread.join();
        let totals = |name: String| {
            let totals = CounterTotals::of_device(&published, &name).unwrap_or_default();
            (name, totals)
        };
        devices.into_iter().map(totals).collect()
    }
}

/// Prints the counters that are not zero on standard error.
pub(crate) fn print(totals: &[(String, CounterTotals)]) {
    for (device, totals) in totals {
        for (name, count) in totals.iter().filter(|(_, count)| *count > 0) {
            eprintln!("{device} {name:32} {count:>12}");
        }
    }
}
