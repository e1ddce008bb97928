//! The body of a fuzz target: any bytes as the line of a pingpong program. Not part of the
//! crate's interface; it exists for the fuzzer, and for the test that replays its corpus.

use crate::exchange::QpDest;

/// What is read is written and read again as the same.
pub fn dest(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    for line in text.split('\n') {
        match line.parse::<QpDest>() {
            Ok(dest) => {
                let again = dest.to_string().parse::<QpDest>();
                assert_eq!(again.expect("what is read may be sent"), dest);
            }
            // What a stranger says is shown in part.
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
