//! A progress bar for long sizes.

use std::io::{self, IsTerminal};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// The progress of a size, on standard error if that is a terminal.
#[derive(Debug)]
pub(crate) struct Progress {
    wanted: bool,
    started: Instant,
    operations: u64,
    done: u64,
    bar: Option<ProgressBar>,
    title: String,
}

impl Progress {
    /// Creates the progress of a rank; only rank 0 shows one.
    pub(crate) fn new(rank: u32) -> Self {
        Self {
            wanted: rank == 0 && io::stderr().is_terminal(),
            started: Instant::now(),
            operations: 0,
            done: 0,
            bar: None,
            title: String::new(),
        }
    }

    /// Begins a size of `operations`.
    pub(crate) fn begin(&mut self, title: String, operations: u64) {
        self.end();
        (self.started, self.operations, self.done) = (Instant::now(), operations, 0);
        self.title = title;
    }

    /// Counts an operation, at almost no cost without a bar.
    pub(crate) fn step(&mut self) {
        self.done += 1;
        if !self.wanted {
            return;
        }
        match &self.bar {
            Some(bar) => bar.set_position(self.done),
            None if self.started.elapsed() > SHOW_AFTER => {
                let target = ProgressDrawTarget::stderr_with_hz(10);
                let bar = ProgressBar::with_draw_target(Some(self.operations), target);
                let template = "{msg} [{bar:40}] {pos}/{len} operations, {eta} left";
                // The template is constant; if invalid, use the default.
                if let Ok(style) = ProgressStyle::with_template(template) {
                    bar.set_style(style.progress_chars("=> "));
                }
                bar.set_message(self.title.clone());
                bar.set_position(self.done);
                self.bar = Some(bar);
            }
            None => {}
        }
    }

    /// Ends the size and removes the bar.
    pub(crate) fn end(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.end();
    }
}

/// Time after which the bar appears.
const SHOW_AFTER: Duration = Duration::from_secs(1);
