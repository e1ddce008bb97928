//! A place for cases: what it can do to its network.

use super::Fault;

/// Where cases are run: machines and a network between them.
pub trait Testbed {
    /// Gives the network what packets of `path_mtu` bytes of payload need, and no more.
    ///
    /// # Errors
    /// When an end refuses it.
    fn set_path_mtu(&self, path_mtu: usize) -> Result<(), Fault>;

    /// Lets what guests send suffer, in netem's words; an empty text ends it.
    ///
    /// # Errors
    /// When a guest refuses it.
    fn set_netem(&self, what: &str) -> Result<(), Fault>;
}

/// The smallest MTU in use that carries `path_mtu`.
pub(crate) const fn link_mtu(path_mtu: usize) -> u32 {
    if path_mtu <= 1024 { 1500 } else { 4200 }
}
