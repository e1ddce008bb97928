//! Panics: none crosses into C.

use std::io::Write;
use std::panic;
use std::sync::atomic::{AtomicBool, Ordering};

/// Makes a panic of this library's code, in whatever thread, end the process with one line that asks
/// for a report. The hook is private to the library: its copy of the standard library has it.
pub(crate) fn end_process_on_panic() {
    // Not a `Once`: a child made by `fork` while another thread runs it would wait for ever.
    static IS_SET: AtomicBool = AtomicBool::new(false);
    if IS_SET.swap(true, Ordering::Relaxed) {
        return;
    }
    panic::set_hook(Box::new(|panic| {
        let version = env!("CARGO_PKG_VERSION");
        let text = panic.to_string().replace('\n', " ");
        let _ = writeln!(
            std::io::stderr(),
            "roce: internal error in libibverbs {version}: {text}; please report this line"
        );
        std::process::abort();
    }));
}
