//! Properties of the transport: engines in pairs on a virtual network, under every misfortune.
//!
//! No test waits: the clock jumps to the next thing that happens. `ROCE_PCAP=dir` makes any
//! test write a capture; a random test that fails prints the seed and the command to repeat it.

mod common;

mod absent_memory;
mod blind_attackers;
mod congestion;
mod credits;
mod cut_paths;
mod deferred_ack;
mod driver_time;
mod duplicates;
mod gap_reports;
mod go_back_n_peers;
mod harness;
mod hostile;
mod hostile_cnps;
mod hostile_gap_reports;
mod hostile_unreliable;
mod idle;
mod kept_bytes;
mod kept_packets;
mod long;
mod many_qps;
mod marks;
mod model;
mod multicast;
mod order;
mod placement;
mod progress;
mod protection;
mod random_api_calls;
mod random_impairment;
mod random_packets;
mod rd_atomic_depth;
mod recovery;
mod responses;
mod retries;
mod rnr;
mod rxe_compat;
mod rxe_fixes;
mod scripts;
mod shared_receives;
mod sizes;
mod trains;
mod uc;
mod ud;
mod unreliable_scripts;
