//! The actions of a rank respect the depths of its queues.

use roce_ring::{
    Action, DataType, Geometry, Immediate, Machine, MachineError, OpTag, Operation, ReduceOp,
    RingConfig, Side, UsageError, Work,
};

/// A neighbour's credit may arrive long before the completion of the message that it reports.
#[test]
fn outstanding_sends_never_overflow_the_send_queue() {
    let (mut machine, tag) = summing(2);
    // The most data: credits and windows have entries of their own.
    let most = 4 * machine.geometry().slots();
    let (mut sent, mut first) = (0, None);
    for _ in 0..100 {
        while let Some(action) = machine.poll_action().unwrap() {
            if let Action::Write { id, .. } = action {
                sent += 1;
                first.get_or_insert(id);
            }
        }
        // All messages arrive and are reported, and none completes.
        if sent < most {
            let credit = Immediate::Credit { consumed: sent };
            arrive(&mut machine, Side::Next, credit, 0).unwrap();
            arrive(&mut machine, Side::Previous, Immediate::Slot(tag), 8).unwrap();
        }
    }
    assert_eq!(sent, most);
    // The messages that the next rank forwards.
    arrive(&mut machine, Side::Previous, Immediate::Slot(tag), 8).unwrap();
    arrive(&mut machine, Side::Next, Immediate::Credit { consumed: sent }, 0).unwrap();
    assert_eq!(writes(&mut machine), 0);
    machine.handle_sent(first.unwrap()).unwrap();
    assert_eq!(writes(&mut machine), 1);
}

#[test]
fn a_credit_is_sent_once_half_of_the_slots_are_consumed() {
    for (slots, every) in [(1, 1), (2, 1), (3, 1), (4, 2), (5, 2), (16, 8)] {
        let (mut machine, tag) = summing(slots);
        for consumed in 1..=4 * slots {
            arrive(&mut machine, Side::Previous, Immediate::Slot(tag), 8).unwrap();
            let is_due = consumed.is_multiple_of(every);
            assert_eq!(credits(&mut machine), is_due.into(), "{consumed} with {slots} slots");
        }
    }
}

#[test]
fn outstanding_credits_never_overflow_the_send_queue() {
    let (mut machine, tag) = summing(2);
    let most = 4 * machine.geometry().slots() + 2;
    let (mut answers, mut first) = (0, None);
    for _ in 0..100 {
        // The previous rank sends with credit, as if every credit had arrived.
        let data = Immediate::Slot(tag);
        if arrive(&mut machine, Side::Previous, data, 8).is_err() {
            break;
        }
        while let Some(action) = machine.poll_action().unwrap() {
            if let Action::Credit { id, .. } | Action::Announce { id, .. } = action {
                answers += 1;
                first.get_or_insert(id);
            }
        }
        if answers == most {
            // One more message is consumed, and its credit waits for a queue entry.
            arrive(&mut machine, Side::Previous, data, 8).unwrap();
            assert_eq!(credits(&mut machine), 0);
            machine.handle_sent(first.unwrap()).unwrap();
            assert_eq!(credits(&mut machine), 1);
            return;
        }
    }
    panic!("only {answers} answers of {most}");
}

/// Only the send queue depends on the acknowledgement of a copied message.
#[test]
fn an_operation_ends_without_completions_of_copied_sends() {
    let mut machine = Machine::new(Geometry::new(0, 2, RingConfig::default()).unwrap());
    let sum = Operation::all_reduce(DataType::F32, ReduceOp::Sum, 1);
    let most = u64::from(4 * machine.geometry().slots());
    let mut last = 0;
    for number in 0..=most {
        machine.start(&sum, true).unwrap();
        let Some(Action::Write { id, .. }) = machine.poll_action().unwrap() else {
            assert_eq!(number, most, "the queue is full");
            assert_eq!(machine.handle_copied(last + 1), Err(UsageError::UnknownId(last + 1)));
            machine.handle_sent(last).unwrap();
            assert_eq!(writes(&mut machine), 1);
            return;
        };
        machine.handle_copied(id).unwrap();
        last = id;
        let tag = OpTag { number: number as u16, signature: sum.signature() };
        arrive(&mut machine, Side::Next, Immediate::Slot(tag), 4).unwrap();
        while machine.poll_action().unwrap().is_some() {}
        assert!(machine.is_done(), "operation {number}");
    }
    panic!("the send queue never filled");
}

