//! Headers as tables: position, notation and meaning of each field.

use std::borrow::Cow;
use std::net::IpAddr;
use std::ops::Range;

use roce_wire::{Gid, MacAddr};

use crate::{Field, Layer, Value};

/// A field of a header.
#[derive(Clone, Copy)]
pub(crate) struct Spec {
    name: &'static str,
    /// Bit offset from the start of the header, most significant first.
    first_bit: usize,
    bits: usize,
    kind: Kind,
    note: Note,
}

/// Notation of a field.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Decimal,
    Hex,
    Flag,
    Mac,
    Ipv4,
    Ipv6,
    Gid,
    Bytes,
}

/// Returns the meaning of a value.
pub(crate) type Note = fn(u64) -> Cow<'static, str>;

/// Returns a field of whole bytes from byte `at` of the header on.
pub(crate) const fn bytes(name: &'static str, at: usize, len: usize, kind: Kind) -> Spec {
    Spec { name, first_bit: 8 * at, bits: 8 * len, kind, note: no_note }
}

/// Returns a field of bits from bit `bit` (0 is the most significant) of byte `at` on.
pub(crate) const fn bits(
    name: &'static str,
    at: usize,
    bit: usize,
    bits: usize,
    kind: Kind,
) -> Spec {
    Spec { name, first_bit: 8 * at + bit, bits, kind, note: no_note }
}

impl Spec {
    /// Returns the field with a note.
    pub(crate) const fn noted(mut self, note: Note) -> Self {
        self.note = note;
        self
    }

    /// Returns the name.
    pub(crate) const fn name(&self) -> &'static str {
        self.name
    }

    /// Returns the notation.
    pub(crate) const fn kind(&self) -> Kind {
        self.kind
    }

    fn range(&self, at: usize) -> Range<usize> {
        at + self.first_bit / 8..at + (self.first_bit + self.bits).div_ceil(8)
    }

    /// Returns `None` if the field was not captured completely.
    fn read(&self, frame: &[u8], at: usize) -> Option<Field> {
        let range = self.range(at);
        let raw = frame.get(range.clone())?;
        let number = || {
            let whole = raw.iter().fold(0u128, |all, &byte| all << 8 | u128::from(byte));
            let behind = 8 * raw.len() - self.first_bit % 8 - self.bits;
            (whole >> behind) as u64 & (u64::MAX >> (64 - self.bits.min(64)))
        };
        let value = match self.kind {
            Kind::Decimal => Value::Decimal(number()),
            Kind::Hex => Value::Hex { value: number(), digits: self.bits.div_ceil(4) as u8 },
            Kind::Flag => Value::Flag(number() != 0),
            Kind::Mac => Value::Mac(MacAddr(*raw.first_chunk()?)),
            Kind::Ipv4 => Value::Address(IpAddr::from(*raw.first_chunk::<4>()?)),
            Kind::Ipv6 => Value::Address(IpAddr::from(*raw.first_chunk::<16>()?)),
            Kind::Gid => Value::Gid(Gid(*raw.first_chunk()?)),
            Kind::Bytes => Value::Bytes { len: raw.len() },
        };
        let is_number = matches!(self.kind, Kind::Decimal | Kind::Hex | Kind::Flag);
        let note = if is_number { (self.note)(number()) } else { Cow::Borrowed("") };
        let first_bit = 8 * at + self.first_bit;
        let bits = first_bit..first_bit + self.bits;
        Some(Field { name: self.name, value, bytes: range, bits, note })
    }
}

/// Reads a header of `len` bytes at `at` without the fields that were not captured.
pub(crate) fn layer(
    name: &'static str,
    table: &[Spec],
    frame: &[u8],
    at: usize,
    len: usize,
) -> Layer {
    let end = (at + len).min(frame.len());
    let mut layer = Layer::new(name, at.min(end)..end);
    layer.fields.extend(table.iter().filter_map(|spec| spec.read(&frame[..end], at)));
    layer
}

/// Declares functions that return the meaning of a value, or nothing for a value without one.
macro_rules! meanings {
    ($( $vis:vis fn $name:ident { $( $value:pat => $meaning:literal, )+ } )+) => {
        $(
            $vis fn $name(value: u64) -> std::borrow::Cow<'static, str> {
                match value {
                    $( $value => $meaning, )+
                    _ => "",
                }
                .into()
            }
        )+
    };
}
pub(crate) use meanings;

fn no_note(_: u64) -> Cow<'static, str> {
    Cow::Borrowed("")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_is_cut_out_of_its_bits() {
        let frame = [0xff, 0b1010_0110, 0x12, 0x34];
        let read = |spec: Spec| spec.read(&frame, 1).unwrap();
        assert_eq!(read(bits("a", 0, 2, 3, Kind::Decimal)).value, Value::Decimal(0b100));
        assert_eq!(read(bits("b", 0, 4, 12, Kind::Hex)).value.to_string(), "0x612");
        assert_eq!(read(bits("b", 0, 4, 12, Kind::Hex)).bytes, 1..3);
        assert_eq!(read(bits("b", 0, 4, 12, Kind::Hex)).bits, 12..24);
        assert_eq!(read(bits("c", 0, 0, 1, Kind::Flag)).value, Value::Flag(true));
        assert_eq!(read(bytes("d", 1, 2, Kind::Decimal)).value, Value::Decimal(0x1234));
    }

    #[test]
    fn a_field_that_was_not_captured_is_left_out() {
        let table = [bytes("here", 0, 2, Kind::Hex), bytes("cut off", 2, 2, Kind::Hex)];
        let layer = layer("some", &table, &[1, 2, 3], 0, 4);
        assert_eq!(layer.range, 0..3);
        assert_eq!(layer.fields.len(), 1);
    }
}
