//! Two hosts send to a third through a switch whose queue marks: as the queue grows, so do the marks.

use std::time::Duration;

use roce_fabric::{
    EcnMarking, Fabric, FabricConfig, FabricEvent, FabricFrame, Instant, SwitchConfig, SwitchFrame,
    Topology,
};

const BITS_PER_SEC: u64 = 10_000_000_000;
const CLASS: usize = 3;
/// Frames of each sender.
const FRAMES: usize = 200;

#[derive(Debug)]
struct Frame {
    is_marked: bool,
}

impl SwitchFrame for Frame {
    fn len(&self) -> u64 {
        1226
    }
    fn class(&self) -> usize {
        CLASS
    }
    fn is_ecn_capable(&self) -> bool {
        true
    }
    fn mark_ce(&mut self) {
        self.is_marked = true;
    }
}

impl FabricFrame for Frame {
    fn destination(&self) -> usize {
        2
    }
}

fn main() {
    let mut switch = SwitchConfig::default();
    switch.marking[CLASS] = Some(EcnMarking { kmin: 20_000, kmax: 100_000, pmax: 0.2 });
    let config = FabricConfig { switch, ..FabricConfig::default() };
    let topology = Topology::star(3, BITS_PER_SEC, Duration::from_micros(1));
    let mut fabric = Fabric::new(topology, config);
    for _ in 0..FRAMES {
        for host in [0, 1] {
            fabric.send(host, Frame { is_marked: false });
        }
    }

    // Twice the rate of the link comes in, so half of all frames queue up, and then leave at the rate of the link.
    let (mut marks, mut last) = (Vec::new(), Instant::START);
    while let Some(event) = fabric.step(Instant::from_nanos(1_000_000_000)) {
        if let FabricEvent::Arrived { host: 2, frame } = event {
            marks.push(frame.is_marked);
            last = fabric.now();
        }
    }
    let marked = |frames: &[bool]| frames.iter().filter(|is_marked| **is_marked).count();
    let quarters: Vec<_> = marks.chunks(FRAMES / 2).map(marked).collect();
    println!("marked of each {} frames: {quarters:?}, in {last:?}", FRAMES / 2);

    assert_eq!(marks.len(), 2 * FRAMES, "the buffer holds all");
    assert_eq!(marked(&marks[..20]), 0, "the queue is short at first");
    assert!(quarters[0] < quarters[3] && quarters[3] > FRAMES / 4, "{quarters:?}");
}
