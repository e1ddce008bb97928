//! Errors of virtual networks.

use std::io;

/// Error of a change to a virtual network.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NetnsError {
    /// The system does not allow this user to create namespaces.
    #[error("cannot {doing}: {source}; {}", crate::user::advice())]
    NotAllowed {
        /// Attempted operation.
        doing: &'static str,
        /// Error of the kernel.
        source: io::Error,
    },
    /// The process has several threads, so it cannot enter a user namespace.
    #[error(
        "cannot enter a user namespace: this process already has {threads} threads, and the \
         kernel allows it only with one. Call enter_user_namespace_if_needed at the start of \
         main, or start the program under `unshare --user --map-root-user`"
    )]
    ThreadsExist {
        /// Number of threads of the process.
        threads: usize,
    },
    /// The kernel refused a change to an interface.
    #[error("cannot {doing}: {source}")]
    Refused {
        /// Attempted operation, with the names of host and interface.
        doing: String,
        /// Error of the kernel.
        source: io::Error,
    },
    /// A tap device could not be created.
    #[error(
        "cannot create the tap device {ifname} in {host}: {source}. It needs /dev/net/tun: \
         `modprobe tun` on the host, or `--device /dev/net/tun` for a container"
    )]
    Tap {
        /// Host of the device.
        host: String,
        /// Name of the device.
        ifname: String,
        /// Error of the kernel.
        source: io::Error,
    },
    /// The system refused a thread, a pipe or a file.
    #[error("cannot {doing}: {source}")]
    System {
        /// Attempted operation.
        doing: &'static str,
        /// Error of the system.
        source: io::Error,
    },
}
