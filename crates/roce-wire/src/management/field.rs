//! Fields of messages: tables, from which structs are read and written.

use super::lengths::CM_BODY_LEN;
use super::{
    AnsweredMessage, CmTimeout, CommunicationId, RejectReason, ServiceId, SidrStatus,
    TransportService,
};
use crate::{Gid, Psn, Qpn};

/// Place and notation of a field of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CmField {
    /// Name, as captures are explained with it.
    pub name: &'static str,
    /// Bit offset from the start of the message, which follows the common header; the most
    /// significant bit of a byte is the first.
    pub first_bit: usize,
    /// Bits.
    pub bits: usize,
    /// Notation and meaning.
    pub kind: CmFieldKind,
}

/// Notation and meaning of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum CmFieldKind {
    Decimal,
    Hex,
    Flag,
    Gid,
    Bytes,
    /// [`CmTimeout`].
    Timeout,
    /// The code of a [`PathMtu`](crate::PathMtu).
    PathMtu,
    /// [`TransportService`].
    TransportService,
    /// [`AnsweredMessage`].
    AnsweredMessage,
    /// [`RejectReason`].
    RejectReason,
    /// [`SidrStatus`].
    SidrStatus,
}

pub(super) type Body = [u8; CM_BODY_LEN];

/// The value of a field.
pub(super) trait FieldValue: Sized {
    fn read(body: &Body, first_bit: usize, bits: usize) -> Self;
    /// Writes the value into a body whose bits are zero there. Bits of the value beyond the field
    /// are left out.
    fn write(&self, body: &mut Body, first_bit: usize, bits: usize);
}

/// Reads up to 64 bits.
fn read_bits(body: &Body, first_bit: usize, bits: usize) -> u64 {
    let end = (first_bit + bits).div_ceil(8);
    let bytes = &body[first_bit / 8..end];
    let all = bytes.iter().fold(0u128, |all, &byte| all << 8 | u128::from(byte));
    let behind = 8 * end - first_bit - bits;
    (all >> behind) as u64 & (u64::MAX >> (64 - bits))
}

/// Adds up to 64 bits to bits that are zero.
fn write_bits(value: u64, body: &mut Body, first_bit: usize, bits: usize) {
    let end = (first_bit + bits).div_ceil(8);
    let behind = 8 * end - first_bit - bits;
    let mut rest = u128::from(value & (u64::MAX >> (64 - bits))) << behind;
    for byte in body[first_bit / 8..end].iter_mut().rev() {
        *byte |= rest as u8;
        rest >>= 8;
    }
}

/// Implements [`FieldValue`] for types that are made of, and give, an integer.
macro_rules! numbers {
    ($($ty:ty, $read:expr, $value:expr;)+) => {$(
        impl FieldValue for $ty {
            fn read(body: &Body, first_bit: usize, bits: usize) -> Self {
                let read: fn(u64) -> Self = $read;
                read(read_bits(body, first_bit, bits))
            }

            fn write(&self, body: &mut Body, first_bit: usize, bits: usize) {
                let value: fn(Self) -> u64 = $value;
                write_bits(value(*self), body, first_bit, bits);
            }
        }
    )+};
}

numbers! {
    u8, |raw| raw as u8, u64::from;
    u16, |raw| raw as u16, u64::from;
    u32, |raw| raw as u32, u64::from;
    u64, |raw| raw, |value| value;
    bool, |raw| raw != 0, u64::from;
    Qpn, |raw| Qpn::new(raw as u32 & Qpn::MAX.get()).unwrap_or(Qpn::MAX), |qpn| qpn.get().into();
    Psn, |raw| Psn::from_be_bytes([(raw >> 16) as u8, (raw >> 8) as u8, raw as u8]), |psn| psn.get().into();
    CommunicationId, |raw| Self(raw as u32), |id| id.0.into();
    ServiceId, Self, |id| id.0;
    CmTimeout, |raw| Self::from_code(raw as u8), |timeout| timeout.code().into();
    TransportService, |raw| Self::from_code(raw as u8), |service| service.code().into();
    AnsweredMessage, |raw| Self::from_code(raw as u8), |message| message.code().into();
    RejectReason, |raw| Self(raw as u16), |reason| reason.0.into();
    SidrStatus, |raw| Self(raw as u8), |status| status.0.into();
}

impl<const N: usize> FieldValue for [u8; N] {
    fn read(body: &Body, first_bit: usize, _: usize) -> Self {
        let mut bytes = [0; N];
        bytes.copy_from_slice(&body[first_bit / 8..][..N]);
        bytes
    }

    fn write(&self, body: &mut Body, first_bit: usize, _: usize) {
        body[first_bit / 8..][..N].copy_from_slice(self);
    }
}

impl FieldValue for Gid {
    fn read(body: &Body, first_bit: usize, bits: usize) -> Self {
        Self(FieldValue::read(body, first_bit, bits))
    }

    fn write(&self, body: &mut Body, first_bit: usize, bits: usize) {
        self.0.write(body, first_bit, bits);
    }
}

/// Declares a message: a struct, its table of fields, and its bytes. A place is the byte, the bit in
/// it (0 is the most significant), and the number of bits.
macro_rules! cm_message {
    (
        $(#[$meta:meta])*
        $message:ident {
            $(
                $(#[$field_meta:meta])*
                $field:ident: $ty:ty = $name:literal, $kind:ident, [$byte:literal, $bit:literal, $bits:expr];
            )+
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct $message {
            $(
                $(#[$field_meta])*
                pub $field: $ty,
            )+
        }

        impl $message {
            /// Names and places of the fields.
            pub const FIELDS: &'static [$crate::management::CmField] = &[
                $($crate::management::CmField {
                    name: $name,
                    first_bit: 8 * $byte + $bit,
                    bits: $bits,
                    kind: $crate::management::CmFieldKind::$kind,
                },)+
            ];

            /// Reads the bytes that follow the common header. Reserved bits are ignored.
            pub(super) fn decode_body(body: &$crate::management::field::Body) -> Self {
                use $crate::management::field::FieldValue;
                Self { $($field: FieldValue::read(body, 8 * $byte + $bit, $bits),)+ }
            }

            /// Returns the bytes that follow the common header. Reserved bits are zero.
            pub(super) fn encode_body(&self) -> $crate::management::field::Body {
                use $crate::management::field::FieldValue;
                let mut body = [0; $crate::management::CM_BODY_LEN];
                $(self.$field.write(&mut body, 8 * $byte + $bit, $bits);)+
                body
            }
        }

        impl Default for $message {
            /// Returns the message whose bits are all zero.
            fn default() -> Self {
                Self::decode_body(&[0; $crate::management::CM_BODY_LEN])
            }
        }
    };
}
pub(super) use cm_message;
