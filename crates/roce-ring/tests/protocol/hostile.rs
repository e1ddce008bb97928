//! Neighbours that violate the protocol.

use rand::Rng;
use roce_ring::{
    Action, DataType, Geometry, Immediate, Machine, MachineError, OpTag, Operation, ReduceOp,
    RingConfig, Side, UsageError, ViolationKind, WindowRecord,
};

use crate::repeat::for_each_case;
use crate::scenario;

#[test]
fn any_message_is_accepted_or_reported_as_a_violation() {
    for_each_case(2000, |random| {
        let size = scenario::size(random);
        let config = scenario::config(random);
        let mut machine =
            Machine::new(Geometry::new(random.random_range(0..size), size, config).unwrap());
        let mut ids = vec![0, u64::MAX];
        let mut labels = vec![OpTag { number: 0, signature: 0 }];
        for _ in 0..random.random_range(1..200) {
            let tag = labels[random.random_range(0..labels.len())];
            let immediate = match random.random_range(0..6) {
                0 => random.random(),
                1 => Immediate::Window(tag).to_bits(),
                2 => Immediate::Credit { consumed: random.random_range(0..20) }.to_bits(),
                3 => Immediate::Announce(tag).to_bits(),
                _ => Immediate::Slot(tag).to_bits(),
            };
            let one_too_many = u32::from(random.random_range(0..20) == 0);
            let lane = random.random_range(0..config.lanes + one_too_many);
            let len = [0, 24, 8, config.slot_bytes, random.random()][random.random_range(0..5)];
            let record = WindowRecord {
                addr: [0, u64::MAX - 1000, random.random()][random.random_range(0..3)],
                len: [0, 1 << 20, u64::MAX][random.random_range(0..3)],
                rkey: 0,
            };
            match random.random_range(0..6) {
                0 => {
                    let operation = scenario::operation(random, size, DataType::U64);
                    if let Ok(number) = machine.start(&operation, random.random()) {
                        let signature = operation.signature();
                        labels.push(OpTag { number: number as u16, signature });
                    }
                }
                1 | 2 => {
                    let side = [Side::Previous, Side::Next][random.random_range(0..2)];
                    drop(machine.handle_message(side, lane, immediate, len, || record));
                }
                3 => drop(machine.handle_sent(ids[random.random_range(0..ids.len())])),
                _ => {
                    for _ in 0..random.random_range(1..50) {
                        match machine.poll_action() {
                            Ok(Some(
                                Action::Write { id, .. }
                                | Action::Credit { id, .. }
                                | Action::Announce { id, .. },
                            )) => ids.push(id),
                            Ok(Some(_)) => {}
                            Ok(None) => break,
                            // A failed machine stays failed.
                            Err(violation) => {
                                assert_eq!(machine.poll_action(), Err(violation.clone()));
                                let over = machine.start(&Operation::barrier(), false);
                                assert_eq!(over, Err(UsageError::Over(violation)));
                                return;
                            }
                        }
                    }
                }
            }
        }
    });
}

#[test]
fn a_neighbour_in_another_operation_is_detected_by_its_signature() {
    let mut machine = summing(4);
    arrive(&mut machine, slot(0, sum(5).signature()), 4).unwrap();
    let expected = sum(4).signature();
    let found = sum(5).signature();
    assert_eq!(kind(&mut machine), ViolationKind::WrongSignature { number: 0, expected, found });
}

#[test]
fn a_neighbour_one_operation_ahead_is_detected_by_its_number() {
    let mut machine = summing(4);
    arrive(&mut machine, slot(1, sum(4).signature()), 16).unwrap();
    assert_eq!(kind(&mut machine), ViolationKind::WrongNumber { expected: 0, found: 1 });
}

#[test]
fn a_message_of_another_length_is_refused() {
    let mut machine = summing(4);
    arrive(&mut machine, slot(0, sum(4).signature()), 12).unwrap();
    assert_eq!(kind(&mut machine), ViolationKind::WrongLength { expected: 16, found: 12 });
}

#[test]
fn a_message_to_the_window_instead_of_a_slot_is_refused() {
    // A large operation: the previous rank sends first.
    let mut machine = summing(100);
    let found = Immediate::Window(OpTag { number: 0, signature: sum(100).signature() });
    let none = || unreachable!();
    machine.handle_message(Side::Previous, 0, found.to_bits(), 132, none).unwrap();
    assert_eq!(kind(&mut machine), ViolationKind::WrongKind { found });
}

#[test]
fn data_beyond_the_credit_is_refused() {
    let mut machine = machine();
    for _ in 0..16 {
        arrive(&mut machine, slot(0, 0), 16).unwrap();
    }
    let kind = fault(arrive(&mut machine, slot(0, 0), 16), Side::Next);
    assert_eq!(kind, ViolationKind::BeyondCredit { slots: 16 });
}

#[test]
fn a_credit_for_unsent_messages_or_for_none_is_refused() {
    for consumed in [0, 2, (1 << 30) - 1] {
        let mut machine = summing(4);
        assert!(matches!(machine.poll_action(), Ok(Some(Action::Write { .. }))));
        let immediate = Immediate::Credit { consumed }.to_bits();
        let kind = fault(arrive(&mut machine, immediate, 0), Side::Next);
        assert_eq!(kind, ViolationKind::WrongCredit { consumed, reported: 0, sent: 1 });
    }
}

#[test]
fn messages_on_the_wrong_side_are_refused() {
    let tag = OpTag { number: 0, signature: 0 };
    for (side, found, len) in
        [(Side::Previous, Immediate::Announce(tag), 24), (Side::Next, Immediate::Window(tag), 16)]
    {
        let mut machine = machine();
        let outcome = machine.handle_message(side, 0, found.to_bits(), len, || unreachable!());
        assert_eq!(fault(outcome, side), ViolationKind::WrongKind { found });
    }
}

