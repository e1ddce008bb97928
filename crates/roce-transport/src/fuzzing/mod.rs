//! The bodies of the fuzz targets: what an engine must stand, whatever its peer, its
//! application and the way between do. Not part of the crate's interface; it exists for the
//! fuzzer, and for the tests that replay its corpora.
//!
//! | body | what the bytes say | what must hold |
//! |---|---|---|
//! | [`responder`], [`requester`] | packets right and wrong, posts, waits, changes of state and memory | no panic; no byte outside a permission; requests executed once and in order; work ends once and in order; trains are sound; memory stays bounded |
//! | [`pair_script`] | work for two engines, and what befalls each frame between them | exactly once, in order, intact, or an error completion |

mod memory;
mod net;
mod packet;
mod pair;
mod peer;
mod settings;
mod single_endpoint;
#[cfg(test)]
mod tests;
mod work;
mod workload;
mod wr_tracker;

use self::pair::Pair;
use self::single_endpoint::{Bias, Lone};
use roce_fuzz_support::Script;

/// One engine and anything that strangers ask of it.
pub fn responder(bytes: &[u8]) {
    Lone::new(Script::new(bytes), Bias::Requests).run();
}

/// One engine that asks, and anything that strangers answer.
pub fn requester(bytes: &[u8]) {
    Lone::new(Script::new(bytes), Bias::Answers).run();
}

/// Two engines that mean well, and a way between them that does not.
pub fn pair_script(bytes: &[u8]) {
    Pair::new(Script::new(bytes)).run();
}
