//! Global Route Header (GRH), which RoCEv1 has instead of IP and UDP.

use crate::{Gid, Layer, LenError};

/// A GRH: 40 bytes with the layout of an IPv6 header. Received only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grh {
    /// Version, 6.
    pub version: u8,
    /// As in IPv6.
    pub traffic_class: u8,
    /// 20 bits, as in IPv6.
    pub flow_label: u32,
    /// Bytes from the BTH to the ICRC, both included.
    pub payload_len: u16,
    /// [`Grh::INFINIBAND`] if an InfiniBand packet follows.
    pub next_header: u8,
    /// As in IPv6.
    pub hop_limit: u8,
    /// Source address.
    pub source: Gid,
    /// Destination address.
    pub destination: Gid,
}

impl Grh {
    /// The next header of an InfiniBand packet.
    pub const INFINIBAND: u8 = 0x1b;

    /// Splits a GRH off the front of `bytes`; also returns what follows it.
    ///
    /// # Errors
    /// [`LenError`] if fewer than [`GRH_LEN`] bytes are left.
    pub fn split(bytes: &[u8]) -> Result<(Self, &[u8]), LenError> {
        let (head, rest) = LenError::split(Layer::Grh, bytes)?;
        Ok((Self::from_bytes(head), rest))
    }

    /// Reads the header; cannot fail.
    pub fn from_bytes(bytes: &[u8; GRH_LEN]) -> Self {
        let first = u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        let mut source = [0; 16];
        source.copy_from_slice(&bytes[8..24]);
        let mut destination = [0; 16];
        destination.copy_from_slice(&bytes[24..40]);
        Self {
            version: (first >> 28) as u8,
            traffic_class: (first >> 20) as u8,
            flow_label: first & 0xf_ffff,
            payload_len: u16::from_be_bytes([bytes[4], bytes[5]]),
            next_header: bytes[6],
            hop_limit: bytes[7],
            source: Gid(source),
            destination: Gid(destination),
        }
    }

    /// Returns the bytes on the wire; of `version` and `flow_label` the low 4 and 20 bits.
    pub fn to_bytes(self) -> [u8; GRH_LEN] {
        let first = u32::from(self.version & 0xf) << 28
            | u32::from(self.traffic_class) << 20
            | self.flow_label & 0xf_ffff;
        let mut bytes = [0; GRH_LEN];
        bytes[..4].copy_from_slice(&first.to_be_bytes());
        bytes[4..6].copy_from_slice(&self.payload_len.to_be_bytes());
        bytes[6] = self.next_header;
        bytes[7] = self.hop_limit;
        bytes[8..24].copy_from_slice(&self.source.0);
        bytes[24..].copy_from_slice(&self.destination.0);
        bytes
    }
}

/// Length of a GRH on the wire, in bytes.
pub const GRH_LEN: usize = 40;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn parsed_headers_are_written_unchanged(bytes: [u8; GRH_LEN]) {
            prop_assert_eq!(Grh::from_bytes(&bytes).to_bytes(), bytes);
        }

        #[test]
        fn written_headers_are_parsed_unchanged(
            version in 0u8..16, traffic_class: u8, flow_label in 0u32..1 << 20,
            payload_len: u16, next_header: u8, hop_limit: u8, source: [u8; 16],
            destination: [u8; 16],
        ) {
            let grh = Grh {
                version, traffic_class, flow_label, payload_len, next_header, hop_limit,
                source: Gid(source), destination: Gid(destination),
            };
            let bytes = grh.to_bytes();
            prop_assert_eq!(Grh::split(&bytes), Ok((grh, &[][..])));
        }
    }
}
