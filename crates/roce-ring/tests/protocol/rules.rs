//! Properties of the plans of neighbours.

use rand::Rng;
use roce_ring::{
    DataType, Geometry, MemoryKind, MemorySpan, OnReceive, Operation, OperationError, Plan,
    ReduceOp, RingConfig, Side, Target,
};

use crate::repeat::for_each_case;
use crate::scenario;

#[test]
fn the_nth_send_to_a_side_is_the_nth_receive_from_the_other() {
    for_each_case(300, |random| {
        let (size, config) = (scenario::size(random), scenario::config(random));
        let data_type = DataType::ALL[random.random_range(0..10)];
        let operation = scenario::operation(random, size, data_type);
        for rank in 0..size {
            let here = Geometry::new(rank, size, config).unwrap();
            let there = Geometry::new(here.next(), size, config).unwrap();
            let plan = Plan::new(&operation, &here).unwrap();
            let next = Plan::new(&operation, &there).unwrap();
            for (from, to, side) in [(&plan, &next, Side::Next), (&next, &plan, Side::Previous)] {
                let sends: Vec<_> = from
                    .sends()
                    .filter(|send| send.side == side)
                    .map(|send| (send.step, send.piece, send.lane, send.from.len, send.to))
                    .collect();
                let receives: Vec<_> = to
                    .receives()
                    .filter(|receive| receive.side == side.opposite())
                    .map(|r| (r.step, r.piece, r.lane, r.len, r.to))
                    .collect();
                assert_eq!(sends, receives, "{operation:?}, rank {rank} of {size}, {config:?}");
                let lanes = u64::from(config.lanes);
                let in_turn = |(n, send): (u64, &(u32, u64, u32, u64, Target))| {
                    u64::from(send.2) == n % lanes
                };
                assert!((0..).zip(&sends).all(in_turn), "the lanes are used in turn");
            }

            let mut lanes = Vec::new();
            for receive in next.receives() {
                if receive.to != Target::Slot && !lanes.contains(&receive.lane) {
                    lanes.push(receive.lane);
                }
            }
            assert_eq!(lanes, next.window_lanes().collect::<Vec<u32>>());
        }
    });
}

#[test]
fn every_span_lies_inside_its_buffer() {
    for_each_case(300, |random| {
        let (size, config) = (scenario::size(random), scenario::config(random));
        let data_type = DataType::ALL[random.random_range(0..10)];
        let operation = scenario::operation(random, size, data_type);
        let geometry = Geometry::new(random.random_range(0..size), size, config).unwrap();
        let plan = Plan::new(&operation, &geometry).unwrap();
        let (input, output) = operation.buffer_bytes(&geometry).unwrap();
        let inside = |span: MemorySpan| {
            let end = match span.memory {
                MemoryKind::Input => input,
                MemoryKind::Output => output,
                MemoryKind::Scratch => geometry.scratch_bytes(),
                MemoryKind::Slot { .. } => unreachable!("a plan names no slots"),
            };
            assert!(span.offset + span.len <= end, "{span:?} of {operation:?}, {geometry:?}");
        };
        for send in plan.sends() {
            inside(send.from);
            assert!(send.from.len <= config.slot_bytes.into());
        }
        for receive in plan.receives() {
            match receive.then {
                OnReceive::Nothing => {}
                OnReceive::Copy { into } => inside(into),
                OnReceive::Reduce { own, into, .. } => {
                    inside(own);
                    inside(into);
                }
            }
        }
    });
}

