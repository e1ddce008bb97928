//! Support of the fuzz targets and of random tests: the script reader for their bodies, the seeds, and the replay of
//! corpora for tests (feature `corpus`).
//!
//! ```
//! use roce_fuzz_support::Script;
//!
//! let mut script = Script::new(&[2, 1, 0]);
//! assert_eq!((script.pick(&['a', 'b', 'c']), script.number::<u16>()), ('c', 1));
//! assert!(script.is_over());
//! ```
#![forbid(unsafe_code)]

#[cfg(feature = "corpus")]
mod corpus;
mod script;
mod seeds;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

#[cfg(feature = "corpus")]
pub use corpus::{check_seed, random_seed, read_corpus, replay, write_corpus};
pub use script::Script;
pub use seeds::{repeat_with, seeds};
