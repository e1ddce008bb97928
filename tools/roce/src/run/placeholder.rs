//! Arguments of a rank.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use crate::local::ring;

/// Nothing for rank 0, the address of rank 0 for the others.
const OPTIONAL_PEER: &str = "{peer?}";

/// Returns the line of a rank: placeholders are replaced, arguments that become empty by that are
/// left out. With two ranks and no placeholder, rank 1 gets its peer's address.
pub(crate) fn line_of(line: &[OsString], rank: u32, size: u32) -> Vec<OsString> {
    let has_placeholders = line.iter().skip(1).any(|argument| has_placeholder(argument));
    let peer = ring::address(0, u32::from(rank == 0));
    let optional_peer = if rank == 0 { String::new() } else { peer.clone() };
    let values = [
        ("{rank}", rank.to_string()),
        ("{size}", size.to_string()),
        ("{address}", ring::address(0, rank)),
        ("{peer}", peer.clone()),
        (OPTIONAL_PEER, optional_peer),
    ];
    let fill = |argument: &OsString| {
        let filled = values.iter().fold(argument.as_bytes().to_vec(), |bytes, (name, value)| {
            replace(&bytes, name.as_bytes(), value.as_bytes())
        });
        let is_left_out = filled.is_empty() && !argument.is_empty();
        (!is_left_out).then(|| OsString::from_vec(filled))
    };
    let mut filled: Vec<OsString> = line.iter().take(1).cloned().collect();
    filled.extend(line.iter().skip(1).filter_map(fill));
    if size == 2 && rank == 1 && !has_placeholders {
        filled.push(peer.into());
    }
    filled
}

/// Returns true if the line is that of a server on rank 0, on which its clients wait.
pub(crate) fn has_server(line: &[OsString], size: u32) -> bool {
    let mut arguments = line.iter().skip(1);
    let is_optional = |argument: &OsString| contains(argument.as_bytes(), OPTIONAL_PEER.as_bytes());
    let is_plain_pair = || size == 2 && !line.iter().skip(1).any(|text| has_placeholder(text));
    size > 1 && (arguments.any(is_optional) || is_plain_pair())
}

fn has_placeholder(argument: &OsStr) -> bool {
    ["{rank}", "{size}", "{address}", "{peer}", OPTIONAL_PEER]
        .iter()
        .any(|name| contains(argument.as_bytes(), name.as_bytes()))
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

fn replace(bytes: &[u8], name: &[u8], value: &[u8]) -> Vec<u8> {
    let mut replaced = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    while let Some(at) = rest.windows(name.len()).position(|window| window == name) {
        replaced.extend_from_slice(&rest[..at]);
        replaced.extend_from_slice(value);
        rest = &rest[at + name.len()..];
    }
    replaced.extend_from_slice(rest);
    replaced
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
        assert_eq!(line("{rank} {rank}{rank} {Rank} {}", 1, 2), "{rank} 11 {Rank} {}");
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
