//! The bodies of the fuzz targets: what a rank must stand, whatever its neighbours and the
//! hub say. Not part of the crate's interface; it exists for the fuzzer, and for the tests
//! that replay its corpora.
//!
//! | body | what the bytes say | what must hold |
//! |---|---|---|
//! | [`bootstrap`] | the lines of a peer | no panic; what is read is written and read again as the same |
//! | [`ring_machine`] | a ring, operations, and messages right and wrong | no panic; nothing outside buffers, credit and queues; honest neighbours are never blamed and always served; memory stays bounded |

mod buffers;
mod neighbours;
mod rank;
mod script;
#[cfg(test)]
mod tests;

use crate::{Collective, DataType, Immediate, Line, ReduceOp, WindowRecord};

use self::rank::Rank;
use self::script::Script;

/// A rank, and anything that its neighbours send.
pub fn ring_machine(bytes: &[u8]) {
    if let Some(rank) = Rank::new(Script::new(bytes)) {
        rank.run();
    }
}

/// Any bytes as lines, as names and as records.
pub fn bootstrap(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    for text in text.split('\n') {
        let Ok(line) = Line::parse(text) else { continue };
        let again = line.encode().expect("what is read may be sent");
        assert_eq!(Line::parse(&again), Ok(line.clone()));
        assert!(again.is_ascii() && again.len() <= Line::MAX_BYTES);
        for (key, value) in line.fields() {
            assert_eq!(line.value(key), Some(value));
            if let Ok(number) = line.number(key) {
                let said = Line::new("A").with("decimal", number);
                let said = said.with("hexadecimal", format_args!("{number:#x}"));
                assert_eq!(said.number("decimal"), Ok(number));
                assert_eq!(said.number("hexadecimal"), Ok(number));
            }
            if let Ok(data_type) = value.parse::<DataType>() {
                assert_eq!(data_type.name().parse(), Ok(data_type));
            }
            if let Ok(op) = value.parse::<ReduceOp>() {
                assert_eq!(op.name().parse(), Ok(op));
            }
            if let Ok(collective) = value.parse::<Collective>() {
                assert_eq!(collective.name().parse(), Ok(collective));
            }
        }
    }
    if let Some(bytes) = bytes.first_chunk::<{ WindowRecord::LEN }>() {
        let record = WindowRecord::from_bytes(bytes);
        assert_eq!(record.to_bytes()[..20], bytes[..20]);
    }
    if let Some(bytes) = bytes.first_chunk() {
        let bits = u32::from_be_bytes(*bytes);
        assert_eq!(Immediate::from_bits(bits).to_bits(), bits);
    }
}
