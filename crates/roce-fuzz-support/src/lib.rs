//! Support of the fuzz targets: the script reader for their bodies, and the replay of corpora for
//! tests.
//!
//! ```
//! use roce_fuzz_support::Script;
//!
//! let mut script = Script::new(&[2, 1, 0]);
//! assert_eq!((script.pick(&['a', 'b', 'c']), script.number::<u16>()), ('c', 1));
//! assert!(script.is_over());
//! ```
#![forbid(unsafe_code)]

mod corpus;
mod script;

pub use corpus::{check_seed, random_seed, replay};
pub use script::Script;
