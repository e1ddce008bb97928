//! Values of fields written into packets.

use std::net::IpAddr;
use std::ops::Range;

use roce_wire::MacAddr;

use super::field::NamedField;
use super::notation::{bytes, number};
use super::value::FieldKind;
use crate::{Field, Value};

/// Where a packet has a field.
///
/// ```
/// use roce_dissect::{Dissector, NamedField, Options, PacketFields, RawFrame};
///
/// let mut frame = [0; 60];
/// let field = NamedField::find("ethernet.ethertype").unwrap();
/// let mut place = None;
/// Dissector::new(Options::default()).handle_frame(RawFrame::ethernet(1, &frame), |packet| {
///     place = PacketFields::new(packet).place(field);
/// });
/// place.unwrap().write(&mut frame, "0x8915")?;
/// assert_eq!(frame[12..14], [0x89, 0x15]);
/// # Ok::<(), roce_dissect::FieldWriteError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldPlace {
    field: NamedField,
    kind: FieldKind,
    bits: Range<usize>,
    is_ipv4: bool,
    /// The least significant byte stands first.
    is_reversed: bool,
}

/// A value that its field cannot have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FieldWriteError {
    /// The text is no value of the field's kind.
    #[error("{field} cannot be {value:?}: it is {wanted}")]
    Kind {
        /// Name of the field.
        field: &'static str,
        /// The text.
        value: String,
        /// The kind of the field, in words.
        wanted: &'static str,
    },
    /// The number needs more bits.
    #[error("{field} has {bits} bits, and {value} needs more")]
    TooLarge {
        /// Name of the field.
        field: &'static str,
        /// The number.
        value: String,
        /// Bits of the field.
        bits: usize,
    },
    /// The frame is shorter than that of the place.
    #[error("the frame ends before {field}")]
    Cut {
        /// Name of the field.
        field: &'static str,
    },
}

impl FieldPlace {
    pub(super) fn new(field: NamedField, layer: &str, found: &Field) -> Self {
        let kind = match found.value {
            Value::Decimal(_) | Value::Hex { .. } => FieldKind::Number,
            Value::Flag(_) => FieldKind::Flag,
            Value::Address(_) | Value::Gid(_) => FieldKind::Address,
            Value::Mac(_) => FieldKind::Mac,
            Value::Bytes { .. } => FieldKind::Bytes,
            Value::Text(_) => FieldKind::Text,
        };
        let is_ipv4 = matches!(found.value, Value::Address(IpAddr::V4(_)));
        // The ICRC is the only one.
        Self { field, kind, bits: found.bits.clone(), is_ipv4, is_reversed: layer == "ICRC" }
    }

    /// Returns the bytes of the frame that have a part of the field.
    pub fn bytes(&self) -> Range<usize> {
        self.bits.start / 8..self.bits.end.div_ceil(8)
    }

    /// Returns the number of bits of the field.
    pub fn bit_len(&self) -> usize {
        self.bits.len()
    }

    /// Returns the number that the field has in the frame that the place is of; `None` if it is no number
    /// or flag of at most 64 bits, or if the frame is shorter.
    pub fn read_number(&self, frame: &[u8]) -> Option<u64> {
        let bits = self.bits.len();
        if !matches!(self.kind, FieldKind::Number | FieldKind::Flag) || !(1..=64).contains(&bits) {
            return None;
        }
        let bytes = frame.get(self.bytes())?;
        let whole = bytes.iter().fold(0u128, |all, &byte| all << 8 | u128::from(byte));
        let behind = 8 * bytes.len() - self.bits.start % 8 - bits;
        let number = (whole >> behind) as u64 & (u64::MAX >> (64 - bits));
        Some(match self.is_reversed {
            true => number.swap_bytes() >> (64 - bits),
            false => number,
        })
    }

    /// Writes a value, as filters have it, into the frame that the place is of.
    ///
    /// # Errors
    /// [`FieldWriteError`]; the frame is then unchanged.
    pub fn write(&self, frame: &mut [u8], value: &str) -> Result<(), FieldWriteError> {
        let field = self.field.name();
        let wrong = |wanted| FieldWriteError::Kind { field, value: value.to_owned(), wanted };
        let bytes = match self.kind {
            FieldKind::Number | FieldKind::Flag => {
                let number = match value {
                    "true" => Some(1),
                    "false" => Some(0),
                    value => number(value),
                };
                let number = number.ok_or_else(|| wrong("a number such as 18 or 0x12"))?;
                return self.write_number(frame, number, value);
            }
            FieldKind::Address => {
                let address: IpAddr = value.parse().map_err(|_| wrong("an IP address"))?;
                match (self.is_ipv4, address) {
                    (true, IpAddr::V4(address)) => address.octets().to_vec(),
                    (true, IpAddr::V6(_)) => return Err(wrong("an IPv4 address")),
                    (false, IpAddr::V4(address)) => address.to_ipv6_mapped().octets().to_vec(),
                    (false, IpAddr::V6(address)) => address.octets().to_vec(),
                }
            }
            FieldKind::Mac => {
                let mac: MacAddr = value.parse().map_err(|_| wrong("an Ethernet address"))?;
                mac.0.to_vec()
            }
            FieldKind::Bytes => {
                let bytes = bytes(value).ok_or_else(|| wrong("bytes such as de:ad:be:ef"))?;
                if bytes.len() > self.bytes().len() {
                    let bits = self.bits.len();
                    return Err(FieldWriteError::TooLarge { field, value: value.to_owned(), bits });
                }
                bytes
            }
            FieldKind::Text | FieldKind::Layer => return Err(wrong("not writable")),
        };
        let start = self.bytes().start;
        let into = frame.get_mut(start..start.saturating_add(bytes.len()));
        into.ok_or(FieldWriteError::Cut { field })?.copy_from_slice(&bytes);
        Ok(())
    }

