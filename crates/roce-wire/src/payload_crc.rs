//! The CRC of a payload on its own, made where the payload is moved.

use crc32fast::Hasher;

use crate::PathMtu;

/// What the bytes of a whole payload, a path MTU, contribute to the ICRC of their packet.
///
/// Whoever copies a payload has every byte of it in a register once; going on with the CRC from
/// there spares a second pass. [`Sealing::seal_around`](crate::Sealing::seal_around) puts it
/// together with the headers, whenever those are known.
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
    /// Of these bytes; `None` unless they are as many as some path MTU.
    pub fn of(payload: &[u8]) -> Option<Self> {
        let mtu = PathMtu::from_bytes(payload.len())?;
        let mut crc = Hasher::new_with_initial(ZERO_REGISTER);
        crc.update(payload);
        Some(Self { register: !crc.finalize(), mtu })
    }

    /// Of `mtu` bytes that left this in the register of a CRC-32 (reflected, with the polynomial
    /// `0xedb88320`) which held zero before them.
    pub const fn from_register(register: u32, mtu: PathMtu) -> Self {
        Self { register, mtu }
    }

    /// How long the payload is.
    pub const fn mtu(self) -> PathMtu {
        self.mtu
    }

    /// The CRC, complemented as CRCs are, of text with the CRC `before` and this payload behind it.
    pub(crate) fn after(self, before: u32) -> u32 {
        !(behind(self.mtu, !before) ^ self.register)
    }
}

/// What a CRC register becomes by as many zeros as `mtu` has bytes.
///
/// A CRC is linear, so each byte of the register goes its own way: four looks at a table.
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
    // One zero bit is a multiplication by x, so as many as these are one by x^bits.
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
    fn only_whole_payloads_are_summed() {
        for len in [0, 1, 255, 257, 1020, 4095, 4097, 8192] {
            assert_eq!(PayloadCrc::of(&vec![1; len]), None);
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
                let whole = crc32fast::hash(&[&head, payload].concat());
                let summed = PayloadCrc::of(payload).unwrap().after(crc32fast::hash(&head));
                prop_assert_eq!(summed, whole);
            }
        }
    }
}
