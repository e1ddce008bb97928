//! The body of a fuzz target: any bytes as the line of a pingpong program. Not part of the
//! crate's interface; it exists for the fuzzer, and for the test that replays its corpus.

use crate::exchange::QpDest;

/// Checks that a parsed line is written and parsed as the same again.
pub fn dest(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    for line in text.split('\n') {
        match line.parse::<QpDest>() {
            Ok(dest) => {
                let again = dest.to_string().parse::<QpDest>();
                assert_eq!(again.expect("a parsed line can be written"), dest);
            }
            // The error shows only the beginning of a long line.
            Err(error) => assert!(error.to_string().len() < 1500),
        }
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_line_in_the_corpus_is_refused_or_read_and_written_as_the_same() {
        roce_fuzz_support::replay("bootstrap", 1, super::dest);
    }
}
