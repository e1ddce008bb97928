//! The CRC of a payload, computed while it is copied.

use crc32fast::Hasher;

use crate::PathMtu;

/// The contribution of a payload of a whole path MTU to the ICRC of its packet.
///
/// A copy has every byte of the payload in a register once; computing the CRC there saves a second
/// pass. [`Sealing::seal_around`](crate::Sealing::seal_around) combines it with the headers.
///
/// ```
/// use roce_wire::{PathMtu, PayloadCrc};
/// let payload = [7; 256];
/// // A CRC-32 bit by bit, in a register that held zero, and without the complement at the end.
/// let register = payload.iter().fold(0, |register: u32, byte| {
///     (0..8).fold(register ^ byte, |it, _| it >> 1 ^ (it & 1) * 0xedb8_8320)
/// });
/// let crc = PayloadCrc::from_register(register, PathMtu::B256);
/// assert_eq!(PayloadCrc::of(&payload.map(|byte| byte as u8)), Some(crc));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PayloadCrc {
    register: u32,
    mtu: PathMtu,
}

impl PayloadCrc {
    /// Computes the CRC of `payload`; `None` if its length is not a path MTU.
    pub fn of(payload: &[u8]) -> Option<Self> {
        let mtu = PathMtu::from_bytes(payload.len())?;
        let mut crc = Hasher::new_with_initial(ZERO_REGISTER);
        crc.update(payload);
        Some(Self { register: !crc.finalize(), mtu })
    }

    /// Creates it from the register of a CRC-32 (reflected, polynomial `0xedb88320`) that was zero
    /// before `mtu` bytes.
    pub const fn from_register(register: u32, mtu: PathMtu) -> Self {
        Self { register, mtu }
    }

    /// Returns the length of the payload.
    pub const fn mtu(self) -> PathMtu {
        self.mtu
    }

    /// Returns the CRC, complemented, of bytes with the CRC `before` followed by this payload.
    pub(crate) fn after(self, before: u32) -> u32 {
        !(behind(self.mtu, !before) ^ self.register)
    }
}

/// Returns a CRC register after `mtu` bytes of zeros. A CRC is linear, so each byte of the register
/// contributes on its own: four table look-ups.
fn behind(mtu: PathMtu, register: u32) -> u32 {
    let [first, second, third, fourth] = &BEHIND[usize::from(mtu.code()) - 1];
    let [a, b, c, d] = register.to_le_bytes().map(usize::from);
    first[a] ^ second[b] ^ third[c] ^ fourth[d]
}

static BEHIND: [[[u32; 256]; 4]; 5] = [
    tables(PathMtu::B256),
    tables(PathMtu::B512),
    tables(PathMtu::B1024),
    tables(PathMtu::B2048),
    tables(PathMtu::B4096),
];

const fn tables(mtu: PathMtu) -> [[u32; 256]; 4] {
    // Each zero bit multiplies by x.
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
    tables
}

/// Returns the product modulo the CRC's polynomial; the most significant bit is 1, the next x.
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
/// The CRC of a register of zero: its complement.
const ZERO_REGISTER: u32 = u32::MAX;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn only_payloads_of_a_path_mtu_have_a_payload_crc() {
        for len in [0, 1, 255, 257, 1020, 4095, 4097, 8192] {
            assert_eq!(PayloadCrc::of(&vec![1; len]), None);
        }
    }

    proptest! {
        #[test]
        fn a_payload_crc_and_its_prefix_give_the_crc_of_the_whole(
            head in proptest::collection::vec(any::<u8>(), 0..80),
            payload in proptest::collection::vec(any::<u8>(), 4096),
        ) {
            for mtu in PathMtu::ALL {
                let payload = &payload[..mtu.bytes()];
                let whole = crc32fast::hash(&[&head, payload].concat());
                let summed = PayloadCrc::of(payload).unwrap().after(crc32fast::hash(&head));
                prop_assert_eq!(summed, whole);
            }
        }
    }
}
