//! The messages of the bootstrap.

use std::fmt;

/// A message of the bootstrap: a word and fields, on one line.
///
/// ```
/// use roce_collectives::Message;
///
/// let message = Message::new("ABORT").with("rank", 2).with("reason", "out of memory");
/// let text = message.to_string();
/// assert_eq!(text, "ABORT rank=2 reason=out%20of%20memory");
/// assert_eq!(Message::parse(&text).unwrap(), message);
/// assert_eq!(message.number("rank").unwrap(), 2);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    word: String,
    fields: Vec<(String, String)>,
}

impl Message {
    /// The most bytes of a message, with its line feed.
    pub const MAX_BYTES: usize = 8192;
    /// The most fields of a message.
    pub const MAX_FIELDS: usize = 64;

    /// Creates a message without fields.
    ///
    /// [`encode`](Self::encode) checks that it may be sent.
    pub fn new(word: &str) -> Self {
        Self { word: word.to_owned(), fields: Vec::new() }
    }

    /// Adds a field.
    #[must_use]
    pub fn with(mut self, key: &str, value: impl fmt::Display) -> Self {
        self.fields.push((key.to_owned(), value.to_string()));
        self
    }

    /// Parses a line, with or without its line feed.
    ///
    /// # Errors
    /// [`MessageError`] if the line is malformed. Allocates no more than the length of the line.
    pub fn parse(text: &str) -> Result<Self, MessageError> {
        if text.len() >= Self::MAX_BYTES + usize::from(text.ends_with('\n')) {
            return Err(MessageError::TooLong);
        }
        let text = text.strip_suffix('\n').unwrap_or(text);
        let mut parts = text.split(' ');
        let word = parts.next().unwrap_or_default();
        let mut message = Self::new(word);
        message.check_word()?;
        for part in parts {
            let (key, value) =
                part.split_once('=').ok_or_else(|| MessageError::NotAField(excerpt(part)))?;
            let value = decode(value).ok_or_else(|| MessageError::BadValue(key.to_owned()))?;
            message.check_key(key)?;
            message.fields.push((key.to_owned(), value));
        }
        Ok(message)
    }

    /// Returns the line to send, with its line feed.
    ///
    /// # Errors
    /// [`MessageError`] if the peer would refuse it.
    pub fn encode(&self) -> Result<String, MessageError> {
        let mut checked = Self::new(&self.word);
        checked.check_word()?;
        for (key, _) in &self.fields {
            checked.check_key(key)?;
            checked.fields.push((key.clone(), String::new()));
        }
        let text = format!("{self}\n");
        if text.len() > Self::MAX_BYTES { Err(MessageError::TooLong) } else { Ok(text) }
    }

    /// Returns the first word.
    pub fn word(&self) -> &str {
        &self.word
    }

    /// Returns all fields in order, decoded.
    pub fn fields(&self) -> impl Iterator<Item = (&str, &str)> {
        self.fields.iter().map(|(key, value)| (key.as_str(), value.as_str()))
    }

    /// Returns the value of a field, if present.
    pub fn value(&self, key: &str) -> Option<&str> {
        self.fields().find(|(found, _)| *found == key).map(|(_, value)| value)
    }

    /// Returns the value of a required field.
    ///
    /// # Errors
    /// [`MessageError::Missing`].
    pub fn text(&self, key: &str) -> Result<&str, MessageError> {
        self.value(key)
            .ok_or_else(|| MessageError::Missing { word: self.word.clone(), key: key.to_owned() })
    }

