//! The list of all fields.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use super::entry::{Entry, Source};
use super::packet_fields;
use super::value::FieldKind;
use crate::tree::{self, Kind};

/// Returns all fields in the order of their names.
pub(super) fn all() -> &'static [Entry] {
    static ALL: OnceLock<Vec<Entry>> = OnceLock::new();
    ALL.get_or_init(|| {
        // A field of the packet that has the name of a layer's field is that field.
        let mut all = BTreeMap::new();
        for (layer, table) in tree::tables() {
            let in_name = in_name(layer);
            let presence = (FieldKind::Layer, Source::Presence { layer }, Vec::new());
            all.insert(in_name.clone(), presence);
            for spec in table {
                let field = spec.name();
                let name = format!("{in_name}.{}", self::in_name(field));
                let source = Source::Layer { layer, field };
                all.insert(name, (kind_of(spec.kind()), source, vec![(layer, field)]));
            }
        }
        for (name, kind, values) in packet_fields::ALL {
            let places = match all.get(*name) {
                Some((FieldKind::Layer, ..)) | None => places_of(name),
                Some((_, _, places)) => places.clone(),
            };
            all.insert((*name).to_owned(), (*kind, Source::Packet(*values), places));
        }
        let entry = |(name, (kind, source, places))| Entry { name, kind, source, places };
        all.into_iter().map(entry).collect()
    })
}

/// Returns the field of this name.
pub(super) fn find(name: &str) -> Option<&'static Entry> {
    let all = all();
    all.binary_search_by(|entry| entry.name.as_str().cmp(name)).ok().map(|at| &all[at])
}

/// Returns the name of a layer or field as it stands in the name of a field.
fn in_name(name: &str) -> String {
    let plain = |letter: char| match letter.is_ascii_alphanumeric() {
        true => letter.to_ascii_lowercase(),
        false => '_',
    };
    name.chars().map(plain).collect()
}

/// Returns where a field of the packet stands that has another name there.
fn places_of(name: &str) -> Vec<(&'static str, &'static str)> {
    match name {
        "source" => vec![("IPv4", "source"), ("IPv6", "source"), ("GRH", "source")],
        "destination" => {
            vec![("IPv4", "destination"), ("IPv6", "destination"), ("GRH", "destination")]
        }
        "source_port" => vec![("UDP", "source port")],
        "opcode" => vec![("BTH", "opcode")],
        "qp" => vec![("BTH", "destination QP")],
        "psn" => vec![("BTH", "PSN")],
        "p_key" => vec![("BTH", "P_Key")],
        "ack_request" => vec![("BTH", "ack request")],
        "solicited" => vec![("BTH", "solicited event")],
        "migration" => vec![("BTH", "migration request")],
        "fecn" => vec![("BTH", "FECN")],
        "becn" => vec![("BTH", "BECN")],
        "pad" => vec![("BTH", "pad count")],
        "atomic.address" => vec![("AtomicETH", "address")],
        "atomic.key" => vec![("AtomicETH", "key")],
        "atomic.swap_or_add" => vec![("AtomicETH", "swap or add")],
        "atomic.compare" => vec![("AtomicETH", "compare")],
        "atomic_ack.original" => vec![("AtomicAckETH", "original")],
        "immediate" => vec![("ImmDt", "immediate")],
        "invalidate_key" => vec![("IETH", "key")],
        _ => Vec::new(),
    }
}

fn kind_of(kind: Kind) -> FieldKind {
    match kind {
        Kind::Decimal | Kind::Hex => FieldKind::Number,
        Kind::Flag => FieldKind::Flag,
        Kind::Mac => FieldKind::Mac,
        Kind::Ipv4 | Kind::Ipv6 | Kind::Gid => FieldKind::Address,
        Kind::Bytes => FieldKind::Bytes,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_words_that_a_filter_can_read() {
        let all = all();
        assert!(all.windows(2).all(|pair| pair[0].name < pair[1].name));
        for entry in all {
            let is_word = |letter: char| {
                letter.is_ascii_lowercase() || letter.is_ascii_digit() || "._".contains(letter)
            };
            assert!(entry.name.chars().all(is_word), "{}", entry.name);
            assert!(find(&entry.name).is_some_and(|found| std::ptr::eq(found, entry)));
        }
    }

    #[test]
    fn a_name_that_is_no_field_is_not_found() {
        for name in ["", "bth.", "BTH.PSN", "bth.psn ", "qps"] {
            assert!(find(name).is_none(), "{name}");
        }
    }
}
