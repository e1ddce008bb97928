//! Captured packets moved to other addresses and queue pairs.

use std::net::IpAddr;
use std::ops::Range;
use std::str::FromStr;

use roce_dissect::{FieldPlace, NamedField, Packet, PacketFields, Value};
use roce_wire::Qpn;

use crate::change::number;
use crate::{Draft, NameError};

/// Addresses and queue pairs that take the place of others.
///
/// Addresses are replaced in the IP header, and in the GIDs and addresses of connection management. Queue
/// pairs are replaced in BTH and DETH, and in the messages of connection management that name one.
///
/// ```
/// use roce_generator::Rewriting;
///
/// let rewriting = Rewriting {
///     addresses: vec!["10.0.0.1=10.9.0.1".parse()?],
///     queue_pairs: vec!["0x11@10.0.0.2=0x2a".parse()?],
/// };
/// # let _ = rewriting;
/// # Ok::<(), roce_generator::NameError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rewriting {
    /// Addresses. The first mapping of an address counts.
    pub addresses: Vec<AddressMapping>,
    /// Queue pairs. The first mapping of a queue pair counts.
    pub queue_pairs: Vec<QueuePairMapping>,
}

/// An address and the one that takes its place: `OLD=NEW`, both of the same IP version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressMapping {
    old: IpAddr,
    new: IpAddr,
}

/// A queue pair and the one that takes its place: `OLD=NEW`, or `OLD@ADDRESS=NEW` for the queue pair of
/// the host that has this address in the capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueuePairMapping {
    old: Qpn,
    host: Option<IpAddr>,
    new: Qpn,
}

/// Whose queue pair a field names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owner {
    Sender,
    Receiver,
}

/// Bytes to write into a frame.
struct Edit {
    range: Range<usize>,
    bytes: Vec<u8>,
}

impl Rewriting {
    /// Rewrites a packet. [`Draft::finish`] then writes its checksum and ICRC.
    pub fn apply(&self, draft: &mut Draft) {
        let (edits, queue_pairs) = draft.read(|packet| {
            (self.edits_of_addresses(packet), self.changed_queue_pairs(packet, draft.bytes()))
        });
        for Edit { range, bytes } in edits {
            if let Some(place) = draft.bytes_mut().get_mut(range) {
                place.copy_from_slice(&bytes);
            }
        }
        for (place, new) in queue_pairs {
            // A number of 24 bits fits every field of queue pairs.
            let _fits = place.write(draft.bytes_mut(), &new.get().to_string());
        }
    }

    fn edits_of_addresses(&self, packet: &Packet<'_>) -> Vec<Edit> {
        let mut edits = Vec::new();
        if self.addresses.is_empty() {
            return edits;
        }
        for field in packet.layers().into_iter().flat_map(|layer| layer.fields) {
            let old = match field.value {
                Value::Address(address) => address,
                Value::Gid(gid) => gid.ip(),
                _ => continue,
            };
            let Some(mapping) = self.addresses.iter().find(|it| it.old == old) else { continue };
            let bytes = match mapping.new {
                IpAddr::V4(new) if field.bytes.len() == 4 => new.octets().to_vec(),
                IpAddr::V4(new) => new.to_ipv6_mapped().octets().to_vec(),
                IpAddr::V6(new) => new.octets().to_vec(),
            };
            if bytes.len() == field.bytes.len() {
                edits.push(Edit { range: field.bytes, bytes });
            }
        }
        edits
    }

    fn changed_queue_pairs(&self, packet: &Packet<'_>, bytes: &[u8]) -> Vec<(FieldPlace, Qpn)> {
        let mut changed = Vec::new();
        let Some(roce) = packet.roce().filter(|_| !self.queue_pairs.is_empty()) else {
            return changed;
        };
        let fields = PacketFields::new(packet);
        for (name, owner) in QUEUE_PAIRS {
            let place = NamedField::find(name).and_then(|field| fields.place(field));
            let Some(place) = place else { continue };
            let number = place.read_number(bytes).and_then(|it| Qpn::new(u32::try_from(it).ok()?));
            let host = if *owner == Owner::Sender { roce.source } else { roce.destination };
            let mapping = self
                .queue_pairs
                .iter()
                .find(|it| Some(it.old) == number && it.host.is_none_or(|address| address == host));
            changed.extend(mapping.map(|it| (place, it.new)));
        }
        changed
    }
}

impl FromStr for AddressMapping {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        let parse = || {
            let (old, new) = text.split_once('=')?;
            let (old, new): (IpAddr, IpAddr) = (old.parse().ok()?, new.parse().ok()?);
            (old.is_ipv4() == new.is_ipv4()).then_some(Self { old, new })
        };
        parse().ok_or_else(|| NameError::AddressMapping(text.chars().take(80).collect()))
    }
}

impl FromStr for QueuePairMapping {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        let parse = || {
            let (old, new) = text.split_once('=')?;
            let (old, host) = match old.split_once('@') {
                Some((old, host)) => (old, Some(host.parse().ok()?)),
                None => (old, None),
            };
            Some(Self { old: queue_pair(old)?, host, new: queue_pair(new)? })
        };
        parse().ok_or_else(|| NameError::QueuePairMapping(text.chars().take(80).collect()))
    }
}

fn queue_pair(text: &str) -> Option<Qpn> {
    Qpn::new(u32::try_from(number(text)?).ok()?)
}

/// Fields that name queue pairs.
const QUEUE_PAIRS: &[(&str, Owner)] = &[
    ("bth.destination_qp", Owner::Receiver),
    ("deth.source_qp", Owner::Sender),
    ("cm_req.local_qpn", Owner::Sender),
    ("cm_rep.local_qpn", Owner::Sender),
    ("cm_dreq.remote_qpn", Owner::Receiver),
    ("cm_lap.remote_qpn", Owner::Receiver),
    ("cm_sidr_rep.qpn", Owner::Sender),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_of_queue_pairs_exists() {
        for (name, _) in QUEUE_PAIRS {
            assert!(NamedField::find(name).is_some(), "{name}");
        }
        let named = NamedField::all().filter(|it| {
            let name = it.name();
            name.ends_with("qpn") || name.ends_with("_qp") && name.contains('.')
        });
        let unknown: Vec<_> =
            named.filter(|it| QUEUE_PAIRS.iter().all(|(name, _)| *name != it.name())).collect();
        assert!(unknown.is_empty(), "{unknown:?}");
    }

    #[test]
    fn texts_that_are_no_mapping_are_refused() {
        for text in ["", "1", "10.0.0.1=", "10.0.0.1=fd00::1", "a=b"] {
            assert!(text.parse::<AddressMapping>().is_err(), "{text}");
        }
        for text in ["", "5", "5=", "5=0x1000000", "5@x=6", "+5=6", "5@10.0.0.1"] {
            assert!(text.parse::<QueuePairMapping>().is_err(), "{text}");
        }
        let mapping: QueuePairMapping = "0x11@fd00::1=42".parse().unwrap();
        assert_eq!(mapping.new, Qpn::new(42).unwrap());
    }
}