/// A credit that was in flight while an operation ended is older than what the rank has inferred.
#[test]
fn a_credit_with_nothing_new_is_accepted_once() {
    let mut machine = machine();
    for number in 0..2 {
        machine.start(&sum(1), true).unwrap();
        drain(&mut machine);
        arrive(&mut machine, slot(number, sum(1).signature()), 4).unwrap();
        drain(&mut machine);
        assert!(machine.is_done());
    }
    let credit = Immediate::Credit { consumed: 1 }.to_bits();
    arrive(&mut machine, credit, 0).unwrap();
    let kind = fault(arrive(&mut machine, credit, 0), Side::Next);
    assert_eq!(kind, ViolationKind::WrongCredit { consumed: 1, reported: 1, sent: 2 });
}

#[test]
fn a_second_window_before_the_first_was_used_is_refused() {
    let mut machine = machine();
    announce(&mut machine, &gather(), RECORD).unwrap();
    let kind = fault(announce(&mut machine, &gather(), RECORD), Side::Next);
    assert_eq!(kind, ViolationKind::WindowTwice);
}

#[test]
fn a_window_that_cannot_hold_the_result_is_refused() {
    let short = WindowRecord { len: 2999, ..RECORD };
    let around = WindowRecord { addr: u64::MAX - 2998, ..RECORD };
    let fits = WindowRecord { addr: u64::MAX - 3000, ..RECORD };
    for (record, good) in [(short, false), (around, false), (fits, true)] {
        let mut machine = machine();
        machine.start(&gather(), false).unwrap();
        announce(&mut machine, &gather(), record).unwrap();
        let found = std::iter::from_fn(|| machine.poll_action().transpose())
            .find(|action| matches!(action, Err(_) | Ok(Action::Write { .. })));
        match found.unwrap() {
            Ok(_) => assert!(good, "{record:?}"),
            Err(violation) => {
                assert!(!good && matches!(violation.kind, ViolationKind::WindowTooShort { .. }));
            }
        }
    }
}

#[test]
fn a_window_of_another_operation_is_refused() {
    let mut machine = machine();
    machine.start(&gather(), false).unwrap();
    announce(&mut machine, &Operation::all_gather(DataType::U8, 1001), RECORD).unwrap();
    assert!(matches!(kind(&mut machine), ViolationKind::WrongSignature { .. }));
}

#[test]
fn misuse_by_the_caller_is_reported() {
    let mut machine = summing(4);
    assert_eq!(machine.start(&sum(4), false), Err(UsageError::Busy));
    let nowhere = machine.handle_message(Side::Next, 1, 0, 0, || unreachable!());
    assert_eq!(nowhere, Err(MachineError::Caller(UsageError::UnknownLane(1))));
    assert_eq!(machine.handle_sent(0), Err(UsageError::UnknownId(0)));
    let stray = Operation::broadcast(DataType::U8, 3, 1);
    assert!(matches!(self::machine().start(&stray, false), Err(UsageError::Operation(_))));
}

/// Misuse by the caller does not end the group and takes no operation number.
#[test]
fn a_refused_start_takes_no_operation_number() {
    let mut machine = machine();
    machine.start(&Operation::broadcast(DataType::U8, 3, 1), false).unwrap_err();
    assert_eq!(machine.start(&sum(1), false), Ok(0));
}

const RECORD: WindowRecord = WindowRecord { addr: 0x1000, len: 3000, rkey: 1 };

fn machine() -> Machine {
    Machine::new(
        Geometry::new(0, 3, RingConfig { small_message_max: 100, ..RingConfig::default() })
            .unwrap(),
    )
}

/// Returns rank 0 of 3, which has started to sum `count` floats.
fn summing(count: u64) -> Machine {
    let mut machine = machine();
    machine.start(&sum(count), false).unwrap();
    machine
}

fn sum(count: u64) -> Operation {
    Operation::all_reduce(DataType::F32, ReduceOp::Sum, count)
}

/// 3000 bytes in all.
fn gather() -> Operation {
    Operation::all_gather(DataType::U8, 1000)
}

fn slot(number: u16, signature: u16) -> u32 {
    Immediate::Slot(OpTag { number, signature }).to_bits()
}

fn announce(
    machine: &mut Machine,
    operation: &Operation,
    record: WindowRecord,
) -> Result<(), MachineError> {
    let tag = OpTag { number: 0, signature: operation.signature() };
    machine.handle_message(Side::Next, 0, Immediate::Announce(tag).to_bits(), 24, || record)
}

/// A message from the next rank, the only one that sends to rank 0 in the small-message algorithm.
fn arrive(machine: &mut Machine, immediate: u32, len: u32) -> Result<(), MachineError> {
    machine.handle_message(Side::Next, 0, immediate, len, || unreachable!())
}

/// Performs all actions; every send was copied.
fn drain(machine: &mut Machine) {
    while let Some(action) = machine.poll_action().unwrap() {
        if let Action::Write { id, .. } = action {
            machine.handle_copied(id).unwrap();
        }
    }
}

/// Returns the violation that the machine finds.
fn kind(machine: &mut Machine) -> ViolationKind {
    for _ in 0..100 {
        if let Err(violation) = machine.poll_action() {
            return violation.kind;
        }
    }
    panic!("nothing was found: {machine:?}");
}

fn fault(outcome: Result<(), MachineError>, side: Side) -> ViolationKind {
    match outcome {
        Err(MachineError::Peer(violation)) => {
            assert_eq!((violation.side, violation.lane), (side, 0));
            violation.kind
        }
        other => panic!("{other:?}"),
    }
}
