//! What the keeper of a run does for its processes, also for those that go on after the end of the program.

use std::io::Write;
use std::path::Path;

use roce_verbs::DeviceConfig;
use roce_view::CounterTotals;

use super::front::Front;
use super::orphans::OrphanWatch;
use super::survivors;
use crate::error::{CliError, Result};
use crate::run::folder::run_folder::RunFolder;
use crate::run::folder::scratch::Scratch;
use crate::run::outcome::capture::Spool;
use crate::run::outcome::counters::LiveCounters;
use crate::run::outcome::exit_code::not_run;
use crate::run::processes::signals::Signals;

/// What a run does for its processes, from threads.
pub(super) struct Services {
    pub(super) scratch: Scratch,
    pub(super) device_names: Vec<String>,
    /// How devices are opened that tell peers of processes which have died.
    pub(super) config: DeviceConfig,
}

/// Services that run.
pub(super) struct RunningServices {
    live: LiveCounters,
    orphans: OrphanWatch,
}

impl Services {
    pub(super) fn start(&self) -> Result<RunningServices> {
        let live = LiveCounters::start(&self.scratch, self.device_names.clone())?;
        let orphans = OrphanWatch::start(self.scratch.connections(), self.config.clone())?;
        Ok(RunningServices { live, orphans })
    }
}

impl RunningServices {
    /// Ends the threads. Returns the counters of each device.
    pub(super) fn end(self) -> Vec<(String, CounterTotals)> {
        self.orphans.end();
        self.live.end()
    }
}

/// Stays for the processes that go on after the program's end, if there are any: the process in front ends with
/// the exit code, and this one when the last of them has gone. Their folder is removed then.
pub(super) fn keep(
    front: Front,
    outcome: Result,
    program: &Path,
    signals: &Signals,
    services: &Services,
    capture: Option<Spool>,
    folder: Option<RunFolder>,
) -> Result {
    let leave = |folder: Option<RunFolder>| folder.into_iter().for_each(RunFolder::leave);
    let count = match survivors::count(signals) {
        Ok(0) => return outcome,
        Ok(count) => count,
        Err(error) => {
            leave(folder);
            return Err(error);
        }
    };
    let is_first = front.starter() == 1;
    let sentence = survivors::sentence(&program.display().to_string(), count, is_first);
    // What reads it may have gone, and the process in front may have been killed: the survivors go on all the same,
    // and need the folder.
    let _told = writeln!(std::io::stderr(), "roce: {sentence}");
    let code = match outcome.map_err(not_run) {
        Err(CliError::Reported(code)) => code,
        _ => 0,
    };
    let running = services.start();
    if let Some(Err(error)) = capture.map(Spool::discard) {
        tracing::warn!(%error, "what goes on fills the file of the capture");
    }
    let _left = front.leave(code);
    let are_gone = survivors::keep(signals);
    if let Ok(running) = running {
        running.end();
    }
    if !matches!(are_gone, Ok(true)) {
        // The next run removes it, once they have gone.
        leave(folder);
    }
    are_gone?;
    Err(CliError::Reported(code))
}
