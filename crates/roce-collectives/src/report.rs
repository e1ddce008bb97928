//! What ranks report to rank 0's program.

use crate::bootstrap::Message;

/// A report of one rank: a kind, and fields that mean something to the program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// Whose.
    pub rank: u32,
    /// What it is about: one word.
    pub kind: String,
    /// The rest.
    pub fields: Vec<(String, String)>,
}

impl Report {
    pub(crate) fn from_message(rank: u32, message: &Message) -> Self {
        let kind = message.value("kind").unwrap_or_default().to_owned();
        let rest = message.fields().filter(|(key, _)| *key != "kind");
        let fields = rest.map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
        Self { rank, kind, fields }
    }

    /// The value of a field, if the report has it.
    pub fn value(&self, key: &str) -> Option<&str> {
        self.fields.iter().find(|(found, _)| found == key).map(|(_, value)| value.as_str())
    }
}
