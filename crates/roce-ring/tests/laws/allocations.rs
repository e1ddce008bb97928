//! Operations allocate nothing.

use roce_ring::{
    Action, Collective, DataType, Geometry, Machine, Operation, ReduceOp, Settings, WindowRecord,
};

#[test]
fn operations_allocate_nothing() {
    let size = 3;
    let settings = Settings { lanes: 2, slot_bytes: 64, small_limit: 64, ..Settings::default() };
    let mut ring: Vec<Machine> =
        (0..size).map(|rank| Machine::new(Geometry::new(rank, size, settings).unwrap())).collect();
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
            let (next, previous) = ((rank + 1) % size, (rank + size - 1) % size);
            while let Some(action) = ring[rank].poll_action().unwrap() {
                match action {
                    Action::Write { lane, id, immediate, from, .. } => {
                        ring[next].handle_data(lane, immediate, from.len as u32).unwrap();
                        ring[rank].handle_sent(id).unwrap();
                    }
                    Action::Credit { lane, id, immediate } => {
                        ring[previous]
                            .handle_answer(lane, immediate, 0, || unreachable!())
                            .unwrap();
                        ring[rank].handle_sent(id).unwrap();
                    }
                    Action::Announce { lane, id, immediate, length } => {
                        let record = WindowRecord { address: 0, length, key: 0 };
                        ring[previous].handle_answer(lane, immediate, 24, || record).unwrap();
                        ring[rank].handle_sent(id).unwrap();
                    }
                    Action::Rearm { .. } | Action::Compute(_) | Action::Received { .. } => {}
                }
            }
        }
    }
}
