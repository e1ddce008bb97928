//! The reasons of an explanation.

/// Results of the checks so far.
#[derive(Default)]
pub(super) struct Reasons(pub(super) Vec<String>);

impl Reasons {
    pub(super) fn say(&mut self, text: impl Into<String>) {
        self.0.push(text.into());
    }
}
