//! Symbolic elements: the position in the vector, and the ranks whose contributions it holds.

use roce_ring::{Collective, Compute, MemorySpan, Operation, RankBuffers, Work};

use crate::world::Arithmetic;

/// An element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Symbol {
    pub(crate) position: u64,
    /// Bit r: rank r's contribution is in it.
    pub(crate) ranks: u64,
}

/// All symbols; memory holds their 8-byte numbers.
#[derive(Default)]
pub(crate) struct Symbols(Vec<Symbol>);

impl Symbols {
    pub(crate) fn encode(&mut self, symbol: Symbol) -> [u8; 8] {
        self.0.push(symbol);
        (self.0.len() as u64 - 1).to_le_bytes()
    }

    pub(crate) fn decode(&self, bytes: &[u8]) -> Symbol {
        let number = u64::from_le_bytes(bytes.try_into().unwrap());
        *self.0.get(number as usize).expect("something was written there")
    }

    fn combine(&mut self, left: &[u8], right: &[u8]) -> [u8; 8] {
        let (left, right) = (self.decode(left), self.decode(right));
        assert_eq!(left.position, right.position, "other elements are combined");
        assert_eq!(left.ranks & right.ranks, 0, "a contribution is combined twice");
        self.encode(Symbol { ranks: left.ranks | right.ranks, ..left })
    }

    /// Returns the input of `rank`.
    pub(crate) fn input(&mut self, operation: &Operation, rank: u32, size: u32) -> Vec<u8> {
        let count = operation.input_count(rank, size).unwrap();
        let gather = operation.collective == Collective::AllGather;
        let first = if gather { u64::from(rank) * count } else { 0 };
        (first..first + count)
            .flat_map(|position| self.encode(Symbol { position, ranks: 1 << rank }))
            .collect()
    }

    /// Returns the expected output of `rank`.
    pub(crate) fn output(operation: &Operation, rank: u32, size: u32) -> Vec<Symbol> {
        let count = operation.output_count(rank, size).unwrap();
        let all = u64::MAX >> (64 - size);
        let symbol = |position: u64, ranks| Symbol { position, ranks };
        let output = (0..count).map(|j| match operation.collective {
            Collective::AllGather => symbol(j, 1 << (j / operation.count)),
            Collective::Broadcast => symbol(j, 1 << operation.root),
            Collective::ReduceScatter => symbol(u64::from(rank) * operation.count + j, all),
            _ => symbol(j, all),
        });
        output.collect()
    }
}

impl Arithmetic for &mut Symbols {
    fn execute(&mut self, compute: &Compute, memory: &mut RankBuffers) {
        let bytes = |memory: &RankBuffers, span: MemorySpan| memory.bytes(span).to_vec();
        let (result, into) = match compute.work {
            Work::Copy { from, into } => {
                let from = bytes(memory, from);
                for element in from.chunks_exact(8) {
                    self.decode(element);
                }
                (from, into)
            }
            Work::Reduce { left, right, into, .. } => {
                let (left, right) = (bytes(memory, left), bytes(memory, right));
                let pairs = left.chunks_exact(8).zip(right.chunks_exact(8));
                (pairs.flat_map(|(left, right)| self.combine(left, right)).collect(), into)
            }
        };
        memory.bytes_mut(into).copy_from_slice(&result);
    }
}
