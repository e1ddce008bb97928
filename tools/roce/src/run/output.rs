//! The output of ranks.

use std::io::{self, BufRead, BufReader, Read, Write};

use clap::ValueEnum;

/// What stands before the lines of a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Prefix {
    /// The number of the rank in brackets
    Rank,
    /// Nothing: the ranks write to this command's output themselves, byte by byte
    None,
}

/// Copies lines with the number of their rank in front. Returns false if they have no reader.
pub(crate) fn copy_lines(
    rank: usize,
    from: Option<impl Read>,
    to: &mut impl Write,
    colour: bool,
) -> bool {
    let Some(from) = from else { return true };
    let prefix = prefix_of(rank, colour);
    let mut reader = BufReader::new(from);
    let mut line = Vec::new();
    loop {
        line.clear();
        line.extend_from_slice(prefix.as_bytes());
        match reader.by_ref().take(MAX_LINE).read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => return true,
            Ok(_) => {}
        }
        if line.last() != Some(&b'\n') {
            line.push(b'\n');
        }
        if let Err(error) = to.write_all(&line).and_then(|()| to.flush()) {
            return error.kind() != io::ErrorKind::BrokenPipe;
        }
    }
}

/// Returns what stands before a rank's lines.
fn prefix_of(rank: usize, colour: bool) -> String {
    const COLOURS: [u8; 6] = [36, 33, 35, 32, 34, 31];
    match COLOURS.get(rank % COLOURS.len()).filter(|_| colour) {
        Some(code) => format!("\x1b[{code}m[{rank}]\x1b[0m "),
        None => format!("[{rank}] "),
    }
}

/// Longest line in bytes that is kept in one piece.
const MAX_LINE: u64 = 1 << 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_has_its_rank_in_front() {
        let mut out = Vec::new();
        assert!(copy_lines(1, Some(&b"one\n\ntwo"[..]), &mut out, false));
        assert_eq!(out, b"[1] one\n[1] \n[1] two\n");
        assert_eq!(prefix_of(0, true), "\x1b[36m[0]\x1b[0m ");
    }

    #[test]
    fn a_line_without_end_is_cut() {
        let mut out = Vec::new();
        let long = vec![b'x'; MAX_LINE as usize + 1];
        assert!(copy_lines(0, Some(long.as_slice()), &mut out, false));
        assert_eq!(out.len(), long.len() + 2 * "[0] \n".len());
    }
}
