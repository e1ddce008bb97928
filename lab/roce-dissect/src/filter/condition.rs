//! Conditions, and how a packet meets them.

use super::literal::{Comparison, Literal};
use crate::{NamedField, PacketFields};

/// A condition on the fields of a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Condition {
    Present(NamedField),
    Compare {
        field: NamedField,
        comparison: Comparison,
        literal: Literal,
    },
    /// A value of the field is one of these, or inside one of these ranges.
    In {
        field: NamedField,
        ranges: Vec<(Literal, Literal)>,
    },
    Not(Box<Self>),
    /// All hold.
    All(Vec<Self>),
    /// One of them holds.
    Any(Vec<Self>),
}

impl Condition {
    pub(super) fn holds(&self, fields: &PacketFields<'_, '_>) -> bool {
        match self {
            Self::Present(field) => {
                let mut is_present = false;
                fields.values(*field, &mut |_| is_present = true);
                is_present
            }
            Self::Compare { field, comparison: Comparison::NotEqual, literal } => {
                let (mut is_present, mut all_differ) = (false, true);
                fields.values(*field, &mut |value| {
                    is_present = true;
                    all_differ &= !literal.meets(&value, Comparison::Equal);
                });
                is_present && all_differ
            }
            Self::Compare { field, comparison, literal } => {
                let mut is_met = false;
                fields.values(*field, &mut |value| is_met |= literal.meets(&value, *comparison));
                is_met
            }
            Self::In { field, ranges } => {
                let mut is_met = false;
                fields.values(*field, &mut |value| {
                    is_met |= ranges.iter().any(|(first, last)| match first == last {
                        true => first.meets(&value, Comparison::Equal),
                        false => {
                            first.meets(&value, Comparison::GreaterOrEqual)
                                && last.meets(&value, Comparison::LessOrEqual)
                        }
                    });
                });
                is_met
            }
            Self::Not(inner) => !inner.holds(fields),
            Self::All(inner) => inner.iter().all(|it| it.holds(fields)),
            Self::Any(inner) => inner.iter().any(|it| it.holds(fields)),
        }
    }
}
