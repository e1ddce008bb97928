//! Fields of packets by name: those of the JSON output of `roce dissect`, and every field of every
//! layer.
//!
//! A field of a layer is called `layer.field`, in small letters and with `_` for everything that is
//! neither letter nor digit: `bth.ack_request`, `ipv4.ttl`, `cm_req.local_q_key`. The name of a layer
//! alone is a field, too, which only is there or not.

mod catalogue;
mod entry;
mod field;
pub(crate) mod notation;
mod packet_fields;
mod place;
mod value;

use std::cell::OnceCell;

use self::entry::Source;
pub use self::field::NamedField;
pub use self::place::{FieldPlace, FieldWriteError};
pub use self::value::{FieldKind, FieldValue};
use crate::{Layer, Packet, Value};

/// A packet, and its layers once a field of them was asked for.
///
/// ```
/// use roce_dissect::{Dissector, FieldValue, NamedField, Options, PacketFields, RawFrame};
///
/// let length = NamedField::find("length").unwrap();
/// let ether_type = NamedField::find("ethernet.ethertype").unwrap();
/// Dissector::new(Options::default()).handle_frame(RawFrame::ethernet(1, &[0; 60]), |packet| {
///     let fields = PacketFields::new(packet);
///     assert_eq!(fields.text_of(length), ["60"]);
///     assert_eq!(fields.text_of(ether_type), ["0x0000"]);
/// });
/// ```
#[derive(Debug)]
pub struct PacketFields<'p, 'a> {
    packet: &'p Packet<'a>,
    layers: OnceCell<Vec<Layer>>,
}

impl<'p, 'a> PacketFields<'p, 'a> {
    /// Returns the fields of a packet. Reads nothing yet.
    pub const fn new(packet: &'p Packet<'a>) -> Self {
        Self { packet, layers: OnceCell::new() }
    }

    /// Passes each value of the field to `on_value`, in the order of the packet.
    pub fn values(&self, field: NamedField, on_value: &mut dyn FnMut(FieldValue<'_>)) {
        match field.entry().source {
            Source::Packet(values) => values(self.packet, on_value),
            Source::Layer { layer, field } => {
                let layers = self.layers().iter().filter(|it| it.name == layer);
                for found in layers.flat_map(|layer| layer.field(field)) {
                    let bytes = self.packet.frame.bytes.get(found.bytes.clone());
                    on_value(FieldValue::of(&found.value, bytes.unwrap_or_default()));
                }
            }
            Source::Presence { layer } => {
                if self.layers().iter().any(|it| it.name == layer) {
                    on_value(FieldValue::Flag(true));
                }
            }
        }
    }

    /// Returns where the packet has the first value of the field, to write it; `None` for a packet
    /// without the field, or a field that stands nowhere, such as the name of a finding.
    pub fn place(&self, field: NamedField) -> Option<FieldPlace> {
        field.entry().places.iter().find_map(|(layer, name)| {
            let layer = self.layers().iter().find(|it| it.name == *layer)?;
            Some(FieldPlace::new(field, layer.name, layer.field(name)?))
        })
    }

    /// Returns the values of the field as text.
    pub fn text_of(&self, field: NamedField) -> Vec<String> {
        let mut all = Vec::new();
        self.values(field, &mut |value| all.push(value.to_string()));
        all
    }

    fn layers(&self) -> &[Layer] {
        self.layers.get_or_init(|| self.packet.layers())
    }
}

impl<'a> FieldValue<'a> {
    /// Returns the value of a layer's field, which has these bytes.
    fn of(value: &'a Value, bytes: &'a [u8]) -> Self {
        match value {
            Value::Decimal(value) => Self::Number { value: *value, hex_digits: 0 },
            Value::Hex { value, digits } => Self::Number { value: *value, hex_digits: *digits },
            Value::Flag(set) => Self::Flag(*set),
            Value::Address(address) => Self::Address(*address),
            Value::Mac(mac) => Self::Mac(*mac),
            Value::Gid(gid) => Self::Address(std::net::Ipv6Addr::from(gid.0).to_canonical()),
            Value::Bytes { .. } => Self::Bytes(bytes),
            Value::Text(text) => Self::Text(text.as_ref().into()),
        }
    }
}
