//! What a switch and a fabric need to know about a frame.

/// A frame as a [`Switch`](crate::Switch) handles it.
pub trait SwitchFrame {
    /// Returns the length in bytes that buffers count.
    fn len(&self) -> u64;

    /// Returns true if the frame has no bytes.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the traffic class, 0 to 7; a higher value is taken modulo 8.
    fn class(&self) -> usize;

    /// Returns true if the IP header says ECT(0), ECT(1) or CE.
    fn is_ecn_capable(&self) -> bool;

    /// Sets CE.
    fn mark_ce(&mut self);
}

/// A frame as a [`Fabric`](crate::Fabric) routes it.
pub trait FabricFrame: SwitchFrame {
    /// Returns the index of the destination among the hosts.
    fn destination(&self) -> usize;

    /// Returns a hash of the five-tuple, the same for all frames of a flow. It chooses among several
    /// shortest paths; the default, 0 for all, is for topologies with one path to each host.
    fn flow_hash(&self) -> u64 {
        0
    }
}
