//! What a rank asks for stays within what its queues hold, and it asks for nothing in vain.

use roce_ring::{
    Action, DataType, Geometry, Immediate, Label, Machine, Misuse, Operation, ReduceOp, Settings,
    Work,
};

/// A neighbour's credit may be here long before the completion of what it is for.
#[test]
fn sends_that_are_not_completed_never_overflow_the_send_queue() {
    let (mut machine, label) = summing();
    let most = machine.geometry().sends_to_next();
    let (mut sent, mut first) = (0, None);
    for _ in 0..100 {
        while let Some(action) = machine.poll_action().unwrap() {
            if let Action::Write { id, .. } = action {
                sent += 1;
                first.get_or_insert(id);
            }
        }
        // Everything arrives and is reported, and nothing is completed.
        if sent < most {
            let credit = Immediate::Credit { consumed: sent };
            machine.handle_answer(0, credit.to_bits(), 0, || unreachable!()).unwrap();
            machine.handle_data(0, Immediate::Slot(label).to_bits(), 8).unwrap();
        }
    }
    assert_eq!(sent, most);
    // What the next one passes on.
    machine.handle_data(0, Immediate::Slot(label).to_bits(), 8).unwrap();
    machine
        .handle_answer(0, Immediate::Credit { consumed: sent }.to_bits(), 0, || unreachable!())
        .unwrap();
    assert_eq!(writes(&mut machine), 0);
    machine.handle_sent(first.unwrap()).unwrap();
    assert_eq!(writes(&mut machine), 1);
}

#[test]
fn answers_that_are_not_completed_never_overflow_the_send_queue() {
    let (mut machine, label) = summing();
    let most = machine.geometry().sends_to_previous();
    let (mut answers, mut first) = (0, None);
    for _ in 0..100 {
        // The previous rank sends when it has credit, as if every answer had reached it.
        let data = Immediate::Slot(label).to_bits();
        if machine.handle_data(0, data, 8).is_err() {
            break;
        }
        while let Some(action) = machine.poll_action().unwrap() {
            if let Action::Credit { id, .. } | Action::Announce { id, .. } = action {
                answers += 1;
                first.get_or_insert(id);
            }
        }
        if answers == most {
            // One more message is taken in, and its credit waits for a place.
            machine.handle_data(0, data, 8).unwrap();
            assert_eq!(credits(&mut machine), 0);
            machine.handle_sent(first.unwrap()).unwrap();
            assert_eq!(credits(&mut machine), 1);
            return;
        }
    }
    panic!("only {answers} answers of {most}");
}

/// Nobody waits for the acknowledgement of what was copied, but for a place in the queue.
#[test]
fn what_was_copied_keeps_no_operation_from_its_end() {
    let mut machine = Machine::new(Geometry::new(0, 2, Settings::default()).unwrap());
    let sum = Operation::all_reduce(DataType::F32, ReduceOp::Sum, 1);
    let most = u64::from(machine.geometry().sends_to_next());
    let mut last = 0;
    for number in 0..=most {
        machine.start(&sum, true).unwrap();
        let Some(Action::Write { id, .. }) = machine.poll_action().unwrap() else {
            assert_eq!(number, most, "the queue is full");
            assert_eq!(machine.handle_copied(last + 1), Err(Misuse::UnknownId(last + 1)));
            machine.handle_sent(last).unwrap();
            assert_eq!(writes(&mut machine), 1);
            return;
        };
        machine.handle_copied(id).unwrap();
        last = id;
        let label = Label { number: number as u16, signature: sum.signature() };
        machine.handle_data(0, Immediate::Slot(label).to_bits(), 4).unwrap();
        while let Some(action) = machine.poll_action().unwrap() {
            if let Action::Credit { id, .. } = action {
                machine.handle_sent(id).unwrap();
            }
        }
        assert!(machine.is_done(), "operation {number}");
        let consumed = number as u32 + 1;
        let credit = Immediate::Credit { consumed }.to_bits();
        machine.handle_answer(0, credit, 0, || unreachable!()).unwrap();
        while machine.poll_action().unwrap().is_some() {}
    }
    panic!("the send queue never filled");
}

#[test]
fn nothing_is_copied_in_place() {
    for (in_place, copies) in [(true, 0), (false, 1)] {
        let geometry = Geometry::new(1, 3, Settings::default()).unwrap();
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

/// Rank 0 in a long sum, of messages of one element, and what they are labelled with. Of so many
/// ranks that long nothing goes to a window.
fn summing() -> (Machine, Label) {
    let settings = Settings { slots: 2, slot_bytes: 8, small_limit: 0, ..Settings::default() };
    let sum = Operation::all_reduce(DataType::F64, ReduceOp::Sum, 3000);
    let mut machine = Machine::new(Geometry::new(0, 100, settings).unwrap());
    machine.start(&sum, false).unwrap();
    (machine, Label { number: 0, signature: sum.signature() })
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
