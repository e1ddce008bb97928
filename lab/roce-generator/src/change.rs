//! Changes of a packet's fields.

use std::str::FromStr;

use roce_dissect::{FieldPlace, NamedField};

use crate::{ChangeError, NameError};

/// A field, and what it is set to: `NAME=VALUE`, or `NAME+=N` for a number that rises by N from packet to
/// packet. The names and the notation of values are those of `roce dissect`.
///
/// ```
/// use roce_generator::Change;
///
/// assert_eq!("psn=0x12".parse::<Change>()?.field().name(), "psn");
/// assert!("bth.pns=1".parse::<Change>().unwrap_err().to_string().contains("bth.psn"));
/// # Ok::<(), roce_generator::NameError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    field: NamedField,
    kind: Kind,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Kind {
    Value(String),
    Rise(u64),
}

/// A number of a packet that rises from packet to packet, modulo the bits that it has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Series {
    place: FieldPlace,
    by: u64,
}

impl Change {
    /// Returns the field.
    pub const fn field(&self) -> NamedField {
        self.field
    }

    /// Returns true if the number rises from packet to packet.
    pub const fn is_series(&self) -> bool {
        matches!(self.kind, Kind::Rise(_))
    }

    /// Returns the value to write; `None` for a series.
    pub(crate) fn value(&self) -> Option<&str> {
        match &self.kind {
            Kind::Value(value) => Some(value),
            Kind::Rise(_) => None,
        }
    }

    /// Returns the series that begins with the packet's own value, if the change is one.
    pub(crate) fn series(
        &self,
        place: &FieldPlace,
        bytes: &[u8],
    ) -> Result<Option<Series>, ChangeError> {
        match self.kind {
            Kind::Value(_) => Ok(None),
            Kind::Rise(_) if place.read_number(bytes).is_none() => {
                Err(ChangeError::NoNumber { field: self.field.name() })
            }
            Kind::Rise(by) => Ok(Some(Series { place: place.clone(), by })),
        }
    }

    /// Returns true if the value may add layers to a packet or decide about them, and leaves all other
    /// layers where they are: the queue pair of management datagrams, and what these say of themselves.
    pub(crate) fn adds_layers(&self) -> bool {
        let name = self.field.name();
        ["qp", "bth.destination_qp"].contains(&name)
            || ["mad.", "cm_"].iter().any(|layer| name.starts_with(layer))
    }
}

impl Series {
    /// Raises the number.
    pub(crate) fn advance(&self, bytes: &mut [u8]) -> Result<(), ChangeError> {
        let Some(number) = self.place.read_number(bytes) else { return Ok(()) };
        let bits = self.place.bit_len().min(64);
        let mask = u64::MAX >> (64 - bits.max(1));
        let next = number.wrapping_add(self.by) & mask;
        Ok(self.place.write(bytes, &next.to_string())?)
    }
}

impl FromStr for Change {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        let wrong = || NameError::Change(text.chars().take(60).collect());
        let (name, value) = text.split_once('=').ok_or_else(wrong)?;
        let (name, is_series) = match name.strip_suffix('+') {
            Some(name) => (name, true),
            None => (name, false),
        };
        let kind = match is_series {
            true => Kind::Rise(number(value).ok_or_else(wrong)?),
            false if value.is_empty() => return Err(wrong()),
            false => Kind::Value(value.to_owned()),
        };
        let field = NamedField::find(name).ok_or_else(|| NameError::Field {
            name: name.chars().take(60).collect(),
            similar: NamedField::similar(name),
        })?;
        Ok(Self { field, kind })
    }
}

/// Reads `18` or `0x12`.
pub(crate) fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(digits) if digits.bytes().all(|it| it.is_ascii_hexdigit()) => {
            u64::from_str_radix(digits, 16).ok()
        }
        None if text.bytes().all(|it| it.is_ascii_digit()) => text.parse().ok(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_that_are_no_change_are_refused_by_name() {
        for text in ["psn", "psn=", "=5", "psn+=x", "psn+=-1", "psn+=", "bth=5=", "é=1"] {
            let parsed = text.parse::<Change>();
            let is_layer = text == "bth=5=";
            assert_eq!(parsed.is_err(), !is_layer, "{text}: a layer is refused with its packet");
        }
        assert_eq!("reth.address+=0x10".parse::<Change>().unwrap().kind, Kind::Rise(16));
    }
}
