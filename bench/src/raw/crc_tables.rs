//! The part of an ICRC that covers the headers, looked up instead of computed.
//!
//! A CRC is linear: two texts of one length that differ in some bytes have CRCs that differ by
//! the sum of what each of these bytes contributes at its place. From packet to packet of a train
//! only the identification and the BTH change, so the CRC of the 40 bytes of headers is that of
//! the train's headers with zeros in these places, and one table entry for each byte there. Where
//! a CRC goes by large pieces, as crc32fast's does, 40 bytes on their own are expensive: they cost
//! as much as the 1024 of payload behind them.

use crc32fast::Hasher;

use super::frame::{AFTER_EIGHT_ONES, BTH_LEN, COVERED_LEN};

/// What each value of each changing byte contributes: two of the identification, then the BTH.
#[derive(Debug)]
pub(crate) struct CrcTables(Vec<[u32; 256]>);

/// The CRC of a train's headers without what changes from packet to packet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FixedPart(u32);

impl CrcTables {
    pub(crate) fn new() -> Self {
        let nothing = crc(&[0; COVERED_LEN]);
        let of_value = |place: usize, value: u8| {
            let mut head = [0; COVERED_LEN];
            head[place] = value;
            crc(&head) ^ nothing
        };
        let of_place = |place| std::array::from_fn(|value| of_value(place, value as u8));
        let identification = IDENTIFICATION..IDENTIFICATION + 2;
        Self(identification.chain(COVERED_LEN - BTH_LEN..COVERED_LEN).map(of_place).collect())
    }

    /// Of headers whose identification and BTH may be anything.
    pub(crate) fn fixed(head: &[u8; COVERED_LEN]) -> FixedPart {
        let mut head = *head;
        head[IDENTIFICATION..IDENTIFICATION + 2].fill(0);
        head[COVERED_LEN - BTH_LEN..].fill(0);
        FixedPart(crc(&head))
    }

    /// The CRC of the whole headers, with a BTH whose byte 4 counts as ones.
    #[inline]
    pub(crate) fn crc(&self, fixed: FixedPart, identification: u16, bth: &[u8; BTH_LEN]) -> u32 {
        let mut masked = *bth;
        masked[4] = 0xff;
        let changing = identification.to_be_bytes().into_iter().chain(masked);
        changing.zip(&self.0).fold(fixed.0, |crc, (byte, table)| crc ^ table[usize::from(byte)])
    }
}

fn crc(head: &[u8; COVERED_LEN]) -> u32 {
    let mut crc = Hasher::new_with_initial(AFTER_EIGHT_ONES);
    crc.update(head);
    crc.finalize()
}

/// Where the identification is in an IPv4 header.
const IDENTIFICATION: usize = 4;