    /// Returns the number in a required field: decimal, or hexadecimal after `0x`.
    ///
    /// # Errors
    /// [`MessageError::Missing`] or [`MessageError::NotANumber`].
    pub fn number(&self, key: &str) -> Result<u64, MessageError> {
        let text = self.text(key)?;
        let digits = text.strip_prefix("0x");
        let radix = if digits.is_some() { 16 } else { 10 };
        let digits = digits.unwrap_or(text);
        // `from_str_radix` accepts a sign.
        let number = if digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            u64::from_str_radix(digits, radix).ok()
        } else {
            None
        };
        number
            .ok_or_else(|| MessageError::NotANumber { key: key.to_owned(), value: text.to_owned() })
    }

    /// Returns the number in a required field as a `T`.
    ///
    /// # Errors
    /// As [`number`](Self::number).
    pub fn number_as<T: TryFrom<u64>>(&self, key: &str) -> Result<T, MessageError> {
        T::try_from(self.number(key)?).map_err(|_| MessageError::NotANumber {
            key: key.to_owned(),
            value: self.value(key).unwrap_or_default().to_owned(),
        })
    }

    fn check_word(&self) -> Result<(), MessageError> {
        let good = (1..=16).contains(&self.word.len())
            && self.word.bytes().all(|byte| byte.is_ascii_uppercase());
        if good { Ok(()) } else { Err(MessageError::BadWord(excerpt(&self.word))) }
    }

    /// Checks that `key` may come next.
    fn check_key(&self, key: &str) -> Result<(), MessageError> {
        let good = (1..=64).contains(&key.len())
            && key.bytes().all(|byte| {
                byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"._-".contains(&byte)
            });
        if !good {
            return Err(MessageError::BadKey(excerpt(key)));
        }
        if self.value(key).is_some() {
            return Err(MessageError::Twice(key.to_owned()));
        }
        if self.fields.len() == Self::MAX_FIELDS {
            return Err(MessageError::TooManyFields);
        }
        Ok(())
    }
}

impl fmt::Display for Message {
    /// Writes the line without the line feed.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.word)?;
        for (key, value) in &self.fields {
            write!(f, " {key}=")?;
            for byte in value.bytes() {
                match byte {
                    b'%' | 0..=b' ' | 0x7f.. => write!(f, "%{byte:02X}")?,
                    _ => write!(f, "{}", char::from(byte))?,
                }
            }
        }
        Ok(())
    }
}

/// A malformed message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MessageError {
    /// The line has more than [`Message::MAX_BYTES`].
    #[error("the line has more than {} bytes; shorten it", Message::MAX_BYTES)]
    TooLong,
    /// The line has more than [`Message::MAX_FIELDS`].
    #[error("the line has more than {} fields; shorten it", Message::MAX_FIELDS)]
    TooManyFields,
    /// The line does not start with 1 to 16 upper-case letters.
    #[error(
        "the line starts with {0:?}, not with a word of the bootstrap; check that the peer is a rank"
    )]
    BadWord(String),
    /// A part is empty or has no `=`.
    #[error("{0:?} is not key=value; separate fields by single spaces")]
    NotAField(String),
    /// A key is empty, too long, or has an invalid character.
    #[error("{0:?} is not a key; use 1 to 64 of a-z 0-9 . _ -")]
    BadKey(String),
    /// A key occurs twice.
    #[error("{0} occurs twice in the line; send it once")]
    Twice(String),
    /// A value has a bare control or non-ASCII character, a broken escape, or no UTF-8.
    #[error("the value of {0} is not percent-encoded UTF-8")]
    BadValue(String),
    /// A required field is missing.
    #[error("{word} lacks {key}; use the same version on all ranks")]
    Missing {
        /// The first word.
        word: String,
        /// The missing field.
        key: String,
    },
    /// A value is not a number, or too large.
    #[error("{key}={value:?} is not a number, or out of range")]
    NotANumber {
        /// The field.
        key: String,
        /// The value.
        value: String,
    },
}

fn decode(text: &str) -> Option<String> {
    let mut bytes = text.bytes();
    let mut decoded = Vec::with_capacity(text.len());
    while let Some(byte) = bytes.next() {
        decoded.push(match byte {
            b'%' => {
                let mut digit = || char::from(bytes.next()?).to_digit(16);
                (digit()? << 4 | digit()?) as u8
            }
            0..=b' ' | 0x7f.. => return None,
            byte => byte,
        });
    }
    String::from_utf8(decoded).ok()
}

/// Returns the start of an unknown peer's text.
fn excerpt(text: &str) -> String {
    text.chars().take(40).collect()
}

