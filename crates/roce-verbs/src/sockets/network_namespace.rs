//! Which network namespace a thread is in.

use std::os::unix::fs::MetadataExt;

use roce_io::sockets::{Unnamed, namespace_of};

/// Returns the number of this thread's network namespace, which differs from those of all others that exist with
/// it. `None` where nothing tells: before Linux 5.14 without `/proc`.
pub(crate) fn current() -> Option<u64> {
    let of_socket = || namespace_of(Unnamed::new().ok()?);
    of_socket().or_else(|| Some(std::fs::metadata("/proc/thread-self/ns/net").ok()?.ino()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_of_one_namespace_have_its_number() {
        let ours = current();
        assert!(ours.is_some_and(|number| number != 0));
        assert_eq!(std::thread::spawn(current).join().unwrap(), ours);
    }
}
