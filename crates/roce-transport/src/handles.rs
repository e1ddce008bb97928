//! Names that the layer above gives to its objects; the engine only hands them back.

/// Names a protection domain of the layer above.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PdHandle(pub u32);

/// Names a completion queue of the layer above.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CqHandle(pub u32);

/// Names a shared receive queue; [`Endpoint::create_srq`](crate::Endpoint::create_srq) gives it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SrqHandle(pub u32);

/// Names a path of the layer above: everything that outer headers need and the engine
/// does not want to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PathHandle(pub u64);

/// Names a transmit queue of the layer above, counted from 0: the packets of a path leave through
/// one of them, and it may be full.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TransmitQueue(pub u8);
