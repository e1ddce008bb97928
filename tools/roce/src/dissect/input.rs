//! The bytes of a capture, decompressed.

use std::io::{self, Cursor, Read};

use flate2::read::MultiGzDecoder;

/// The bytes of a capture.
pub(crate) struct Input {
    pub(crate) reader: Box<dyn Read + Send>,
    /// True if offsets in the reader are not those of the file.
    pub(crate) is_compressed: bool,
}

impl Input {
    /// Looks at the first bytes, and decompresses what gzip has compressed. Memory does not depend
    /// on the contents: gzip looks back 32 KiB at most.
    pub(crate) fn open(mut reader: impl Read + Send + 'static) -> io::Result<Self> {
        let mut first = [0; GZIP.len()];
        let len = read_up_to(&mut reader, &mut first)?;
        let whole = Cursor::new(first[..len].to_vec()).chain(reader);
        Ok(match first == GZIP {
            true => Self { reader: Box::new(MultiGzDecoder::new(whole)), is_compressed: true },
            false => Self { reader: Box::new(whole), is_compressed: false },
        })
    }
}

fn read_up_to(reader: &mut impl Read, into: &mut [u8]) -> io::Result<usize> {
    let mut len = 0;
    while len < into.len() {
        match reader.read(&mut into[len..]) {
            Ok(0) => break,
            Ok(read) => len += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(len)
}

const GZIP: [u8; 2] = [0x1f, 0x8b];

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;

    fn compressed(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    fn read(bytes: Vec<u8>) -> io::Result<Vec<u8>> {
        let mut all = Vec::new();
        Input::open(Cursor::new(bytes))?.reader.read_to_end(&mut all).map(|_| all)
    }

    #[test]
    fn plain_and_compressed_bytes_are_read_whole() {
        for text in ["", "x", "capture", &"many ".repeat(100_000)] {
            assert_eq!(read(text.into()).unwrap(), text.as_bytes());
            let mut twice = compressed(text.as_bytes());
            twice.extend(compressed(b" and more"));
            assert_eq!(read(twice).unwrap(), format!("{text} and more").as_bytes());
        }
    }

    #[test]
    fn damaged_compression_is_an_error_and_no_panic() {
        let whole = compressed(&b"capture".repeat(1000));
        for at in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[at] ^= 0xff;
            let _ = read(damaged);
            if at > 2 {
                assert!(read(whole[..at].to_vec()).is_err(), "cut at {at}");
            }
        }
    }
}
