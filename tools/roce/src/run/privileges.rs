//! The capability to open packet sockets.

use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, configure_capability_in_ambient_set,
    set_capabilities,
};

use crate::error::{CliError, Result};

/// Checks that this process may give its program packet sockets.
pub(crate) fn check() -> Result {
    let own =
        capabilities(None).map_err(|errno| CliError::context("reading capabilities", errno))?;
    if own.permitted.contains(CapabilitySet::NET_RAW) {
        return Ok(());
    }
    Err(CliError::new(
        "packet sockets need CAP_NET_RAW, which this process lacks: run it as root, or once `sudo \
         setcap cap_net_raw+ep` on this program's file, or start the container with --cap-add \
         NET_RAW; or add --local 2 for a private network, which needs no privileges",
    ))
}

/// Keeps CAP_NET_RAW for the program that this process becomes, also if its user is not root. A
/// program whose file has capabilities would ignore the variables of the loader; an ambient
/// capability leaves them in force.
pub(crate) fn keep() {
    let raise = || {
        let mut own = capabilities(None)?;
        if !own.permitted.contains(CapabilitySet::NET_RAW) {
            return Ok(());
        }
        own.inheritable |= CapabilitySet::NET_RAW;
        let CapabilitySets { effective, permitted, inheritable } = own;
        set_capabilities(None, CapabilitySets { effective, permitted, inheritable })?;
        configure_capability_in_ambient_set(CapabilitySet::NET_RAW, true)
    };
    // Root has the capability without this; without it the library says what is missing.
    let _: rustix::io::Result<()> = raise();
}
