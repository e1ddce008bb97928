//! Arguments of a rank.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use crate::error::{CliError, Result};
use crate::rails;

/// The names of the placeholders, as they stand between braces.
const NAMES: [&str; 6] = ["rank", "size", "address", "peer", OPTIONAL_PEER, "interface"];

/// Those of the names that may have a colon and the number of a rail behind them.
const OF_RAILS: [&str; 4] = ["address", "peer", OPTIONAL_PEER, "interface"];

/// A placeholder: `{peer:1}` has the name `peer` and rail 1, `{peer}` rail 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Placeholder {
    name: &'static str,
    rail: u32,
}

/// Nothing for rank 0, the address of rank 0 for the others.
const OPTIONAL_PEER: &str = "peer?";

/// Returns the line of a rank: placeholders are replaced, arguments that become empty by that are
/// left out. With two ranks and no placeholder, rank 1 gets its peer's address.
pub(crate) fn line_of(line: &[OsString], rank: u32, size: u32) -> Vec<OsString> {
    let mut filled = filled(line, rank, size);
    if size == 2 && rank == 1 && !has_placeholder(line) {
        filled.push(peer_of(0, rank).into());
    }
    filled
}

/// Returns the line of a rank: placeholders are replaced, arguments that become empty by that are
/// left out.
pub(crate) fn filled(line: &[OsString], rank: u32, size: u32) -> Vec<OsString> {
    let value_of = |Placeholder { name, rail }| match name {
        "rank" => rank.to_string(),
        "size" => size.to_string(),
        "address" => rails::address(rail, rank),
        "interface" => rails::interface(rail),
        OPTIONAL_PEER if rank == 0 => String::new(),
        _ => peer_of(rail, rank),
    };
    let fill = |argument: &OsString| {
        let bytes_of = |piece| match piece {
            Piece::Placeholder(placeholder) => value_of(placeholder).into_bytes(),
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

/// Returns the address of rank 0 on a rail, for rank 0 that of rank 1.
fn peer_of(rail: u32, rank: u32) -> String {
    rails::address(rail, u32::from(rank == 0))
}

/// Checks that no argument has a word in braces that is no placeholder, such as a misspelt one, or one of a rail that
/// a run with this number of rails does not have.
pub(crate) fn check(line: &[OsString], rails: u32) -> Result {
    if let Some(wrong) = placeholders(line).find(|placeholder| placeholder.rail >= rails) {
        let Placeholder { name, rail } = wrong;
        let known =
            if rails == 1 { "rail 0".to_owned() } else { format!("rails 0 to {}", rails - 1) };
        return Err(CliError::new(format!(
            "{{{name}:{rail}}}: the run has {known} (--rails {rails})"
        )));
    }
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
    let is_optional = |it: Placeholder| it.name == OPTIONAL_PEER;
    size > 1 && (placeholders(line).any(is_optional) || (size == 2 && !has_placeholder(line)))
}

/// Returns true if an argument differs from rank to rank.
fn has_placeholder(line: &[OsString]) -> bool {
    placeholders(line).next().is_some()
}

/// Returns the placeholders in the arguments.
fn placeholders(line: &[OsString]) -> impl Iterator<Item = Placeholder> {
    line.iter().skip(1).flat_map(|argument| pieces(argument)).filter_map(|piece| match piece {
        Piece::Placeholder(placeholder) => Some(placeholder),
        Piece::Text(_) | Piece::Unknown(_) => None,
    })
}

/// A part of an argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Piece<'a> {
    /// Text that the program gets as it stands.
    Text(&'a [u8]),
    Placeholder(Placeholder),
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
                return Some(placeholder(word).map_or(Piece::Unknown(word), Piece::Placeholder));
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

/// Returns the braces at the start of a text with what is in them: a placeholder, or letters, which may have a space on both sides.
fn braced(bytes: &[u8]) -> Option<&[u8]> {
    let end = bytes.iter().position(|&byte| byte == b'}')?;
    let inner = bytes[..end].strip_prefix(b"{")?;
    let unpadded = inner.strip_prefix(b" ").and_then(|inner| inner.strip_suffix(b" "));
    let word = unpadded.unwrap_or(inner);
    let is_word = !word.is_empty() && word.iter().all(u8::is_ascii_alphabetic);
    let braced = &bytes[..=end];
    (is_word || placeholder(braced).is_some()).then_some(braced)
}

/// Returns the placeholder that is given with its braces.
fn placeholder(braced: &[u8]) -> Option<Placeholder> {
    let inner = str::from_utf8(braced).ok()?.strip_prefix('{')?.strip_suffix('}')?;
    if let Some((word, number)) = inner.split_once(':') {
        let name = OF_RAILS.into_iter().find(|name| *name == word)?;
        let is_number = number.bytes().all(|byte| byte.is_ascii_digit());
        return Some(Placeholder { name, rail: number.parse().ok().filter(|_| is_number)? });
    }
    let name = NAMES.into_iter().find(|name| *name == inner)?;
    Some(Placeholder { name, rail: 0 })
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

    #[test]
    fn placeholders_have_the_rail_behind_a_colon() {
        let all = "p {address:1} {peer:1} {peer?:1} {interface:1} {interface}";
        assert_eq!(line(all, 0, 3), "p 10.0.1.1 10.0.1.2 eth1 eth0");
        assert_eq!(line(all, 2, 3), "p 10.0.1.3 10.0.1.1 10.0.1.1 eth1 eth0");
        assert!(served("p {peer?:1}", 3));
        assert_eq!(refused("{peer:1}"), None);
        let words = refused("x{peer:2}").expect("a rail that is missing");
        assert_eq!(words, "{peer:2}: the run has rails 0 to 1 (--rails 2)");
        for text in ["{rank:1}", "{peer:}", "{peer:+1}", "{a:1}", "{peer:4294967296}"] {
            assert_eq!(line(&format!("p {text}"), 0, 3), format!("p {text}"));
        }
    }

    fn refused(text: &str) -> Option<String> {
        match check(&["p", text].map(OsString::from), 2) {
            Err(CliError::Message(text)) => Some(text),
            _ => None,
        }
    }

    #[test]
    fn a_word_in_braces_that_is_no_placeholder_is_refused() {
        for word in ["{pear}", "{Peer}", "{ peer }", "{x}"] {
            let words = refused(&format!("--at={word}:1")).expect(word);
            assert!(words.starts_with(&format!("{word} is no placeholder; there are {{rank}}, ")));
            assert!(words.contains(&format!("{{interface}}; write {{{word}}} if")), "{words}");
        }
        assert_eq!(refused("{rank}{size}{address}{peer}{peer?}"), None);
        assert!(check(&["{pear}"].map(OsString::from), 1).is_ok(), "the name of the program");
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