/// The table of `docs/ring-protocol.md`.
#[test]
fn the_plan_of_100000_floats_over_three_ranks_matches_the_specification() {
    let sum = Operation::all_reduce(DataType::F32, ReduceOp::Sum, 100_000);
    let plan = Plan::new(&sum, &Geometry::new(0, 3, RingConfig::default()).unwrap()).unwrap();
    let rows: Vec<_> = plan
        .sends()
        .map(|send| {
            let window = match send.to {
                Target::Slot => None,
                Target::Window { offset } => Some(offset),
            };
            let first = send.from.offset / 4;
            let last = first + send.from.len / 4 - 1;
            (send.step, send.piece, send.from.memory, first, last, window, send.after)
        })
        .collect();
    let expected = [
        (0, 0, MemoryKind::Input, 0, 32767, None, None),
        (0, 1, MemoryKind::Input, 32768, 33333, None, None),
        (1, 0, MemoryKind::Output, 66667, 99434, None, Some(0)),
        (1, 1, MemoryKind::Output, 99435, 99999, None, Some(1)),
        (2, 0, MemoryKind::Output, 33334, 66101, Some(133_336), Some(2)),
        (2, 1, MemoryKind::Output, 66102, 66666, Some(264_408), Some(3)),
        (3, 0, MemoryKind::Output, 0, 32767, Some(0), Some(4)),
        (3, 1, MemoryKind::Output, 32768, 33333, Some(131_072), Some(5)),
    ];
    assert_eq!(rows, expected);
}

/// The line below that table.
#[test]
fn a_piece_is_forwarded_before_the_last_piece_of_its_step_arrives() {
    let sum = Operation::all_reduce(DataType::F32, ReduceOp::Sum, 300_000);
    let config = RingConfig { slots: 8, ..RingConfig::default() };
    let plan = Plan::new(&sum, &Geometry::new(0, 3, config).unwrap()).unwrap();
    let rows: Vec<_> = plan.sends().map(|send| (send.step, send.piece, send.after)).collect();
    let expected = [
        (0, 0, None),
        (0, 1, None),
        (0, 2, None),
        (1, 0, Some(0)),
        (0, 3, None),
        (1, 1, Some(1)),
        (1, 2, Some(2)),
        (2, 0, Some(3)),
        (1, 3, Some(4)),
        (2, 1, Some(5)),
        (2, 2, Some(6)),
        (3, 0, Some(7)),
        (2, 3, Some(8)),
        (3, 1, Some(9)),
        (3, 2, Some(10)),
        (3, 3, Some(12)),
    ];
    assert_eq!(rows, expected);
}

#[test]
fn the_largest_plan_costs_no_more_than_a_small_one() {
    for collective in roce_ring::Collective::ALL {
        let (data_type, op) = (DataType::F64, ReduceOp::Avg);
        let count = (1 << 63) / 8 / 1000 - 1;
        let operation = Operation { collective, data_type, op, root: 3, count };
        let config = RingConfig { slot_bytes: 8, slots: 1, ..RingConfig::default() };
        let geometry = Geometry::new(2, 1000, config).unwrap();
        if collective == roce_ring::Collective::AllReduce {
            // Finding the lanes of the windows visits all messages first.
            let refused = Plan::new(&operation, &geometry).unwrap_err();
            assert!(matches!(refused, OperationError::TooManyMessages { .. }), "{refused}");
            continue;
        }
        let plan = Plan::new(&operation, &geometry).unwrap();
        assert!(plan.sends().take(1000).all(|send| send.from.len <= 8));
        assert!(plan.receives().take(1000).all(|receive| receive.len <= 8));
        assert!(plan.window_lanes().next().is_none_or(|lane| lane == 0));
    }
}

#[test]
fn the_number_of_messages_of_an_all_reduce_is_bounded() {
    let config = RingConfig { slot_bytes: 8, slots: 1, ..RingConfig::default() };
    for size in [2, 3, 1000, 65_536] {
        let geometry = Geometry::new(size - 1, size, config).unwrap();
        // The most pieces of a chunk, one element each.
        let pieces = (1 << 22) / (2 * (u64::from(size) - 1));
        let count = pieces * u64::from(size);
        let sum = |count| Operation::all_reduce(DataType::F64, ReduceOp::Sum, count);
        let lanes: Vec<u32> = Plan::new(&sum(count), &geometry).unwrap().window_lanes().collect();
        assert_eq!(lanes, [0]);
        let refused = Plan::new(&sum(count + 1), &geometry).unwrap_err();
        assert!(matches!(refused, OperationError::TooManyMessages { .. }), "{size}: {refused}");
    }
}
