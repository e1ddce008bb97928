//! Opcodes by name.

use roce_wire::{KnownOpcode, Opcode};

use crate::NameError;

/// Returns the opcode of a name, such as `rc_send_only`, `"RC SEND Only"` or `rc_write_only`, or of a
/// number, such as `0x04`. Case, spaces, `_` and `-` do not matter, and the word RDMA may be left out.
///
/// ```
/// use roce_generator::find_opcode;
/// use roce_wire::opcode;
///
/// assert_eq!(find_opcode("rc_write_only"), Ok(opcode::RC_WRITE_ONLY));
/// assert_eq!(find_opcode("0x11"), Ok(opcode::RC_ACKNOWLEDGE));
/// ```
///
/// # Errors
/// [`NameError::Opcode`], with similar names.
pub fn find_opcode(name: &str) -> Result<KnownOpcode, NameError> {
    let number = match name.strip_prefix("0x") {
        Some(digits) => u8::from_str_radix(digits, 16).ok(),
        None => name.parse().ok(),
    };
    if let Some(known) = number.and_then(|code| KnownOpcode::new(Opcode(code))) {
        return Ok(known);
    }
    let wanted = plain(name);
    let found = KnownOpcode::all().find(|known| plain(known.name()) == wanted);
    found.ok_or_else(|| NameError::Opcode { name: shortened(name), similar: similar(&wanted) })
}

/// Returns names that have all words of another, at most six.
fn similar(wanted: &str) -> Vec<&'static str> {
    let words: Vec<_> = wanted.split('_').filter(|word| !word.is_empty()).collect();
    let has_all = |known: &KnownOpcode| {
        let name = plain(known.name());
        words.iter().all(|word| name.split('_').any(|it| it.starts_with(word)))
    };
    let all = KnownOpcode::all().filter(|known| !words.is_empty() && has_all(known));
    all.map(KnownOpcode::name).take(6).collect()
}

fn plain(name: &str) -> String {
    let name: String =
        name.chars().map(|it| if it.is_ascii_alphanumeric() { it } else { '_' }).collect();
    name.to_ascii_lowercase().replace("rdma_", "")
}

/// Returns the text for a message.
fn shortened(text: &str) -> String {
    text.chars().take(40).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_opcode_is_found_by_its_name_and_its_number() {
        for known in KnownOpcode::all() {
            assert_eq!(find_opcode(known.name()), Ok(known));
            assert_eq!(find_opcode(&known.name().to_lowercase().replace(' ', "_")), Ok(known));
            assert_eq!(find_opcode(&format!("{:#04x}", known.code().0)), Ok(known));
            assert_eq!(find_opcode(&known.code().0.to_string()), Ok(known));
        }
    }

    #[test]
    fn a_name_that_is_none_is_refused_with_those_that_have_its_words() {
        let NameError::Opcode { similar, .. } = find_opcode("rc_send").unwrap_err() else {
            panic!("an opcode")
        };
        assert!(similar.contains(&"RC SEND Only") && similar.len() == 6, "{similar:?}");
        for text in ["", "0x100", "0xff", "rc", "send_only ", "é"] {
            assert!(find_opcode(text).is_err(), "{text}");
        }
    }
}
