//! Processors that other programs use up: latency, bandwidth and allreduce beside busy loops.

use crate::mpi::Binding::Free;
use crate::report::{Axis, Figure, Target};
use crate::suite::peers::roce::{self, Bandwidth, Size};
use crate::suite::peers::{iperf3, openmpi, sockets, sockperf};
use crate::suite::{Contestant, Pace, Row, Wire};

pub(super) fn rows(_pace: &Pace) -> Vec<Row> {
    vec![
        latency(),
        write("busy-write-64k", 64 << 10),
        write("busy-write-1m", 1 << 20),
        allreduce("busy-allreduce-one-float", 4, (10.0, 100.0), 500.0),
        allreduce("busy-allreduce-1m", 1 << 20, (5.0, 10.0), 5000.0),
    ]
}

fn latency() -> Row {
    let send = roce::latency("send", "send", Size::Fixed(8)).beside_busy_loops(20.0);
    let figures = [Figure::MicrosMean, Figure::Micros99];
    let beside = |figure| Target::beside("send", figure, "tcp-block").at_most(2.0);
    let mut targets: Vec<_> = figures.into_iter().map(beside).collect();
    targets.push(Target::beside("send", Figure::MicrosMedian, "tcp-block"));
    targets.push(Target::beside("send", Figure::Micros99, "sockperf"));
    Row {
        name: "busy-latency",
        title: "half round trip, 8 bytes, MTU 1500, beside busy loops".to_owned(),
        wire: Wire::Cable { mtu: 1500 },
        axis: None,
        contestants: vec![
            send,
            sockets::pingpong("tcp-block", "tcp", "block").beside_busy_loops(1.0),
            sockperf::pingpong("sockperf").beside_busy_loops(1.0),
        ],
        targets,
        notes: vec![LOOPS.to_owned(), format!("ours polls its completion queue; {POLLS}")],
    }
}

fn write(name: &'static str, bytes: u64) -> Row {
    let size = Size::Fixed(bytes);
    let contestant = |it: Contestant| it.beside_busy_loops(1.0);
    let large = iperf3::with_writes_of(size, "cubic-same", "cubic");
    Row {
        name,
        title: format!("WRITE, {} messages, MTU 4300, beside busy loops", Axis::Bytes.at(bytes)),
        wire: Wire::Cable { mtu: 4300 },
        axis: None,
        contestants: vec![
            contestant(
                Bandwidth { size, ..Bandwidth::of("write") }.contestant("roce", "roce write"),
            ),
            contestant(iperf3::contestant("cubic", "cubic")),
            contestant(large),
        ],
        targets: vec![
            Target::beside("roce", Figure::Gbits, "cubic").at_least(1.0),
            Target::beside("roce", Figure::Gbits, "cubic-same").at_least(1.0),
        ],
        notes: vec![
            LOOPS.to_owned(),
            format!(
                "our sender polls its completion queue, and the device's thread receives; {POLLS}"
            ),
        ],
    }
}

/// `slower`: how many times as long an operation of ours and one of Open MPI's take about.
fn allreduce(name: &'static str, bytes: u64, slower: (f64, f64), most: f64) -> Row {
    let (size, ranks) = (Size::Fixed(bytes), Size::Fixed(3));
    Row {
        name,
        title: format!(
            "allreduce, {}, 3 ranks, MTU 4300, beside busy loops",
            Axis::Bytes.at(bytes)
        ),
        wire: Wire::Switch { hosts: 3, mtu: 4300 },
        axis: None,
        contestants: vec![
            roce::allreduce("roce", size, ranks, Free).beside_busy_loops(slower.0),
            openmpi::allreduce("openmpi", size, ranks, Free).beside_busy_loops(slower.1),
        ],
        targets: vec![
            Target::alone("roce", Figure::MicrosMean).at_most(most),
            Target::beside("roce", Figure::MicrosMean, "openmpi"),
        ],
        notes: vec![
            LOOPS.to_owned(),
            format!("our ranks poll; {POLLS}. Open MPI's poll and yield"),
        ],
    }
}

const LOOPS: &str = "beside two endless loops of the shell bound to each processor, as long as \
    the run takes";
const POLLS: &str = "a poll that has lost a time slice by a yield blocks for up to 500 µs";
