//! The virtio header in front of each frame: it says that a frame is a train.

use crate::{
    device::{Limits, Outgoing},
    error::DeviceError,
};

/// Bytes of the longest frame we send. The kernel cuts what reaches its 65 536-byte limit, and an
/// IP packet cannot name a length beyond 65 535.
pub(crate) const MAX_FRAME_LEN: usize = 65_535;

/// Holds a frame to what the device carries; returns its bytes.
pub(crate) fn check<'a>(
    slot: &'a [u8],
    outgoing: &Outgoing,
    limits: &Limits,
    name: &str,
) -> Result<&'a [u8], DeviceError> {
    let Outgoing { len, segment_len, headers_len } = *outgoing;
    let Some(frame) = slot.get(..len).filter(|frame| frame.len() >= ETHERNET_LEN) else {
        return Err(DeviceError::BadFrame { what: "it is longer than its slot or has no header" });
    };
    // A VLAN tag lies below IP: it does not count against the MTU.
    let ip_at = |frame: &[u8]| if frame[12..14] == [0x81, 0x00] { 18 } else { ETHERNET_LEN };
    let packet_len = match segment_len {
        None => len - ip_at(frame).min(len),
        Some(0) => return Err(DeviceError::BadFrame { what: "a train of empty packets" }),
        Some(_) if headers_len < ETHERNET_LEN + 28 || headers_len > len => {
            return Err(DeviceError::BadFrame { what: "a train without IP and UDP headers" });
        }
        Some(segment_len) => {
            let payload = len - headers_len;
            if payload.div_ceil(segment_len) > limits.max_train_packets {
                return Err(DeviceError::BadFrame { what: "more packets than a train may hold" });
            }
            headers_len - ip_at(frame).min(headers_len) + segment_len.min(payload)
        }
    };
    if packet_len > limits.mtu {
        let (name, mtu) = (name.to_owned(), limits.mtu);
        return Err(DeviceError::SegmentTooLong { name, packet_len, mtu });
    }
    Ok(frame)
}

const ETHERNET_LEN: usize = 14;
