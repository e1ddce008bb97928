//! UC and UD beside RC. They have no window: what the receiver has no room for is lost, and named
//! in the row.

use crate::report::{Comparison, Figure};
use crate::suite::candidates::roce::{Bandwidth, Size};
use crate::suite::{Benchmark, Topology};

/// All benchmarks of services without acknowledgements.
pub(super) fn benchmarks() -> Vec<Benchmark> {
    vec![megabyte(), datagrams()]
}

fn megabyte() -> Benchmark {
    let rc = Bandwidth { working_set: WORKING_SET, ..Bandwidth::of("write") };
    Benchmark {
        name: "services-1m",
        title: "WRITE, 1 MiB messages, MTU 4300, working set 64 MiB".to_owned(),
        topology: Topology::Cable { mtu: 4300 },
        axis: None,
        candidates: vec![
            rc.candidate("rc", "RC"),
            Bandwidth { service: "UC", ..rc }.candidate("uc", "UC"),
        ],
        comparisons: vec![Comparison::beside("uc", Figure::Gbits, "rc").at_least(1.0)],
        notes: Vec::new(),
    }
}

fn datagrams() -> Benchmark {
    let size = Size::Fixed(4096);
    let rc = Bandwidth { size, list: LIST, working_set: WORKING_SET, ..Bandwidth::of("send") };
    let rc = Bandwidth { receives: RECEIVES, ..rc };
    Benchmark {
        name: "services-4k",
        title: "SEND, 4 KiB messages in lists of 64, MTU 4300, working set 64 MiB".to_owned(),
        topology: Topology::Cable { mtu: 4300 },
        axis: None,
        candidates: vec![
            rc.candidate("rc", "RC"),
            Bandwidth { service: "UD", ..rc }.candidate("ud", "UD"),
        ],
        comparisons: vec![Comparison::beside("ud", Figure::Gbits, "rc").at_least(1.0)],
        notes: Vec::new(),
    }
}

/// Messages posted with one call.
const LIST: u32 = 64;
/// Receives of a queue pair: more than the ring of its interface holds messages.
const RECEIVES: u32 = 16384;
/// Bytes.
const WORKING_SET: u64 = 64 << 20;
