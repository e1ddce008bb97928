//! Arguments of a rank.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use crate::error::{CliError, Result};
use crate::local::ring;

/// The names of the placeholders, as they stand between braces.
const NAMES: [&str; 5] = ["rank", "size", "address", "peer", OPTIONAL_PEER];

/// Nothing for rank 0, the address of rank 0 for the others.
const OPTIONAL_PEER: &str = "peer?";

/// Returns the line of a rank: placeholders are replaced, arguments that become empty by that are
/// left out. With two ranks and no placeholder, rank 1 gets its peer's address.
pub(crate) fn line_of(line: &[OsString], rank: u32, size: u32) -> Vec<OsString> {
    let mut filled = filled(line, rank, size);
    if size == 2 && rank == 1 && !has_placeholder(line) {
        filled.push(peer_of(rank).into());
    }
    filled
}

/// Returns the line of a rank: placeholders are replaced, arguments that become empty by that are
/// left out.
pub(crate) fn filled(line: &[OsString], rank: u32, size: u32) -> Vec<OsString> {
    let peer = peer_of(rank);
    let value_of = |name: &str| match name {
        "rank" => rank.to_string(),
        "size" => size.to_string(),
        "address" => ring::address(0, rank),
        OPTIONAL_PEER if rank == 0 => String::new(),
        _ => peer.clone(),
    };
    let fill = |argument: &OsString| {
        let bytes_of = |piece| match piece {
            Piece::Placeholder(name) => value_of(name).into_bytes(),
            Piece::Text(text) | Piece::Unknown(text) => text.to_vec(),
        };
        let filled: Vec<u8> = pieces(argument).flat_map(bytes_of).collect();
        let is_left_out = filled.is_empty() && !argument.is_empty();
        (!is_left_out).then(|| OsString::from_vec(filled))
    };
    let mut filled: Vec<OsString> = line.iter().take(1).cloned().collect();
    filled.extend(line.iter().skip(1).filter_map(fill));
    filled
}

/// Returns the address of rank 0, for rank 0 that of rank 1.
fn peer_of(rank: u32) -> String {
    ring::address(0, u32::from(rank == 0))
}

/// Checks that no argument has a word in braces that is no placeholder, such as a misspelt one.
pub(crate) fn check(line: &[OsString]) -> Result {
    let unknown = line.iter().skip(1).flat_map(|argument| pieces(argument)).find_map(|piece| {
        let Piece::Unknown(text) = piece else { return None };
        Some(String::from_utf8_lossy(text).into_owned())
    });
    let Some(unknown) = unknown else { return Ok(()) };
    let known = NAMES.map(|name| format!("{{{name}}}")).join(", ");
    Err(CliError::new(format!(
        "{unknown} is no placeholder; there are {known}; write {{{unknown}}} if the program is to \
         get {unknown}"
    )))
}

/// Returns true if the line is that of a server on rank 0, on which its clients wait.
pub(crate) fn has_server(line: &[OsString], size: u32) -> bool {
    let is_optional = |name| name == OPTIONAL_PEER;
    size > 1 && (placeholders(line).any(is_optional) || (size == 2 && !has_placeholder(line)))
}

/// Returns true if an argument differs from rank to rank.
fn has_placeholder(line: &[OsString]) -> bool {
    placeholders(line).next().is_some()
}

/// Returns the names of the placeholders in the arguments.
fn placeholders(line: &[OsString]) -> impl Iterator<Item = &'static str> {
    line.iter().skip(1).flat_map(|argument| pieces(argument)).filter_map(|piece| match piece {
        Piece::Placeholder(name) => Some(name),
        Piece::Text(_) | Piece::Unknown(_) => None,
    })
}

/// A part of an argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Piece<'a> {
    /// Text that the program gets as it stands.
    Text(&'a [u8]),
    /// The name of a placeholder.
    Placeholder(&'static str),
    /// A word in braces, with them, that is no placeholder.
    Unknown(&'a [u8]),
}

fn pieces(argument: &OsStr) -> Pieces<'_> {
    Pieces(argument.as_bytes())
}

/// Splits an argument. Braces that hold anything but a word are text: JSON, a shell's `${x}`, `{}`.
struct Pieces<'a>(&'a [u8]);

impl<'a> Iterator for Pieces<'a> {
    type Item = Piece<'a>;

    fn next(&mut self) -> Option<Piece<'a>> {
        let bytes = self.0;
        let first = *bytes.first()?;
        if first == b'{' {
            // Doubled braces are single ones in the text.
            if let Some(inner) = bytes.get(1..).and_then(braced)
                && bytes.get(1 + inner.len()) == Some(&b'}')
            {
                self.0 = &bytes[inner.len() + 2..];
                return Some(Piece::Text(inner));
            }
            if let Some(word) = braced(bytes) {
                self.0 = &bytes[word.len()..];
                return Some(name_of(word).map_or(Piece::Unknown(word), Piece::Placeholder));
            }
        }
        // A variable of a shell: its brace begins no placeholder.
        let own = if bytes.starts_with(b"${") { 2 } else { 1 };
        let begins = |&at: &usize| bytes[at] == b'{' || bytes[at..].starts_with(b"${");
        let end = (own..bytes.len()).find(begins).unwrap_or(bytes.len());
        let (text, rest) = bytes.split_at(end);
        self.0 = rest;
        Some(Piece::Text(text))
    }
}