    fn write_number(
        &self,
        frame: &mut [u8],
        number: u64,
        value: &str,
    ) -> Result<(), FieldWriteError> {
        let (field, bits) = (self.field.name(), self.bits.len());
        if bits < 64 && number >> bits != 0 {
            return Err(FieldWriteError::TooLarge { field, value: value.to_owned(), bits });
        }
        let bytes = frame.get_mut(self.bytes()).ok_or(FieldWriteError::Cut { field })?;
        let number = match self.is_reversed {
            true => number.swap_bytes() >> (64 - bits.clamp(1, 64)),
            false => number,
        };
        for index in 0..bits {
            let at = self.bits.start % 8 + index;
            // The most significant bit stands first.
            let is_set = bits - 1 - index < 64 && number >> (bits - 1 - index) & 1 == 1;
            let mask = 0x80 >> (at % 8);
            match is_set {
                true => bytes[at / 8] |= mask,
                false => bytes[at / 8] &= !mask,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{Dissector, Options, Packet, PacketFields, RawFrame};

    /// A SEND Only with immediate data, and a management datagram, both without right ICRCs.
    fn frames() -> [Vec<u8>; 2] {
        let outer = roce_wire::OuterHeaders::new([10, 9, 0, 2].into(), [10, 9, 0, 1].into());
        [(5, 0x12, 8), (0x64, 1, 264)].map(|(opcode, qp, len)| {
            let mut frame = vec![0; 42 + 12 + 4 + len + 4];
            frame[42] = opcode;
            frame[47] = qp;
            let segment = frame.len() - 42;
            roce_wire::seal(&outer, 1, &mut frame, segment, roce_wire::UdpChecksum::Zero).unwrap();
            frame
        })
    }

    fn read<T>(frame: &[u8], mut look: impl FnMut(&Packet<'_>) -> T) -> T {
        let mut found = None;
        let mut dissector = Dissector::new(Options::default());
        dissector.handle_frame(RawFrame::ethernet(1, frame), |packet| found = Some(look(packet)));
        found.expect("one packet")
    }

    proptest! {
        #[test]
        fn a_written_number_is_read_back_and_nothing_else_changes(at in 0usize..1 << 16, value: u64) {
            for original in frames() {
                let places = read(&original, |packet| {
                    let fields = PacketFields::new(packet);
                    let place = |field| fields.place(field).map(|place| (field, place));
                    NamedField::all().filter_map(place).collect::<Vec<_>>()
                });
                prop_assert!(places.len() > 40);
                let (field, place) = &places[at % places.len()];
                let len = place.bits.len();
                if !matches!(place.kind, FieldKind::Number | FieldKind::Flag) {
                    return Ok(());
                }
                let value = if len < 64 { value & ((1 << len) - 1) } else { value };
                let mut frame = original.clone();
                place.write(&mut frame, &value.to_string()).unwrap();
                for (index, (before, after)) in original.iter().zip(&frame).enumerate() {
                    prop_assert!(before == after || place.bytes().contains(&index), "{:?}", field);
                }
                // What decides about the layers may hide the field.
                let layers: &[&str] = &["ethernet", "ipv4", "udp", "bth", "opcode", "qp", "pad", "mad"];
                let name = field.name();
                if !layers.iter().any(|layer| name.split('.').next() == Some(layer)) {
                    let read = read(&frame, |packet| PacketFields::new(packet).text_of(*field));
                    let read = read.first().and_then(|text| crate::named_field::notation::number(text));
                    prop_assert_eq!(read, Some(value), "{}", name);
                }
                prop_assert_eq!(place.read_number(&frame), Some(value), "{}", name);
                prop_assert_eq!(place.read_number(&frame[..place.bytes().start]), None, "{}", name);
                if len < 64 {
                    let more = (1u64 << len).to_string();
                    let error = place.write(&mut frame.clone(), &more).unwrap_err();
                    let is_right = matches!(error, FieldWriteError::TooLarge { bits, .. } if bits == len);
                    prop_assert!(is_right, "{}", error);
                }
                prop_assert!(place.write(&mut frame[..place.bytes().start], "0").is_err());
            }
        }
    }

    #[test]
    fn addresses_and_bytes_are_written_in_the_order_of_the_wire() {
        let mut frame = frames()[0].clone();
        let mut set = |name: &str, value: &str| {
            let place = read(&frame, |packet| {
                PacketFields::new(packet).place(NamedField::find(name).unwrap())
            });
            place.expect("the packet has the field").write(&mut frame, value)
        };
        set("source", "10.9.0.77").unwrap();
        set("ethernet.destination", "02:00:00:00:00:2a").unwrap();
        set("payload.bytes", "0xdead").unwrap();
        set("icrc.icrc", "0x01020304").unwrap();
        assert!(set("source", "fd00::1").is_err());
        assert!(set("payload.bytes", &"00".repeat(100)).is_err());
        assert!(set("psn", "x").unwrap_err().to_string().contains("psn cannot be \"x\""));
        assert_eq!(frame[..6], [2, 0, 0, 0, 0, 0x2a]);
        assert_eq!(frame[26..30], [10, 9, 0, 77]);
        assert_eq!(frame[58..60], [0xde, 0xad]);
        assert_eq!(frame[66..], [4, 3, 2, 1], "least significant byte first");
    }
}
