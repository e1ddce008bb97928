//! Random rings and operations.

use rand::Rng;
use rand::rngs::StdRng;
use roce_ring::{Collective, DataType, Operation, ReduceOp, RingConfig};

/// Returns a configuration in which few bytes take many messages.
pub(crate) fn config(random: &mut StdRng) -> RingConfig {
    let lanes = random.random_range(1..=4);
    let split = random.random();
    let least = if split { 8 * lanes } else { 8 };
    RingConfig {
        lanes,
        slots: random.random_range(1..=9),
        slot_bytes: least + random.random_range(0..60),
        small_message_max: random.random_range(0..100),
        split,
    }
}

/// Small rings often, the largest sometimes.
pub(crate) fn size(random: &mut StdRng) -> u32 {
    match random.random_range(0..4) {
        0 => random.random_range(1..=64),
        1 => random.random_range(1..=16),
        _ => random.random_range(1..=5),
    }
}

pub(crate) fn operation(random: &mut StdRng, size: u32, data_type: DataType) -> Operation {
    let pick = random.random_range(0..Collective::ALL.len() + 3);
    // The first is the one that matters most.
    let collective = Collective::ALL.get(pick).copied().unwrap_or(Collective::AllReduce);
    let size = u64::from(size);
    let primes = [2, 3, 5, 7, 13, 31, 61, 127, 251];
    let count = match random.random_range(0..8) {
        0 => 0,
        1 => 1,
        2 => size - 1,
        3 => size,
        4 => size + 1,
        5 | 6 => primes[random.random_range(0..primes.len())],
        _ => random.random_range(0..400),
    };
    Operation {
        collective,
        data_type,
        op: ReduceOp::ALL[random.random_range(0..ReduceOp::ALL.len())],
        root: random.random_range(0..size as u32),
        count,
    }
}
