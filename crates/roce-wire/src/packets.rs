//! The packets of a frame.

use crate::{BTH_LEN, Frame, ICRC_LEN, Packet, Unverified, WireError, icrc::TrainStart};

impl<'a> Frame<'a> {
    /// Parses the packet of a frame that holds one.
    ///
    /// # Errors
    /// [`WireError`] names the short or invalid header.
    #[inline]
    pub fn packet(&'a self) -> Result<Packet<'a, Unverified<'a>>, WireError> {
        Packet::parse(self, None, 0, self.payload())
            .map_err(|error| error.beneath(self.payload_offset()))
    }

    /// Returns the packets in this frame, in order.
    ///
    /// `segment_len` is the UDP payload of each packet of a train in bytes, of which the last may be
    /// shorter; `None`: the frame holds one packet. An invalid packet is an error in its place; the
    /// iterator continues after it.
    pub fn packets(&'a self, segment_len: Option<usize>) -> Packets<'a> {
        let segment_len = segment_len.unwrap_or(self.payload().len());
        let is_train = segment_len < self.payload().len() && segment_len >= BTH_LEN + ICRC_LEN;
        Packets {
            frame: self,
            rest: Some(self.payload()),
            segment_len,
            start: is_train.then(|| TrainStart::new(&self.covered, segment_len - ICRC_LEN)),
            index: 0,
        }
    }
}

/// Iterator over the packets in a frame; made by [`Frame::packets`].
#[derive(Clone, Debug)]
pub struct Packets<'a> {
    frame: &'a Frame<'a>,
    /// `None` at the end. Empty at the start for a frame without payload, which is an error and not
    /// a train of no packets.
    rest: Option<&'a [u8]>,
    segment_len: usize,
    /// For trains.
    start: Option<TrainStart>,
    index: u16,
}

impl<'a> Iterator for Packets<'a> {
    type Item = Result<Packet<'a, Unverified<'a>>, WireError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let rest = self.rest.take()?;
        let index = self.index;
        let len = self.segment_len.min(rest.len());
        let (segment, behind) = rest.split_at(len);
        if !behind.is_empty() {
            if len < BTH_LEN + ICRC_LEN {
                return Some(Err(WireError::SegmentLen { segment_len: len }));
            }
            self.rest = Some(behind);
            self.index += 1; // cannot overflow: 65535 bytes hold far fewer packets
        }
        let at = self.frame.payload_offset() + self.frame.payload().len() - rest.len();
        Some(
            Packet::parse(self.frame, self.start, index, segment)
                .map_err(|error| error.beneath(at)),
        )
    }
}
