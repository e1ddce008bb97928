//! A soak: queue pairs between processes on a bad network, one process of each pair killed and
//! started again and again.
//!
//! ```text
//!           host left                 host right
//!   survivor 0: pairs 0, 2, …  ──  peers 0, 2, …: one process each, killed by SIGKILL
//!   peers 1, 3, …              ──  survivor 1: pairs 1, 3, …
//! ```
//!
//! Both ends of a pair do all operations at once and check every byte ([`Traffic`]). When its peer
//! is killed, a survivor's requests must complete, its queue pair is reset and connected to the
//! next peer. The controller ([`run`]) kills, reads what the survivors report of themselves each
//! second, and judges it: any wrong byte, any request that does not complete in time, any failure
//! against a peer that is alive, any growth is a violation.
//!
//! All three roles are the program `soak`.

mod card;
mod clock;
mod controller;
mod options;
mod peer;
mod receiver;
mod report;
mod requests;
mod resources;
mod survivor;
mod traffic;
mod trend;

use rand::rngs::StdRng;
use rand::{RngCore, SeedableRng};

pub use controller::{Summary, run};
pub use options::{Options, Role};
pub use peer::run as run_peer;
pub use survivor::run as run_survivor;
pub use traffic::Traffic;

/// Result of each part; the error is text for the user.
pub type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// The first `len` bytes that follow from a seed.
fn random_bytes(seed: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    StdRng::seed_from_u64(seed).fill_bytes(&mut bytes);
    bytes
}
