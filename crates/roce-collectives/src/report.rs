//! Reports of ranks to rank 0's program.

use crate::message::Message;

/// A report of one rank: a kind, and fields that the program defines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// The rank that reports.
    pub rank: u32,
    /// The kind: one word.
    pub kind: String,
    /// Names and values of the fields.
    pub fields: Vec<(String, String)>,
}

impl Report {
    pub(crate) fn from_message(rank: u32, message: &Message) -> Self {
        let kind = message.value("kind").unwrap_or_default().to_owned();
        let rest = message.fields().filter(|(key, _)| *key != "kind");
        let fields = rest.map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
        Self { rank, kind, fields }
    }

    /// Returns the value of a field, if present.
    pub fn value(&self, key: &str) -> Option<&str> {
        self.fields.iter().find(|(found, _)| found == key).map(|(_, value)| value.as_str())
    }
}