#[test]
fn an_operation_in_place_has_no_local_copy() {
    for (in_place, copies) in [(true, 0), (false, 1)] {
        let geometry = Geometry::new(1, 3, RingConfig::default()).unwrap();
        let mut machine = Machine::new(geometry);
        machine.start(&Operation::all_gather(DataType::F32, 5), in_place).unwrap();
        let found = std::iter::from_fn(|| machine.poll_action().unwrap())
            .filter(|action| {
                matches!(action, Action::Compute(compute) if matches!(compute.work, Work::Copy { .. }))
            })
            .count();
        assert_eq!(found, copies, "in place: {in_place}");
    }
}

/// The neighbour whose message came last has just yielded its core, if it shares one.
#[test]
fn the_middle_rank_sends_the_result_to_the_earlier_neighbour_first() {
    let (sum, barrier) =
        (Operation::all_reduce(DataType::F32, ReduceOp::Sum, 1), Operation::barrier());
    let mut machine = Machine::new(Geometry::new(1, 3, RingConfig::default()).unwrap());
    let runs = [(sum, 4), (sum, 4), (barrier, 0), (barrier, 0), (sum, 4)];
    for (number, (operation, len)) in (0..).zip(runs) {
        machine.start(&operation, false).unwrap();
        let first = if number % 2 == 0 { Side::Previous } else { Side::Next };
        let tag = OpTag { number, signature: operation.signature() };
        for side in [first, first.opposite()] {
            assert_eq!(writes(&mut machine), 0);
            arrive(&mut machine, side, Immediate::Slot(tag), len).unwrap();
        }
        let mut answered = vec![];
        while let Some(action) = machine.poll_action().unwrap() {
            if let Action::Write { side, id, .. } = action {
                machine.handle_copied(id).unwrap();
                answered.push(side);
            }
        }
        assert_eq!(answered, [first, first.opposite()], "operation {number}");
        assert!(machine.is_done());
    }
}

/// Returns rank 0 in a long sum with messages of one element, and their tag. With this many ranks
/// the first messages all go to slots.
fn summing(slots: u32) -> (Machine, OpTag) {
    let config = RingConfig { slots, slot_bytes: 8, small_message_max: 0, ..RingConfig::default() };
    let sum = Operation::all_reduce(DataType::F64, ReduceOp::Sum, 3000);
    let mut machine = Machine::new(Geometry::new(0, 100, config).unwrap());
    machine.start(&sum, false).unwrap();
    (machine, OpTag { number: 0, signature: sum.signature() })
}

fn arrive(
    machine: &mut Machine,
    side: Side,
    immediate: Immediate,
    len: u32,
) -> Result<(), MachineError> {
    machine.handle_message(side, 0, immediate.to_bits(), len, || unreachable!())
}

fn writes(machine: &mut Machine) -> usize {
    count(machine, |action| matches!(action, Action::Write { .. }))
}

fn credits(machine: &mut Machine) -> usize {
    count(machine, |action| matches!(action, Action::Credit { .. }))
}

fn count(machine: &mut Machine, what: impl Fn(&Action) -> bool) -> usize {
    std::iter::from_fn(|| machine.poll_action().unwrap()).filter(what).count()
}

/// The end of an operation implies that the messages of earlier ones are consumed.
#[test]
fn sums_of_one_element_need_no_credit() {
    for (rank, sides) in
        [(0, vec![Side::Next]), (1, vec![Side::Previous, Side::Next]), (2, vec![Side::Previous])]
    {
        let mut machine = Machine::new(Geometry::new(rank, 3, RingConfig::default()).unwrap());
        let sum = Operation::all_reduce(DataType::F32, ReduceOp::Sum, 1);
        for number in 0..100 {
            machine.start(&sum, false).unwrap();
            let tag = OpTag { number, signature: sum.signature() };
            for side in &sides {
                arrive(&mut machine, *side, Immediate::Slot(tag), 4).unwrap();
            }
            while let Some(action) = machine.poll_action().unwrap() {
                match action {
                    Action::Write { id, .. } => machine.handle_sent(id).unwrap(),
                    Action::Credit { .. } => panic!("a credit in operation {number}"),
                    _ => {}
                }
            }
            assert!(machine.is_done(), "rank {rank}, operation {number}");
        }
    }
}