#[cfg(test)]
mod tests {
    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};

    use super::*;

    #[test]
    fn any_value_comes_back_as_it_was() {
        for value in ["", "a b", "100%", "tab\tline\n", "größe ∘", "a=b", "\u{0}\u{7f}"] {
            let message = Message::new("HELLO").with("job.x", value).with("ring.slot_bytes", 8);
            let text = message.encode().unwrap();
            assert!(text.is_ascii() && text.ends_with('\n'), "{text:?}");
            assert_eq!(Message::parse(&text).unwrap(), message);
        }
    }

    #[test]
    fn numbers_are_decimal_or_hexadecimal_and_nothing_else() {
        let message = |value: &str| Message::new("LANE").with("qpn", value);
        assert_eq!(message("0x1F").number("qpn"), Ok(31));
        assert_eq!(message("31").number("qpn"), Ok(31));
        assert_eq!(message("18446744073709551615").number("qpn"), Ok(u64::MAX));
        for bad in ["", "0x", "-1", "+1", "1f", "0x+1", "18446744073709551616", " 1"] {
            assert!(
                matches!(message(bad).number("qpn"), Err(MessageError::NotANumber { .. })),
                "{bad}"
            );
        }
        assert!(message("65536").number_as::<u16>("qpn").is_err());
        assert!(matches!(message("1").number("psn"), Err(MessageError::Missing { .. })));
    }

    #[test]
    fn a_line_that_breaks_a_rule_is_refused_by_the_rule_it_breaks() {
        use MessageError::*;
        let long = format!("A x={}", "y".repeat(Message::MAX_BYTES));
        let many: String = (0..65).map(|i| format!(" k{i}=")).collect();
        let cases = [
            ("", BadWord("".into())),
            ("GET / HTTP/1.1", NotAField("/".into())),
            ("hello rank=1", BadWord("hello".into())),
            ("A  x=1", NotAField("".into())),
            ("A x", NotAField("x".into())),
            ("A X=1", BadKey("X".into())),
            ("A =1", BadKey("".into())),
            ("A x=1 x=2", Twice("x".into())),
            ("A x=%4", BadValue("x".into())),
            ("A x=%zz", BadValue("x".into())),
            ("A x=%+1", BadValue("x".into())),
            ("A x=%ff", BadValue("x".into())),
            ("A x=ä", BadValue("x".into())),
            ("A x=\r", BadValue("x".into())),
            (long.as_str(), TooLong),
            (&format!("A{many}"), TooManyFields),
        ];
        for (text, why) in cases {
            assert_eq!(Message::parse(text), Err(why), "{text:.60}");
        }
    }

    #[test]
    fn the_longest_line_is_taken_and_one_byte_more_is_not() {
        for (extra, good) in [(0, true), (1, false)] {
            let message = Message::new("A").with("x", "y".repeat(Message::MAX_BYTES - 5 + extra));
            assert_eq!(message.encode().is_ok(), good);
            let text = format!("{message}\n");
            assert_eq!(text.len(), Message::MAX_BYTES + extra);
            assert_eq!(Message::parse(&text).is_ok(), good);
            assert_eq!(Message::parse(&message.to_string()).is_ok(), good);
        }
    }

    #[test]
    fn a_message_that_the_peer_would_refuse_is_not_sent() {
        assert!(Message::new("hello").encode().is_err());
        assert!(Message::new("A").with("b c", 1).encode().is_err());
        assert!(Message::new("A").with("b", 1).with("b", 2).encode().is_err());
    }

    #[test]
    fn any_text_is_refused_or_understood_as_it_would_be_sent() {
        let parts =
            ["HELLO", " ", "=", "a", "rank", "%", "%41", "%zz", "%C3%A9", "é", "\n", "0x", "9"];
        for seed in 0..5000 {
            let mut random = StdRng::seed_from_u64(seed);
            let count = random.random_range(0..12);
            let mut text = String::from(if random.random() { "ABORT" } else { "" });
            (0..count).for_each(|_| text.push_str(parts[random.random_range(0..parts.len())]));
            if let Ok(message) = Message::parse(&text) {
                let again = message.encode().expect("what was read can be sent");
                assert_eq!(Message::parse(&again), Ok(message), "seed {seed}");
            }
        }
    }
}
