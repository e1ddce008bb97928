//! Receives frames from AF_XDP sockets.

use crate::{
    device::RxFrame,
    sys::xsk::{Fragment, Xsk},
    vnet_hdr::MAX_RECEIVED_LEN,
};

/// What all sockets of a device share.
#[derive(Debug, Default)]
pub(super) struct Receiver {
    /// The begin of a frame of several chunks.
    begin: Vec<u8>,
    /// A part of the frame that comes is missing.
    is_damaged: bool,
    received: u64,
    unusable: u64,
}

impl Receiver {
    /// Lends waiting frames, at most `budget`; returns how many.
    pub(super) fn receive(
        &mut self,
        socket: &mut Xsk,
        budget: usize,
        on_frame: &mut dyn FnMut(RxFrame<'_>),
    ) -> usize {
        let mut count = 0;
        let mut looked = false;
        // The fragments of a frame come together, so none of another socket is in between.
        while count < budget || self.is_inside() {
            let Some(Fragment { bytes, continues }) = socket.take() else { break };
            looked = true;
            let is_first = !self.is_inside();
            match bytes {
                Some(bytes) if is_first && !continues => {
                    self.received += 1;
                    lend(bytes, on_frame);
                }
                Some(bytes) if self.begin.len() + bytes.len() <= MAX_RECEIVED_LEN => {
                    self.begin.extend_from_slice(bytes);
                }
                _ => self.is_damaged = true,
            }
            if continues {
                continue;
            }
            count += 1;
            if self.is_damaged {
                self.unusable += 1;
            } else if !self.begin.is_empty() {
                self.received += 1;
                lend(&mut self.begin, on_frame);
            }
            self.begin.clear();
            self.is_damaged = false;
        }
        if looked {
            socket.give_back();
        }
        count
    }

    fn is_inside(&self) -> bool {
        self.is_damaged || !self.begin.is_empty()
    }

    /// Returns the number of frames that were lent.
    pub(super) fn received(&self) -> u64 {
        self.received
    }

    /// Returns the number of frames that were too long, or of which a part is missing.
    pub(super) fn unusable(&self) -> u64 {
        self.unusable
    }
}

/// Lends a frame without its VLAN tag, which stands behind the addresses.
fn lend(bytes: &mut [u8], on_frame: &mut dyn FnMut(RxFrame<'_>)) {
    let vlan_tag = match bytes.get(ADDRESSES_LEN..ADDRESSES_LEN + TAG_LEN) {
        Some(&[0x81, 0x00, c, d]) => Some([0x81, 0x00, c, d]),
        _ => None,
    };
    let mut frame = bytes;
    if vlan_tag.is_some() {
        frame.copy_within(..ADDRESSES_LEN, TAG_LEN);
        frame = &mut frame[TAG_LEN..];
    }
    on_frame(RxFrame { bytes: frame, segment_len: None, udp_checksum_partial: true, vlan_tag });
}

/// Bytes of both MAC addresses.
const ADDRESSES_LEN: usize = 12;
const TAG_LEN: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_is_taken_out_of_the_frame() {
        let mut seen = Vec::new();
        let mut lent = |bytes: &[u8]| {
            lend(&mut bytes.to_vec(), &mut |frame| {
                seen.push((frame.bytes.to_vec(), frame.vlan_tag));
            });
        };
        let addresses: Vec<u8> = (1..=12).collect();
        let tag = [0x81, 0x00, 0xe0, 0x00];
        lent(&[&addresses[..], &tag, &[0x08, 0x00, 7]].concat());
        lent(&[&addresses[..], &[0x08, 0x00, 7]].concat());
        lent(&addresses);
        lent(&[]);
        let plain = [&addresses[..], &[0x08, 0x00, 7]].concat();
        let expected =
            [(plain.clone(), Some(tag)), (plain, None), (addresses, None), (Vec::new(), None)];
        assert_eq!(seen, expected);
    }
}