/// Returns the braces at the start of a text with the word in them: the name of a placeholder, or
/// letters, which may have a space on both sides.
fn braced(bytes: &[u8]) -> Option<&[u8]> {
    let end = bytes.iter().position(|&byte| byte == b'}')?;
    let inner = bytes[..end].strip_prefix(b"{")?;
    let unpadded = inner.strip_prefix(b" ").and_then(|inner| inner.strip_suffix(b" "));
    let word = unpadded.unwrap_or(inner);
    let is_word = !word.is_empty() && word.iter().all(u8::is_ascii_alphabetic);
    let braced = &bytes[..=end];
    (is_word || name_of(braced).is_some()).then_some(braced)
}

/// Returns the name of a placeholder that is given with its braces.
fn name_of(braced: &[u8]) -> Option<&'static str> {
    let inner = braced.strip_prefix(b"{")?.strip_suffix(b"}")?;
    NAMES.into_iter().find(|name| name.as_bytes() == inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(text: &str, rank: u32, size: u32) -> String {
        let words: Vec<OsString> = text.split(' ').map(OsString::from).collect();
        let filled = line_of(&words, rank, size);
        let filled: Vec<&str> = filled.iter().map(|word| word.to_str().expect("text")).collect();
        filled.join(" ")
    }

    fn served(text: &str, size: u32) -> bool {
        has_server(&text.split(' ').map(OsString::from).collect::<Vec<_>>(), size)
    }

    #[test]
    fn a_line_without_placeholders_is_a_server_and_its_client() {
        assert_eq!(line("ib_write_bw -a", 0, 2), "ib_write_bw -a");
        assert_eq!(line("ib_write_bw -a", 1, 2), "ib_write_bw -a 10.0.0.1");
        assert_eq!(line("ib_write_bw -a", 1, 3), "ib_write_bw -a");
        assert_eq!(line("ib_write_bw -a", 0, 1), "ib_write_bw -a");
    }

    #[test]
    fn placeholders_are_replaced_wherever_they_stand() {
        let all = "p {rank}/{size} --at={address} {peer} {peer?} x{peer?}y";
        assert_eq!(line(all, 0, 3), "p 0/3 --at=10.0.0.1 10.0.0.2 xy");
        assert_eq!(line(all, 2, 3), "p 2/3 --at=10.0.0.3 10.0.0.1 10.0.0.1 x10.0.0.1y");
        assert_eq!(line("{rank} {rank}{rank} {}", 1, 2), "{rank} 11 {}");
    }

    fn refused(text: &str) -> Option<String> {
        match check(&["p", text].map(OsString::from)) {
            Err(CliError::Message(text)) => Some(text),
            _ => None,
        }
    }

    #[test]
    fn a_word_in_braces_that_is_no_placeholder_is_refused() {
        for word in ["{pear}", "{Peer}", "{ peer }", "{x}"] {
            let words = refused(&format!("--at={word}:1")).expect(word);
            assert!(words.starts_with(&format!("{word} is no placeholder; there are {{rank}}, ")));
            assert!(words.contains(&format!("{{peer?}}; write {{{word}}} if")), "{words}");
        }
        assert_eq!(refused("{rank}{size}{address}{peer}{peer?}"), None);
        assert!(check(&["{pear}"].map(OsString::from)).is_ok(), "the name of the program");
    }

    #[test]
    fn braces_around_anything_but_a_word_stay() {
        for text in [
            "{}",
            "{",
            "}",
            "{\"a\":{\"b\":1}}",
            "${x}",
            "${peer}",
            "{a,b}",
            "{1..3}",
            "{a_b}",
            "$",
            "$$",
        ] {
            assert_eq!(refused(text), None, "{text}");
            assert_eq!(line(&format!("p {text}"), 0, 3), format!("p {text}"));
        }
        assert_eq!(line("p {\"rank\":{rank}}$x{rank}{", 2, 3), "p {\"rank\":2}$x2{");
    }

    #[test]
    fn doubled_braces_give_the_program_single_ones() {
        for (text, told) in [("{{pear}}", "{pear}"), ("x{{peer?}}{rank}", "x{peer?}1")] {
            assert_eq!(refused(text), None, "{text}");
            assert_eq!(line(&format!("p {text}"), 1, 3), format!("p {told}"));
        }
        let spaced = ["p", "{{ peer }}"].map(OsString::from);
        assert_eq!(line_of(&spaced, 0, 3), ["p", "{ peer }"].map(OsString::from));
        assert!(served("p {{rank}}", 2), "it is no placeholder");
    }

    #[test]
    fn clients_wait_only_for_a_server() {
        assert!(served("ib_write_bw", 2) && served("p {peer?} {rank}", 3));
        assert!(!served("p", 3) && !served("p {rank}", 2) && !served("p {peer?}", 1));
    }

    #[test]
    fn an_empty_argument_stays() {
        let words = ["p", "", "{peer?}"].map(OsString::from);
        assert_eq!(line_of(&words, 0, 2), ["p", ""].map(OsString::from));
    }
}
