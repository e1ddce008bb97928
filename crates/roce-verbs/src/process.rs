//! The process that a device lives in: its threads, its forks, its signals and its end.

pub(crate) mod background_thread;
// One call: `atexit`.
#[allow(unsafe_code)]
pub(crate) mod exit;
// `pthread_atfork`, and statics of which each process has its own.
#[allow(unsafe_code)]
pub(crate) mod fork;
#[allow(unsafe_code)]
pub(crate) mod last_thread;
pub(crate) mod purpose;
pub(crate) mod signals;
// One call: the real-time class.
#[allow(unsafe_code)]
pub(crate) mod thread_placement;
