//! A field by its name.

use super::catalogue;
use super::entry::Entry;
use super::value::FieldKind;

/// A field that a packet may have once, several times, or not.
///
/// ```
/// use roce_dissect::{FieldKind, NamedField};
///
/// let psn = NamedField::find("bth.psn").unwrap();
/// assert_eq!(psn.kind(), FieldKind::Number);
/// assert!(NamedField::find("bth.pns").is_none());
/// assert!(NamedField::all().any(|field| field.name() == "reth.length"));
/// ```
#[derive(Clone, Copy)]
pub struct NamedField {
    entry: &'static Entry,
}

impl NamedField {
    /// Returns the field of this name. Takes small letters only.
    pub fn find(name: &str) -> Option<Self> {
        catalogue::find(name).map(|entry| Self { entry })
    }

    /// Returns all fields, in the order of their names.
    pub fn all() -> impl Iterator<Item = Self> {
        catalogue::all().iter().map(|entry| Self { entry })
    }

    /// Returns the names of at most eight fields that are similar to a name that is none, best first.
    pub fn similar(name: &str) -> Vec<&'static str> {
        if name.len() > MAX_COMPARED {
            return Vec::new();
        }
        let last_word = |name: &str| name.rsplit('.').next().unwrap_or_default().to_owned();
        let mut similar: Vec<_> = Self::all()
            .filter_map(|field| {
                let known = field.name();
                let distance = strsim::osa_distance(name, known);
                let has_word = last_word(name) == last_word(known);
                let is_close = distance <= 1 + name.len().min(known.len()) / 5;
                (is_close || has_word).then_some((distance, known))
            })
            .collect();
        similar.sort_unstable();
        similar.into_iter().take(8).map(|(_, name)| name).collect()
    }

    /// Returns the name.
    pub fn name(self) -> &'static str {
        &self.entry.name
    }

    /// Returns its entry.
    pub(super) fn entry(self) -> &'static Entry {
        self.entry
    }

    /// Returns the kind of the values.
    pub fn kind(self) -> FieldKind {
        self.entry.kind
    }
}

/// Longer names are similar to none.
const MAX_COMPARED: usize = 64;

impl std::fmt::Debug for NamedField {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

impl PartialEq for NamedField {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self.entry, other.entry)
    }
}

impl Eq for NamedField {}
