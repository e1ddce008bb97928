//! The record that announces a rank's output.

/// Address and key of the next rank's output for one operation: 24 bytes that it writes to us.
///
/// ```
/// use roce_ring::WindowRecord;
///
/// let record = WindowRecord { addr: 0x1000, len: 64, rkey: 7 };
/// assert_eq!(WindowRecord::from_bytes(&record.to_bytes()), record);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct WindowRecord {
    /// The address of the output buffer.
    pub addr: u64,
    /// The length in bytes.
    pub len: u64,
    /// The remote key.
    pub rkey: u32,
}

impl WindowRecord {
    /// The length of a record in bytes.
    pub const LEN: usize = 24;

    /// Decodes a record; the last four bytes are ignored.
    pub fn from_bytes(bytes: &[u8; Self::LEN]) -> Self {
        let word = |at: usize| {
            let mut word = [0; 8];
            word.copy_from_slice(&bytes[at..at + 8]);
            u64::from_be_bytes(word)
        };
        Self { addr: word(0), len: word(8), rkey: (word(16) >> 32) as u32 }
    }

    /// Encodes the record, big-endian.
    pub fn to_bytes(self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[..8].copy_from_slice(&self.addr.to_be_bytes());
        bytes[8..16].copy_from_slice(&self.len.to_be_bytes());
        bytes[16..20].copy_from_slice(&self.rkey.to_be_bytes());
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_big_endian_with_zeroes_at_its_end() {
        let record = WindowRecord { addr: 0x0102_0304_0506_0708, len: 0x1112, rkey: 0x2122_2324 };
        let bytes = record.to_bytes();
        let expected = [
            1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0, 0, 0, 0, 0x11, 0x12, 0x21, 0x22, 0x23, 0x24, 0, 0, 0,
            0,
        ];
        assert_eq!(bytes, expected);
        assert_eq!(WindowRecord::from_bytes(&bytes), record);
    }
}
