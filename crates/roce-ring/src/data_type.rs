//! The types of elements.

use std::str::FromStr;

use crate::named_values::named_values;

named_values! {
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
    pub enum DataType {
        /// Signed, 8 bits.
        I8 = 0, "int8";
        /// Unsigned, 8 bits.
        U8 = 1, "uint8";
        /// Signed, 32 bits.
        I32 = 2, "int32";
        /// Unsigned, 32 bits.
        U32 = 3, "uint32";
        /// Signed, 64 bits.
        I64 = 4, "int64";
        /// Unsigned, 64 bits.
        U64 = 5, "uint64";
        /// IEEE 754 half precision.
        F16 = 6, "half";
        /// IEEE 754 single precision.
        F32 = 7, "float";
        /// IEEE 754 double precision.
        F64 = 8, "double";
        /// The upper half of a single: 8 bits of exponent, 8 of significand.
        Bf16 = 9, "bfloat16";
    }
    /// Returns the type's code in messages, which is NCCL's.
    code;
    /// Returns the name that nccl-tests prints.
    name;
}

impl DataType {
    /// Returns the bytes per element: 1, 2, 4 or 8.
    pub const fn size(self) -> usize {
        match self {
            Self::I8 | Self::U8 => 1,
            Self::F16 | Self::Bf16 => 2,
            Self::I32 | Self::U32 | Self::F32 => 4,
            Self::I64 | Self::U64 | Self::F64 => 8,
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
