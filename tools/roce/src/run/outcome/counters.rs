//! The counters of a run.

use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::Duration;

use roce_view::CounterTotals;

use crate::error::Result;
use crate::run::folder::scratch::Scratch;

/// Time between two looks at the counters that processes publish.
const INTERVAL: Duration = Duration::from_millis(250);

/// Time that the last look may take: the program owns the files, and a run ends whatever they are.
const LAST_LOOK: Duration = Duration::from_secs(1);

/// Writes what the processes publish into the files of the view, from a thread.
#[derive(Debug)]
pub(crate) struct LiveCounters {
    stop: Sender<()>,
    totals: Receiver<Vec<(String, CounterTotals)>>,
}

impl LiveCounters {
    /// Starts the thread for devices of these names.
    pub(crate) fn start(scratch: &Scratch, devices: Vec<String>) -> Result<Self> {
        let (published, view) = (scratch.counters(), scratch.view());
        let (stop, stopped) = mpsc::channel();
        let (tell, totals) = mpsc::channel();
        std::thread::Builder::new().name("counters".to_owned()).spawn(move || {
            let mut written = vec![CounterTotals::default(); devices.len()];
            while stopped.recv_timeout(INTERVAL) == Err(RecvTimeoutError::Timeout) {
                for (name, before) in devices.iter().zip(&mut written) {
                    let Ok(totals) = CounterTotals::of_device(&published, name) else { continue };
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
            let totals = |name: String| {
                let totals = CounterTotals::of_device(&published, &name).unwrap_or_default();
                (name, totals)
            };
            let _ = tell.send(devices.into_iter().map(totals).collect());
        })?;
        Ok(Self { stop, totals })
    }

    /// Ends the thread. Returns the totals of each device; none if the files cannot be read in time.
    pub(crate) fn end(self) -> Vec<(String, CounterTotals)> {
        drop(self.stop);
        self.totals.recv_timeout(LAST_LOOK).unwrap_or_default()
    }
}

/// Prints the counters that are not zero on standard error, with a rank in front if there is one.
pub(crate) fn print(totals: &[(String, CounterTotals)], rank: Option<u32>) {
    let prefix = rank.map(|rank| format!("[{rank}] ")).unwrap_or_default();
    for (device, totals) in totals {
        for (name, count) in totals.iter().filter(|(_, count)| *count > 0) {
            // Each line in one write: all ranks of a host may have one standard error.
            let line = format!("{prefix}{device} {name:32} {count:>12}\n");
            eprint!("{line}");
        }
    }
}
