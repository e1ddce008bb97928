//! Three ranks sum a vector: this program is their network, and the memory of each.

use std::error::Error;

use roce_ring::{
    Action, DataType, Geometry, Machine, MemoryKind, Operation, RankMemory, ReduceOp, Remote,
    RingConfig, Side, Workspace,
};

const RANKS: u32 = 3;
const VALUES: [u64; 6] = [1, 2, 3, 4, 5, 6];

/// A rank's memory. Input and output of the operation are the same.
struct Memory {
    vector: Vec<u8>,
    scratch: Vec<u8>,
    /// What each neighbour writes into.
    staging: [Vec<u8>; 2],
    slot_bytes: u64,
}

impl Memory {
    fn bytes(&mut self, memory: MemoryKind, offset: u64, len: usize) -> &mut [u8] {
        let (whole, start) = match memory {
            MemoryKind::Input | MemoryKind::Output => (&mut self.vector, 0),
            MemoryKind::Scratch => (&mut self.scratch, 0),
            MemoryKind::Slot { side, index, .. } => {
                (&mut self.staging[side as usize], u64::from(index) * self.slot_bytes)
            }
        };
        &mut whole[(start + offset) as usize..][..len]
    }
}

impl RankMemory for Memory {
    fn read(&mut self, memory: MemoryKind, offset: u64, into: &mut [u8]) {
        into.copy_from_slice(self.bytes(memory, offset, into.len()));
    }

    fn write(&mut self, memory: MemoryKind, offset: u64, bytes: &[u8]) {
        self.bytes(memory, offset, bytes.len()).copy_from_slice(bytes);
    }
}

fn rank(number: u32) -> Result<(Machine, Memory), Box<dyn Error>> {
    let config = RingConfig::default();
    let geometry = Geometry::new(number, RANKS, config)?;
    let staging = [geometry.staging_bytes(), geometry.back_staging_bytes()];
    let memory = Memory {
        vector: VALUES.iter().flat_map(|value| (value << number).to_le_bytes()).collect(),
        scratch: vec![0; geometry.scratch_bytes() as usize],
        staging: staging.map(|bytes| vec![0; bytes as usize]),
        slot_bytes: u64::from(config.slot_bytes),
    };
    Ok((Machine::new(geometry), memory))
}

/// Returns the number of a rank's neighbour.
fn neighbour(rank: usize, side: Side) -> usize {
    let step = if side == Side::Next { 1 } else { RANKS as usize - 1 };
    (rank + step) % RANKS as usize
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut ranks = (0..RANKS).map(rank).collect::<Result<Vec<_>, _>>()?;
    let sum = Operation::all_reduce(DataType::U64, ReduceOp::Sum, VALUES.len() as u64);
    for (machine, _) in &mut ranks {
        machine.start(&sum, true)?;
    }

    let (mut workspace, mut messages) = (Workspace::new(), 0);
    while !ranks.iter().all(|(machine, _)| machine.is_done()) {
        for rank in 0..ranks.len() {
            let (machine, memory) = &mut ranks[rank];
            let Some(action) = machine.poll_action()? else { continue };
            match action {
                Action::Write { side, lane, id, from, to, immediate, .. } => {
                    let Remote::Slot { offset, .. } = to else { return Err("no window".into()) };
                    let bytes = memory.bytes(from.memory, from.offset, from.len as usize).to_vec();
                    machine.handle_sent(id)?;
                    let (peer, memory) = &mut ranks[neighbour(rank, side)];
                    let (side, len) = (side.opposite(), bytes.len() as u32);
                    memory.staging[side as usize][offset as usize..][..bytes.len()]
                        .copy_from_slice(&bytes);
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
    assert!(ranks.iter().all(|(_, memory)| memory.vector == expected));
    println!("{RANKS} ranks have the sums, after {messages} messages");
    Ok(())
}
