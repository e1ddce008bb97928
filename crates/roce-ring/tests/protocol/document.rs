//! The plans against a naive implementation of the tables of `docs/ring-protocol.md`.

use rand::Rng;
use roce_ring::{
    Collective, DataType, Geometry, MemoryKind, Operation, Plan, ReduceOp, RingConfig, Side, Target,
};

use crate::repeat::for_each_case;
use crate::scenario;

/// A message of the tables, in elements.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Row {
    pass: u64,
    side: Side,
    step: u32,
    piece: u64,
    memory: MemoryKind,
    /// The index of the first element in the whole vector.
    first: u64,
    count: u64,
    window: bool,
    /// In the small-message algorithm: the index of the receive that comes before.
    in_line: bool,
    after: Option<u64>,
}

#[test]
fn plans_match_the_tables_of_the_specification() {
    for_each_case(600, |random| {
        let (size, config) = (scenario::size(random).max(2), scenario::config(random));
        let data_type = DataType::ALL[random.random_range(0..10)];
        let operation = scenario::operation(random, size, data_type);
        let rank = random.random_range(0..size);
        let geometry = Geometry::new(rank, size, config).unwrap();
        let rows = table(&operation, rank, size, &config);
        let received = table(&operation, geometry.previous(), size, &config);
        let chain = operation.collective.has_root();
        let in_line = rows.iter().any(|row| row.in_line);

        let sends: Vec<_> = Plan::new(&operation, &geometry).unwrap().sends().collect();
        assert_eq!(sends.len(), rows.len(), "{operation:?}, {geometry:?}");
        let element = data_type.size() as u64;
        for (index, (send, row)) in (0..).zip(sends.iter().zip(&rows)) {
            let same_piece = |found: &Row| {
                (found.pass, found.step + 1, found.piece) == (row.pass, row.step, row.piece)
            };
            let after = match row.step {
                _ if in_line => row.after,
                0 => None,
                _ if chain => Some(row.piece),
                _ => Some(received.iter().position(same_piece).unwrap() as u64),
            };
            let lane = match in_line {
                true => row.piece,
                false => index,
            };
            assert_eq!(
                (
                    (send.index, send.side, send.step),
                    send.lane,
                    send.from.memory,
                    send.from.len,
                    send.after
                ),
                (
                    (index, row.side, row.step),
                    (lane % u64::from(config.lanes)) as u32,
                    row.memory,
                    row.count * element,
                    after
                ),
                "{row:?} of {operation:?}, {geometry:?}"
            );
            // The tables leave open where scratch memory and the input of the own block lie.
            let gathers = operation.collective == Collective::AllGather;
            if row.memory == MemoryKind::Output || (row.memory == MemoryKind::Input && !gathers) {
                assert_eq!(send.from.offset, row.first * element);
            }
            let offset = row.first * element;
            let to = if row.window { Target::Window { offset } } else { Target::Slot };
            assert_eq!(send.to, to, "{row:?} of {operation:?}, {geometry:?}");
        }
    });
}

#[test]
fn an_operation_uses_the_small_message_algorithm_up_to_the_maximum() {
    let config = RingConfig { small_message_max: 60, slot_bytes: 600, ..RingConfig::default() };
    let geometry = Geometry::new(1, 3, config).unwrap();
    let first = |operation: &Operation| Plan::new(operation, &geometry).unwrap().sends().next();
    let windows =
        |operation: &Operation| Plan::new(operation, &geometry).unwrap().window_lanes().count();
    for (extra, small) in [(0, true), (1, false)] {
        let reduce = Operation::all_reduce(DataType::U8, ReduceOp::Sum, 60 + extra);
        // A contribution, or a third of one.
        assert_eq!(first(&reduce).unwrap().from.len == 60, small);
        let gather = Operation::all_gather(DataType::U8, 20 + extra);
        assert_eq!(first(&gather).unwrap().to == Target::Slot, small);
        let broadcast = Operation::broadcast(DataType::U8, 0, 60 + extra);
        for operation in [reduce, gather, broadcast] {
            assert_eq!(windows(&operation) == 0, small);
        }
    }
}

