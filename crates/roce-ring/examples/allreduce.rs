//! Three ranks sum a vector: this program is their network.

use std::error::Error;

use roce_ring::{
    Action, DataType, Geometry, Machine, MemoryKind, MemorySpan, Operation, RankBuffers, ReduceOp,
    Remote, RingConfig, Side, Workspace,
};

const RANKS: u32 = 3;
const VALUES: [u64; 6] = [1, 2, 3, 4, 5, 6];

fn rank(number: u32, sum: &Operation) -> Result<(Machine, RankBuffers), Box<dyn Error>> {
    let geometry = Geometry::new(number, RANKS, RingConfig::default())?;
    let (mut machine, mut memory) = (Machine::new(geometry), RankBuffers::new(geometry, 0));
    let vector: Vec<u8> = VALUES.iter().flat_map(|value| (value << number).to_le_bytes()).collect();
    // Input and output of the operation are the same.
    memory.begin(sum, true, &vector);
    machine.start(sum, true)?;
    Ok((machine, memory))
}

/// Returns the number of a rank's neighbour.
fn neighbour(rank: usize, side: Side) -> usize {
    let step = if side == Side::Next { 1 } else { RANKS as usize - 1 };
    (rank + step) % RANKS as usize
}

fn main() -> Result<(), Box<dyn Error>> {
    let sum = Operation::all_reduce(DataType::U64, ReduceOp::Sum, VALUES.len() as u64);
    let mut ranks = (0..RANKS).map(|it| rank(it, &sum)).collect::<Result<Vec<_>, _>>()?;

    let (mut workspace, mut messages) = (Workspace::new(), 0);
    while !ranks.iter().all(|(machine, _)| machine.is_done()) {
        for rank in 0..ranks.len() {
            let (machine, memory) = &mut ranks[rank];
            let Some(action) = machine.poll_action()? else { continue };
            match action {
                Action::Write { side, lane, id, from, to, immediate, .. } => {
                    let Remote::Slot { index, .. } = to else { return Err("no window".into()) };
                    let bytes = memory.bytes(from).to_vec();
                    machine.handle_sent(id)?;
                    let (peer, memory) = &mut ranks[neighbour(rank, side)];
                    let (side, len) = (side.opposite(), bytes.len() as u32);
                    let slot = MemoryKind::Slot { side, lane, index };
                    memory.bytes_mut(MemorySpan::new(slot, 0, from.len)).copy_from_slice(&bytes);
                    peer.handle_message(side, lane, immediate, len, || unreachable!("no window"))?;
                    messages += 1;
                }
                Action::Credit { side, lane, id, immediate } => {
                    machine.handle_sent(id)?;
                    let (peer, _) = &mut ranks[neighbour(rank, side)];
                    let side = side.opposite();
                    peer.handle_message(side, lane, immediate, 0, || unreachable!("no window"))?;
                }
                Action::Compute(compute) => workspace.execute(&compute, memory),
                // Queue pairs would have to be given receives; this network needs none.
                Action::Rearm { .. } | Action::Received { .. } => {}
                Action::Announce { .. } => return Err("small vectors go through slots".into()),
            }
        }
    }

    let expected: Vec<u8> = VALUES.iter().flat_map(|value| (7 * value).to_le_bytes()).collect();
    assert!(ranks.iter().all(|(_, memory)| memory.output() == expected));
    println!("{RANKS} ranks have the sums, after {messages} messages");
    Ok(())
}
