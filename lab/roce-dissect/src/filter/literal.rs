//! Values that filters compare fields with.

use std::cmp::Ordering;
use std::net::IpAddr;

use roce_wire::MacAddr;

use crate::named_field::notation::{bytes, number};
use crate::{FieldKind, FieldValue, Finding};

/// A value in a filter, of the kind of its field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Literal {
    Number(u64),
    /// Text, in small letters.
    Text(String),
    Address(IpAddr),
    /// The addresses that begin with these bits.
    Network {
        address: IpAddr,
        prefix: u8,
    },
    Mac(MacAddr),
    Bytes(Vec<u8>),
}

/// How a filter compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Comparison {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    Contains,
}

impl Literal {
    /// Reads a word, or a quoted text, as a value of a field's kind.
    pub(super) fn read(word: &str, is_quoted: bool, kind: FieldKind) -> Result<Self, String> {
        let wanted = match (kind, is_quoted) {
            (FieldKind::Text, _) => return Ok(Self::Text(word.to_lowercase())),
            (FieldKind::Bytes, true) => return Ok(Self::Bytes(word.as_bytes().to_vec())),
            (FieldKind::Number, _) => {
                number(word).map(Self::Number).ok_or("a number such as 18 or 0x12")
            }
            (FieldKind::Flag, _) => match word.to_ascii_lowercase().as_str() {
                "1" | "true" => Ok(Self::Number(1)),
                "0" | "false" => Ok(Self::Number(0)),
                _ => Err("0, 1, false or true"),
            },
            (FieldKind::Address, _) => address(word),
            (FieldKind::Mac, _) => {
                let address = word.parse().map(Self::Mac);
                address.map_err(|_| "an Ethernet address such as 02:00:00:00:00:2a")
            }
            (FieldKind::Bytes, false) => {
                bytes(word).map(Self::Bytes).ok_or("bytes such as de:ad:be:ef, or text in quotes")
            }
            (FieldKind::Layer, _) => Err("no value: a layer is there or not"),
        };
        wanted.map_err(|wanted| format!("{word:?} is not {wanted}"))
    }

    /// Returns true if the value of a field compares so with this one.
    pub(super) fn meets(&self, value: &FieldValue<'_>, comparison: Comparison) -> bool {
        let order = match (value, self) {
            (FieldValue::Number { value, .. }, Self::Number(wanted)) => value.cmp(wanted),
            (FieldValue::Flag(set), Self::Number(wanted)) => u64::from(*set).cmp(wanted),
            (FieldValue::Text(text), Self::Text(wanted)) => {
                let text = text.to_lowercase();
                if comparison == Comparison::Contains {
                    return text.contains(wanted.as_str());
                }
                text.cmp(wanted)
            }
            (FieldValue::Address(address), Self::Address(wanted)) => address.cmp(wanted),
            (FieldValue::Address(value), Self::Network { address, prefix }) => {
                match shared_bits(*value, *address) >= u32::from(*prefix) {
                    true => Ordering::Equal,
                    false => value.cmp(address),
                }
            }
            (FieldValue::Mac(mac), Self::Mac(wanted)) => mac.cmp(wanted),
            (FieldValue::Bytes(bytes), Self::Bytes(wanted)) => {
                if comparison == Comparison::Contains {
                    return wanted.is_empty()
                        || bytes.windows(wanted.len()).any(|window| window == wanted);
                }
                (*bytes).cmp(wanted.as_slice())
            }
            _ => return false,
        };
        match comparison {
            Comparison::Equal => order.is_eq(),
            Comparison::NotEqual => order.is_ne(),
            Comparison::Less => order.is_lt(),
            Comparison::LessOrEqual => order.is_le(),
            Comparison::Greater => order.is_gt(),
            Comparison::GreaterOrEqual => order.is_ge(),
            Comparison::Contains => false,
        }
    }
}

/// Returns the mistake in a name of a finding or severity, which would never match.
pub(super) fn unknown_name(field: &str, word: &str) -> Option<String> {
    let word = word.to_lowercase();
    let known: &[&str] = match field {
        "findings.name" if word.starts_with("drop_") => return None,
        "findings.name" => Finding::NAMES,
        "findings.severity" => &["info", "notice", "problem"],
        "aeth.kind" => &["ack", "rnr", "nak", "reserved"],
        "icrc.verdict" => &["right", "wrong", "unchecked"],
        "kind" => &["roce", "pause", "other"],
        _ => return None,
    };
    if known.contains(&word.as_str()) {
        return None;
    }
    Some(format!("{field} is never {word:?}; it is one of {}", known.join(", ")))
}

fn address(word: &str) -> Result<Literal, &'static str> {
    let wanted = "an address such as 10.0.0.1, fd00::1 or 10.0.0.0/8";
    let Some((address, prefix)) = word.split_once('/') else {
        return word.parse().map(Literal::Address).map_err(|_| wanted);
    };
    let address: IpAddr = address.parse().map_err(|_| wanted)?;
    let bits = if address.is_ipv4() { 32 } else { 128 };
    match prefix.parse() {
        Ok(prefix) if prefix <= bits => Ok(Literal::Network { address, prefix }),
        _ => Err(wanted),
    }
}

/// Returns the number of leading bits that both addresses have; 0 for addresses of two families.
fn shared_bits(a: IpAddr, b: IpAddr) -> u32 {
    match (a, b) {
        (IpAddr::V4(a), IpAddr::V4(b)) => (a.to_bits() ^ b.to_bits()).leading_zeros(),
        (IpAddr::V6(a), IpAddr::V6(b)) => (a.to_bits() ^ b.to_bits()).leading_zeros(),
        _ => 0,
    }
}
