//! Sealing: outer headers in front of a train, the ICRC behind each of its packets.

use crate::{BTH_LEN, ICRC_LEN, OuterHeaders, SealError};

/// What stands in the UDP checksum field of a frame that is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum UdpChecksum {
    /// No checksum: the ICRC guards more. What every RoCE device sends.
    Zero,
    /// The pseudo-header's sum, for a device that finishes it: what the kernel wants of a
    /// train that it shall cut.
    PartialForOffload,
}

/// Finishes one packet, or a train of packets in one frame, in place.
///
/// `frame` is [`outer.len()`](OuterHeaders::len) bytes of headroom, and behind it the
/// segments: each is a packet from its BTH to its last pad byte, and 4 bytes of room for
/// its ICRC. All segments have `segment_len` bytes but the last, which may be shorter.
/// One packet is a train of one.
///
/// The outer headers are those of the whole train, with DF set. The ICRCs are those of
/// the packets as a kernel or a card cuts the train: each with its own lengths, and with
/// the IPv4 identification counted up by one from `identification`. IPv6 has none, and
/// the number is ignored.
///
/// Time O(length), in one pass; no allocation.
///
/// # Errors
/// [`SealError`]; the frame is then in no particular state.
pub fn seal(
    outer: &OuterHeaders,
    identification: u16,
    frame: &mut [u8],
    segment_len: usize,
    checksum: UdpChecksum,
) -> Result<(), SealError> {
    let no_headroom = SealError::NoHeadroom { need: outer.len(), have: frame.len() };
    let (headroom, train) = frame.split_at_mut_checked(outer.len()).ok_or(no_headroom)?;
    if segment_len < MIN_SEGMENT_LEN {
        return Err(SealError::SegmentTooShort { len: segment_len });
    }
    let covered = outer.write(identification, train.len(), checksum, headroom)?;
    if train.is_empty() {
        return Err(SealError::SegmentTooShort { len: 0 });
    }
    let mut identification = identification;
    for segment in train.chunks_mut(segment_len) {
        if segment.len() < MIN_SEGMENT_LEN {
            return Err(SealError::SegmentTooShort { len: segment.len() });
        }
        let (packet, icrc) = segment.split_at_mut(segment.len() - ICRC_LEN);
        icrc.copy_from_slice(&covered.icrc(identification, packet).to_le_bytes());
        identification = identification.wrapping_add(1);
    }
    Ok(())
}

/// A BTH and an ICRC.
const MIN_SEGMENT_LEN: usize = BTH_LEN + ICRC_LEN;
