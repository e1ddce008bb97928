//! The types of elements.

use std::fmt;
use std::str::FromStr;

/// The type of a vector's elements, little-endian in memory.
///
/// ```
/// use roce_ring::DataType;
///
/// let half: DataType = "half".parse().unwrap();
/// assert_eq!(half, DataType::F16);
/// assert_eq!((half.size(), half.code(), half.name()), (2, 6, "half"));
/// assert_eq!("f16".parse(), Ok(DataType::F16));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DataType {
    /// Signed, 8 bits.
    I8 = 0,
    /// Unsigned, 8 bits.
    U8 = 1,
    /// Signed, 32 bits.
    I32 = 2,
    /// Unsigned, 32 bits.
    U32 = 3,
    /// Signed, 64 bits.
    I64 = 4,
    /// Unsigned, 64 bits.
    U64 = 5,
    /// IEEE 754 half precision.
    F16 = 6,
    /// IEEE 754 single precision.
    F32 = 7,
    /// IEEE 754 double precision.
    F64 = 8,
    /// The upper half of a single: 8 bits of exponent, 8 of significand.
    Bf16 = 9,
}

impl DataType {
    /// All types, in the order of their codes.
    pub const ALL: [Self; 10] = [
        Self::I8,
        Self::U8,
        Self::I32,
        Self::U32,
        Self::I64,
        Self::U64,
        Self::F16,
        Self::F32,
        Self::F64,
        Self::Bf16,
    ];

    /// Returns the bytes per element: 1, 2, 4 or 8.
    pub const fn size(self) -> usize {
        match self {
            Self::I8 | Self::U8 => 1,
            Self::F16 | Self::Bf16 => 2,
            Self::I32 | Self::U32 | Self::F32 => 4,
            Self::I64 | Self::U64 | Self::F64 => 8,
        }
    }

    /// Returns the type's code in messages, which is NCCL's.
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// Returns the name that nccl-tests prints.
    pub const fn name(self) -> &'static str {
        match self {
            Self::I8 => "int8",
            Self::U8 => "uint8",
            Self::I32 => "int32",
            Self::U32 => "uint32",
            Self::I64 => "int64",
            Self::U64 => "uint64",
            Self::F16 => "half",
            Self::F32 => "float",
            Self::F64 => "double",
            Self::Bf16 => "bfloat16",
        }
    }

    /// Returns true if operations may round.
    pub const fn is_float(self) -> bool {
        matches!(self, Self::F16 | Self::F32 | Self::F64 | Self::Bf16)
    }

    /// Returns true if the type has negative values.
    pub const fn is_signed(self) -> bool {
        !matches!(self, Self::U8 | Self::U32 | Self::U64)
    }
}

impl fmt::Display for DataType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for DataType {
    type Err = UnknownDataType;

    /// Parses nccl-tests' names and Rust's (`f32`, `u8`, `bf16`).
    fn from_str(text: &str) -> Result<Self, UnknownDataType> {
        Ok(match text {
            "int8" | "i8" | "char" => Self::I8,
            "uint8" | "u8" => Self::U8,
            "int32" | "i32" | "int" => Self::I32,
            "uint32" | "u32" => Self::U32,
            "int64" | "i64" => Self::I64,
            "uint64" | "u64" => Self::U64,
            "half" | "f16" | "float16" => Self::F16,
            "float" | "f32" | "float32" => Self::F32,
            "double" | "f64" | "float64" => Self::F64,
            "bfloat16" | "bf16" => Self::Bf16,
            _ => return Err(UnknownDataType(text.to_owned())),
        })
    }
}

/// The name of no data type.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "there is no data type {0:?}; use int8, uint8, int32, uint32, int64, uint64, half, float, \
     double or bfloat16"
)]
pub struct UnknownDataType(pub String);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_type_is_found_by_its_name_and_at_its_code() {
        for (code, data_type) in DataType::ALL.into_iter().enumerate() {
            assert_eq!(usize::from(data_type.code()), code);
            assert_eq!(data_type.name().parse(), Ok(data_type));
            assert_eq!(format!("{data_type:?}").to_lowercase().parse(), Ok(data_type));
        }
        assert_eq!("f8".parse::<DataType>(), Err(UnknownDataType("f8".into())));
    }
}