fn table(operation: &Operation, rank: u32, size: u32, config: &RingConfig) -> Vec<Row> {
    let Operation { collective, data_type, root, count, .. } = *operation;
    let element = data_type.size() as u64;
    let (n, r) = (u64::from(size), u64::from(rank));
    let around = |chunk: i64| chunk.rem_euclid(n as i64) as u64;
    let limit = u64::from(config.small_message_max.min(config.slot_bytes));
    let large = count * element > limit;
    let slot = config.slot_bytes / if config.split { config.lanes } else { 1 };
    let max_piece = u64::from(slot) / element;

    let mut rows = Vec::new();
    let mut step = |pass, step: u32, memory, first, count: u64, window| {
        for piece in 0..count.div_ceil(max_piece) {
            let done = piece * max_piece;
            let count = max_piece.min(count - done);
            let (side, in_line, after) = (Side::Next, false, None);
            let first = first + done;
            let row = Row { pass, side, step, piece, memory, first, count, window, in_line, after };
            rows.push(row);
        }
    };
    let later = |s: u32, memory| if s == 0 { MemoryKind::Input } else { memory };
    match collective {
        Collective::AllReduce if large => {
            let (q, x) = (count / n, count % n);
            for s in 0..2 * (size - 1) {
                let t = i64::from(s) - (i64::from(size) - 1);
                let c = around(if t < 0 { r as i64 - i64::from(s) } else { r as i64 + 1 - t });
                let (first, len) = (c * q + c.min(x), q + u64::from(c < x));
                step(0, s, later(s, MemoryKind::Output), first, len, t >= 0);
            }
            // Ordered by wave; the steps within a wave are in order already.
            let depth = u64::from(config.lanes * config.slots).div_ceil(2 * (n - 1));
            rows.sort_by_key(|row| row.piece + depth * u64::from(row.step));
        }
        Collective::AllReduce => {
            rows = line(rank, size, count, count.div_ceil(max_piece), max_piece)
        }
        Collective::ReduceScatter => {
            let pass_elements = max_piece * u64::from(config.slots / 2).max(1);
            for (pass, done) in (0..).zip((0..count).step_by(pass_elements as usize)) {
                for s in 0..size - 1 {
                    let c = around(r as i64 - i64::from(s) - 1);
                    let len = pass_elements.min(count - done);
                    step(pass, s, later(s, MemoryKind::Scratch), c * count + done, len, false);
                }
            }
        }
        Collective::AllGather => {
            for s in 0..size - 1 {
                let b = around(r as i64 - i64::from(s));
                let window = n * count * element > limit;
                step(0, s, later(s, MemoryKind::Output), b * count, count, window);
            }
        }
        Collective::Broadcast | Collective::Reduce => {
            let reduces = collective == Collective::Reduce;
            let start = i64::from(root) + i64::from(reduces);
            let d = around(r as i64 - start) as u32;
            let memory = later(d, if reduces { MemoryKind::Scratch } else { MemoryKind::Output });
            if d < size - 1 {
                step(0, d, memory, 0, count, !reduces && large);
            }
        }
        Collective::Barrier => rows = line(rank, size, 0, 1, max_piece),
    }
    rows
}

/// The small-message algorithm: the messages inwards, then those outwards.
fn line(rank: u32, size: u32, count: u64, pieces: u64, max_piece: u64) -> Vec<Row> {
    let last = size - 1;
    let left = 2 * rank < last;
    let (inwards, outwards) =
        if left { (Side::Next, Side::Previous) } else { (Side::Previous, Side::Next) };
    let is_end = rank == 0 || rank == last;
    let mut ways = Vec::new();
    if 2 * rank == last {
        ways.push((Side::Next, MemoryKind::Output, Some(pieces)));
        ways.push((Side::Previous, MemoryKind::Output, Some(pieces)));
    } else if is_end {
        ways.push((inwards, MemoryKind::Input, None));
    } else {
        ways.push((inwards, MemoryKind::Scratch, Some(0)));
        ways.push((outwards, MemoryKind::Output, Some(pieces)));
    }
    let mut rows = Vec::new();
    for (side, memory, after) in ways {
        let step = if side == Side::Next { rank } else { last - rank };
        rows.extend((0..pieces).map(|piece| {
            let first = piece * max_piece;
            let (count, after) = (max_piece.min(count - first), after.map(|base| base + piece));
            let (pass, window, in_line) = (0, false, true);
            Row { pass, side, step, piece, memory, first, count, window, in_line, after }
        }));
    }
    rows
}
