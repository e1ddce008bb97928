//! The CRC of a payload on its own, made where the payload is moved.

use crc32fast::Hasher;

use crate::PathMtu;

/// What the bytes of a payload contribute to the ICRC of its packet.
///
/// Whoever copies a payload has every byte of it in a register once; going on with the CRC from
/// there spares a second pass. [`Sealing::seal_around`](crate::Sealing::seal_around) puts it
/// together with the headers, whenever those are known.
///
/// The number is the register of a CRC-32 (reflected, polynomial `0xedb88320`) that held zero
/// before the first byte, without the complement at the end.
///
/// ```
/// use roce_wire::PayloadCrc;
/// let plain = |bytes: &[u8]| bytes.iter().fold(0, |register: u32, byte| {
///     (0..8).fold(register ^ u32::from(*byte), |it, _| it >> 1 ^ (it & 1) * 0xedb8_8320)
/// });
/// assert_eq!(PayloadCrc::of(&[1, 2, 3]), PayloadCrc::from_register(plain(&[1, 2, 3])));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PayloadCrc(u32);

impl PayloadCrc {
    /// Of these bytes.
    pub fn of(payload: &[u8]) -> Self {
        let mut crc = Hasher::new_with_initial(ZERO_REGISTER);
        crc.update(payload);
        Self(!crc.finalize())
    }

    /// Of bytes that left this in a register which held zero before them.
    pub const fn from_register(register: u32) -> Self {
        Self(register)
    }

    /// The CRC, complemented as CRCs are, of text with the CRC `before`, and behind it this payload
    /// of the length that `behind` is for.
    pub(crate) fn after(self, before: u32, behind: &Behind) -> u32 {
        !(behind.register(!before) ^ self.0)
    }
}

/// What a CRC register becomes by as many zeros as a payload has bytes.
///
/// A CRC is linear, so each byte of the register goes its own way: four looks at a table.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Behind([[u32; 256]; 4]);

impl Behind {
    /// For whole payloads of packets in the middle of a message; `None` for other lengths.
    pub(crate) fn payload_of(len: usize) -> Option<&'static Self> {
        static ALL: [Behind; 5] = [
            Behind::new(PathMtu::B256),
            Behind::new(PathMtu::B512),
            Behind::new(PathMtu::B1024),
            Behind::new(PathMtu::B2048),
            Behind::new(PathMtu::B4096),
        ];
        PathMtu::from_bytes(len).map(|mtu| &ALL[usize::from(mtu.code()) - 1])
    }

    const fn new(mtu: PathMtu) -> Self {
        // One bit further is a multiplication by x, so zeros of that many bits are one by x^bits.
        let (mut power, mut bits) = (X, 1);
        while bits < 8 * mtu.bytes() {
            power = product(power, power);
            bits *= 2;
        }
        let mut tables = [[0; 256]; 4];
        let mut place = 0;
        while place < 4 {
            let mut value = 0;
            while value < 256 {
                tables[place][value] = product(power, (value as u32) << (8 * place));
                value += 1;
            }
            place += 1;
        }
        Self(tables)
    }

    fn register(&self, register: u32) -> u32 {
        let [a, b, c, d] = register.to_le_bytes().map(usize::from);
        self.0[0][a] ^ self.0[1][b] ^ self.0[2][c] ^ self.0[3][d]
    }
}

/// The product modulo the CRC's polynomial; the most significant bit stands for 1, the next for x.
const fn product(a: u32, mut b: u32) -> u32 {
    let mut sum = 0;
    let mut power = 0;
    while power < 32 {
        if a << power >> 31 == 1 {
            sum ^= b;
        }
        b = if b & 1 == 1 { b >> 1 ^ POLYNOMIAL } else { b >> 1 };
        power += 1;
    }
    sum
}

const X: u32 = 1 << 30;
const POLYNOMIAL: u32 = 0xedb8_8320;
/// What a CRC is when its register holds zero: the register is its complement.
const ZERO_REGISTER: u32 = u32::MAX;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn only_whole_payloads_have_a_table() {
        for len in [0, 1, 255, 257, 1020, 4095, 4097, 8192] {
            assert_eq!(Behind::payload_of(len), None);
        }
    }

    proptest! {
        #[test]
        fn a_payload_summed_on_its_own_gives_the_crc_of_the_whole(
            head in proptest::collection::vec(any::<u8>(), 0..80),
            payload in proptest::collection::vec(any::<u8>(), 4096),
        ) {
            for mtu in PathMtu::ALL {
                let payload = &payload[..mtu.bytes()];
                let behind = Behind::payload_of(payload.len()).unwrap();
                let whole = crc32fast::hash(&[&head, payload].concat());
                let summed = PayloadCrc::of(payload).after(crc32fast::hash(&head), behind);
                prop_assert_eq!(summed, whole);
            }
        }
    }
}
