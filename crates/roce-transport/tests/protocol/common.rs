//! What every property needs: memory, endpoints on a network, connections, forged packets.

pub(crate) mod capture;
pub(crate) mod connection;
pub(crate) mod exchange;
pub(crate) mod forge;
pub(crate) mod messages;
pub(crate) mod repeat;
pub(crate) mod world;
