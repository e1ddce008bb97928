//! The bodies of the fuzz targets: a rank must withstand any input from its neighbours. For the
//! fuzzer and for the tests that replay its corpora; not part of the crate's interface.
//!
//! | body | what the bytes say | what must hold |
//! |---|---|---|
//! | [`records`] | a window record and an immediate | what is read is written as the same |
//! | [`ring_machine`] | a ring, operations, and messages right and wrong | no panic; nothing outside buffers, credit and queues; honest neighbours are never blamed and always served; memory stays bounded |

mod buffers;
mod neighbours;
mod rank;
#[cfg(test)]
mod tests;

use crate::{Immediate, WindowRecord};

use self::rank::Rank;
use roce_fuzz_support::Script;

/// Runs a rank with arbitrary messages from its neighbours.
pub fn ring_machine(bytes: &[u8]) {
    if let Some(rank) = Rank::new(Script::new(bytes)) {
        rank.run();
    }
}

/// Decodes any bytes as a window record and as an immediate.
pub fn records(bytes: &[u8]) {
    if let Some(bytes) = bytes.first_chunk::<{ WindowRecord::LEN }>() {
        let record = WindowRecord::from_bytes(bytes);
        assert_eq!(record.to_bytes()[..20], bytes[..20]);
    }
    if let Some(bytes) = bytes.first_chunk() {
        let bits = u32::from_be_bytes(*bytes);
        assert_eq!(Immediate::from_bits(bits).to_bits(), bits);
    }
}
