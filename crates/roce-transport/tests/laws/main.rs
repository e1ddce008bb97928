//! Laws of the transport: engines in pairs on a virtual network, under every misfortune.
//!
//! No test waits: the clock jumps to the next thing that happens. `ROCE_PCAP=dir` makes any
//! test write a capture; a random test that fails prints the seed and the command to repeat it.

mod common;

mod chaos;
mod congestion;
mod credits;
mod crowd;
mod cut_paths;
mod depth;
mod driver_time;
mod duplicates;
mod garbage;
mod harness;
mod hostile;
mod lazy;
mod long;
mod misfortune;
mod model;
mod order;
mod progress;
mod protection;
mod quirks;
mod recovery;
mod responses;
mod retries;
mod rnr;
mod scripts;
mod sizes;
mod trains;
