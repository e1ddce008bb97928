//! Messages to the user on standard error, and the log.

use std::fmt::Display;
use std::io::{IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering};

use roce_verbs::environment;
use tracing_subscriber::filter::LevelFilter;

/// Prints why the program cannot use a device, the first time: the functions of libibverbs have no
/// words for it.
pub(crate) fn say_once(why: &dyn Display) {
    static IS_SAID: AtomicBool = AtomicBool::new(false);
    print_once(&IS_SAID, why);
}

/// Tells a user about the way in which things work, once.
pub(crate) fn note_once(what: &dyn Display) {
    static IS_NOTED: AtomicBool = AtomicBool::new(false);
    print_once(&IS_NOTED, what);
}

fn print_once(is_printed: &AtomicBool, text: &dyn Display) {
    if !is_printed.swap(true, Ordering::Relaxed) {
        // Standard error may be closed.
        let _ = writeln!(std::io::stderr(), "roce: {text}");
    }
}

/// Starts the log on standard error: warnings, or what `ROCE_LOG` asks for.
pub(crate) fn start_log() {
    // Not a `Once`: a child made by `fork` while another thread runs it would wait for ever.
    static IS_STARTED: AtomicBool = AtomicBool::new(false);
    if IS_STARTED.swap(true, Ordering::Relaxed) {
        return;
    }
    let level = environment::var(environment::LOG).and_then(|level| level.parse().ok());
    // The log is the library's own, so no other subscriber can be there.
    let _ = tracing_subscriber::fmt()
        .with_max_level(level.unwrap_or(LevelFilter::WARN))
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .without_time()
        .with_target(false)
        .try_init();
}
