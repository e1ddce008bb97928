//! The bodies of the fuzz targets: arbitrary peers, applications and networks. Not part of the
//! crate's interface; it exists for the fuzzer, and for the tests that replay its corpora.
//!
//! | body | what the bytes say | what must hold |
//! |---|---|---|
//! | [`responder`], [`requester`] | packets right and wrong, posts, waits, changes of state and memory | no panic; no byte outside a permission; requests executed once and in order; work ends once and in order; trains are sound; memory stays bounded |
//! | [`pair_script`] | work for two engines, and what befalls each frame between them | exactly once, in order, intact, or an error completion; without acknowledgements, intact or not at all |

mod memory;
mod net;
pub(crate) mod packet;
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

/// One engine that receives arbitrary requests.
pub fn responder(bytes: &[u8]) {
    Lone::new(Script::new(bytes), Bias::Requests).run();
}

/// One engine that sends requests and receives arbitrary responses.
pub fn requester(bytes: &[u8]) {
    Lone::new(Script::new(bytes), Bias::Answers).run();
}

/// Two engines, and a network that loses, delays and duplicates frames.
pub fn pair_script(bytes: &[u8]) {
    Pair::new(Script::new(bytes)).run();
}
