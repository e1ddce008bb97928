//! The part of the fuzz target `bootstrap` that reads messages.

use roce_ring::{Collective, DataType, ReduceOp};

use crate::message::Message;

/// Reads any bytes as messages: no panic, and what is read is written and read again as the same.
pub(crate) fn messages(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    for text in text.split('\n') {
        let Ok(message) = Message::parse(text) else { continue };
        let again = message.encode().expect("a message that was read can be sent");
        assert_eq!(Message::parse(&again), Ok(message.clone()));
        assert!(again.is_ascii() && again.len() <= Message::MAX_BYTES);
        for (key, value) in message.fields() {
            assert_eq!(message.value(key), Some(value));
            if let Ok(number) = message.number(key) {
                let written = Message::new("A").with("decimal", number);
                let written = written.with("hexadecimal", format_args!("{number:#x}"));
                assert_eq!(written.number("decimal"), Ok(number));
                assert_eq!(written.number("hexadecimal"), Ok(number));
            }
            if let Ok(data_type) = value.parse::<DataType>() {
                assert_eq!(data_type.name().parse(), Ok(data_type));
            }
            if let Ok(op) = value.parse::<ReduceOp>() {
                assert_eq!(op.name().parse(), Ok(op));
            }
            if let Ok(collective) = value.parse::<Collective>() {
                assert_eq!(collective.name().parse(), Ok(collective));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_message_in_the_corpus_is_refused_or_read_and_written_as_the_same() {
        roce_fuzz_support::replay("bootstrap", 1, super::messages);
    }
}
