//! What can stand in the way of a private network, and what to do about it.

use std::io;

/// Why a private network could not be made or changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NetnsError {
    /// The system does not let this user make namespaces.
    #[error("cannot {doing}: {source}.\n{}", crate::user::how_to_get_the_right())]
    NotAllowed {
        /// What was tried.
        doing: &'static str,
        /// What the kernel answered.
        source: io::Error,
    },
    /// A user namespace can only be entered while the process has a single thread.
    #[error(
        "cannot enter a user namespace: this process already has {threads} threads, and the \
         kernel moves only a process with one. Call enter_user_namespace_if_needed first thing \
         in main, or start the program under `unshare --user --map-root-user`"
    )]
    ThreadsExist {
        /// How many threads the process has.
        threads: usize,
    },
    /// The kernel refused a change to an interface.
    #[error("cannot {doing}: {source}")]
    Refused {
        /// What was tried, with the names of host and interface.
        doing: String,
        /// What the kernel answered.
        source: io::Error,
    },
    /// A tap device could not be made.
    #[error(
        "cannot make the tap device {ifname} in {host}: {source}. It needs /dev/net/tun: \
         `modprobe tun` on the host, or `--device /dev/net/tun` for a container"
    )]
    Tap {
        /// The host that should have got it.
        host: String,
        /// The name it should have had.
        ifname: String,
        /// What the kernel answered.
        source: io::Error,
    },
    /// The system refused a thread, a pipe or a file.
    #[error("cannot {doing}: {source}")]
    System {
        /// What was tried.
        doing: &'static str,
        /// What the system answered.
        source: io::Error,
    },
}
