//! The types of a buffer's elements.

use roce_collectives::DataType;

/// Returns the data type of elements that a buffer describes with a format of the module `struct` and
/// their size in bytes; `None` where collectives have no such type.
///
/// Sizes decide where formats do not: `l` has eight bytes or four.
pub(crate) fn data_type(format: &[u8], size: usize) -> Option<DataType> {
    let code = match format {
        [code] | [b'@' | b'=' | b'<', code] => *code,
        _ => return None,
    };
    let found = match (code, size) {
        (b'b', 1) => DataType::I8,
        (b'B' | b'c', 1) => DataType::U8,
        (b'i' | b'l' | b'q' | b'n', 4) => DataType::I32,
        (b'i' | b'l' | b'q' | b'n', 8) => DataType::I64,
        (b'I' | b'L' | b'Q' | b'N', 4) => DataType::U32,
        (b'I' | b'L' | b'Q' | b'N', 8) => DataType::U64,
        (b'e', 2) => DataType::F16,
        (b'f', 4) => DataType::F32,
        (b'd', 8) => DataType::F64,
        _ => return None,
    };
    Some(found)
}
