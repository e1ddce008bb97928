//! A progress bar for large captures.

use std::io::{self, IsTerminal};

use indicatif::{ProgressBar, ProgressStyle};

/// A progress bar on standard error, or none.
#[derive(Debug)]
pub(super) struct Progress(Option<ProgressBar>);

impl Progress {
    pub(super) fn hidden() -> Self {
        Self(None)
    }

    /// Creates a bar for a file of `len` bytes, if standard error is a terminal, the file is large,
    /// and the bar does not mix with the output.
    pub(super) fn new(len: u64, prints_at_the_end: bool) -> Self {
        let is_in_the_way = io::stdout().is_terminal() && !prints_at_the_end;
        if len < MIN_FILE_WITH_PROGRESS || is_in_the_way || !io::stderr().is_terminal() {
            return Self::hidden();
        }
        let style = ProgressStyle::with_template("{bar:40} {bytes}/{total_bytes} {eta}");
        let bar = ProgressBar::new(len);
        Self(Some(bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))))
    }

    pub(super) fn reach(&mut self, offset: u64) {
        if let Some(bar) = &self.0 {
            bar.set_position(offset);
        }
    }

    pub(super) fn finish(&mut self) {
        if let Some(bar) = self.0.take() {
            bar.finish_and_clear();
        }
    }
}

const MIN_FILE_WITH_PROGRESS: u64 = 64 << 20;
