//! Operations allocate nothing.

use roce_ring::{
    Action, Collective, DataType, Geometry, Machine, Operation, ReduceOp, RingConfig, Side,
    WindowRecord,
};

#[test]
fn operations_allocate_nothing() {
    let size = 3;
    let config =
        RingConfig { lanes: 2, slot_bytes: 64, small_message_max: 64, ..RingConfig::default() };
    let mut ring: Vec<Machine> =
        (0..size).map(|rank| Machine::new(Geometry::new(rank, size, config).unwrap())).collect();
    let mut operations = Vec::new();
    for collective in Collective::ALL {
        for count in [0, 3, 1000] {
            let (data_type, op) = (DataType::F32, ReduceOp::Avg);
            operations.push(Operation { collective, data_type, op, root: 1, count });
        }
    }
    let allocations = allocation_counter::measure(|| {
        for operation in &operations {
            round(&mut ring, operation);
        }
    });
    assert_eq!(allocations.count_total, 0);
}

/// One operation of all ranks; every message arrives at once.
fn round(ring: &mut [Machine], operation: &Operation) {
    let size = ring.len();
    for machine in &mut *ring {
        machine.start(operation, false).unwrap();
    }
    // Every turn around the ring brings all ranks a step on, at least.
    for turn in 0.. {
        if ring.iter().all(Machine::is_done) {
            break;
        }
        assert!(turn < 1000, "the ring stands still");
        for rank in 0..size {
            let towards = |side: Side| match side {
                Side::Next => ((rank + 1) % size, Side::Previous),
                Side::Previous => ((rank + size - 1) % size, Side::Next),
            };
            while let Some(action) = ring[rank].poll_action().unwrap() {
                match action {
                    Action::Write { side, lane, id, immediate, from, .. } => {
                        let (there, back) = towards(side);
                        let len = from.len as u32;
                        let none = || unreachable!();
                        ring[there].handle_message(back, lane, immediate, len, none).unwrap();
                        ring[rank].handle_sent(id).unwrap();
                    }
                    Action::Credit { side, lane, id, immediate } => {
                        let (there, back) = towards(side);
                        let none = || unreachable!();
                        ring[there].handle_message(back, lane, immediate, 0, none).unwrap();
                        ring[rank].handle_sent(id).unwrap();
                    }
                    Action::Announce { lane, id, immediate, length } => {
                        let record = || WindowRecord { addr: 0, len: length, rkey: 0 };
                        let (there, back) = towards(Side::Previous);
                        ring[there].handle_message(back, lane, immediate, 24, record).unwrap();
                        ring[rank].handle_sent(id).unwrap();
                    }
                    Action::Rearm { .. } | Action::Compute(_) | Action::Received { .. } => {}
                }
            }
        }
    }
}
