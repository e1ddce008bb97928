//! The bodies of the fuzz targets, for the fuzzer and for the tests that replay its corpora; not part of
//! the crate's interface.
//!
//! | body | what the bytes say | what must hold |
//! |---|---|---|
//! | [`cm_agent`] | datagrams for an agent, right and wrong, calls of its program, waits | no panic; no event twice; every datagram counted once and answered at most twice; nothing left at the end |
//! | [`cm_pair`] | what two programs do with a connection, and what happens to each datagram | the same; both ends agree |

mod datagrams;
mod events;
mod pair;
mod plan;
mod single_agent;

#[cfg(test)]
pub(crate) use self::events::Seen;
#[cfg(test)]
pub(crate) use self::pair::{Fate, Pair};
#[cfg(test)]
pub(crate) use self::plan::{Act, Plan};

/// Passes arbitrary datagrams and calls to an agent.
pub fn cm_agent(bytes: &[u8]) {
    single_agent::run(bytes);
}

/// Connects two agents by a network that loses, repeats and delays up to 24 datagrams.
pub fn cm_pair(bytes: &[u8]) {
    pair::run(bytes);
}
