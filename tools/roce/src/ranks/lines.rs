//! Output of ranks, copied line by line.

use std::io::{self, BufRead, BufReader, Read, Write};

/// Copies lines, each with `prefix` in front and a newline at its end. Lines that `is_told` returns true
/// for are left out.
///
/// # Errors
/// `to` cannot be written. If `from` cannot be read, it has ended.
pub(crate) fn copy_lines(
    from: impl Read,
    to: &mut impl Write,
    prefix: &str,
    mut is_told: impl FnMut(&str) -> bool,
) -> io::Result<()> {
    let mut reader = BufReader::new(from);
    let mut line = Vec::new();
    loop {
        line.clear();
        line.extend_from_slice(prefix.as_bytes());
        match reader.by_ref().take(MAX_LINE).read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => return Ok(()),
            Ok(_) => {}
        }
        let text = line.get(prefix.len()..).and_then(|text| std::str::from_utf8(text).ok());
        if text.is_some_and(|text| is_told(text.trim_end_matches('\n'))) {
            continue;
        }
        if line.last() != Some(&b'\n') {
            line.push(b'\n');
        }
        to.write_all(&line)?;
        to.flush()?;
    }
}

/// Longest line in bytes that is kept in one piece.
const MAX_LINE: u64 = 1 << 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_has_the_prefix_in_front_but_for_those_that_are_told() {
        let (mut out, mut told) = (Vec::new(), Vec::new());
        let is_told = |line: &str| {
            let is_mark = line.starts_with('!');
            told.extend(is_mark.then(|| line.to_owned()));
            is_mark
        };
        copy_lines(&b"one\n\n!a\n\xff\ntwo"[..], &mut out, "[1] ", is_told).unwrap();
        assert_eq!(out, b"[1] one\n[1] \n[1] \xff\n[1] two\n");
        assert_eq!(told, ["!a"]);
    }

    #[test]
    fn a_line_without_end_is_cut() {
        let mut out = Vec::new();
        let long = vec![b'x'; MAX_LINE as usize + 1];
        copy_lines(long.as_slice(), &mut out, "[0] ", |_| false).unwrap();
        assert_eq!(out.len(), long.len() + 2 * "[0] \n".len());
    }
}
