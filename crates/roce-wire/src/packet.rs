//! One RoCEv2 packet: headers, payload, and whether its ICRC has been checked.

use core::{marker::PhantomData, net::IpAddr};

use crate::{BadIcrc, Ecn, Frame, Gid, Headers, WireError, body::Body, icrc::TrainStart};

/// The ICRC has not been looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unverified {}

/// The ICRC was right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verified {}

/// One packet, borrowed from the frame that it came in.
///
/// Its lengths agree with its opcode; all else that it says is for the receiver to
/// judge, and only when it is [`Verified`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet<'a, Trust> {
    frame: &'a Frame<'a>,
    body: Body<'a>,
    index: u16,
    /// Of a packet in a train.
    start: Option<TrainStart>,
    trust: PhantomData<Trust>,
}

impl<'a> Packet<'a, Unverified> {
    #[inline]
    pub(crate) fn parse(
        frame: &'a Frame<'a>,
        start: Option<TrainStart>,
        index: u16,
        bytes: &'a [u8],
    ) -> Result<Self, WireError> {
        Ok(Self { frame, body: Body::parse(bytes)?, index, start, trust: PhantomData })
    }

    /// The only door to [`Verified`]; under a fuzzer it stands open, or no mutated input
    /// would ever reach an engine.
    ///
    /// A kernel that cuts a train counts the IPv4 identification up by one for each
    /// packet, and the ICRC covers it: so packet *i* is tried with the frame's
    /// identification plus *i*, and then with the frame's own, in case the packets were
    /// gathered from a sender that does not count.
    ///
    /// Time O(length), no allocation.
    ///
    /// # Errors
    /// [`BadIcrc`]: drop the packet, and count it under [`BadIcrc::COUNTER`].
    #[inline]
    pub fn verify_icrc(self) -> Result<Packet<'a, Verified>, BadIcrc> {
        match self.check_icrc() {
            Err(bad) if !cfg!(fuzzing) => Err(bad),
            _ => {
                let Self { frame, body, index, start, .. } = self;
                Ok(Packet { frame, body, index, start, trust: PhantomData })
            }
        }
    }

    #[inline]
    pub(crate) fn check_icrc(&self) -> Result<(), BadIcrc> {
        let carried = self.body.icrc;
        let computed = self.icrc_if_counted_up_by(self.index);
        let may_not_count = self.index != 0 && self.frame.identification().is_some();
        if computed == carried || (may_not_count && self.icrc_if_counted_up_by(0) == carried) {
            Ok(())
        } else {
            Err(BadIcrc { computed, carried })
        }
    }

    fn icrc_if_counted_up_by(&self, packets: u16) -> u32 {
        let identification = self.frame.identification().unwrap_or(0).wrapping_add(packets);
        let packet = self.body.before_icrc;
        let in_train = self.start.and_then(|start| start.icrc(identification, packet));
        in_train.unwrap_or_else(|| self.frame.covered.icrc(identification, packet))
    }
}

impl<'a, Trust> Packet<'a, Trust> {
    /// BTH and extension headers.
    pub const fn headers(&self) -> &Headers {
        &self.body.headers
    }

    /// What the packet carries, without pad.
    pub const fn payload(&self) -> &'a [u8] {
        self.body.payload
    }

    /// Pad bytes behind the payload, 0 ..= 3.
    pub const fn pad(&self) -> usize {
        self.body.headers.bth.pad.bytes()
    }

    /// The frame that the packet came in: addresses, ports and what else stands before
    /// the BTH.
    pub const fn frame(&self) -> &'a Frame<'a> {
        self.frame
    }

    /// Who sent the packet.
    pub const fn source(&self) -> IpAddr {
        self.frame.source()
    }

    /// Whom the packet was sent to.
    pub const fn destination(&self) -> IpAddr {
        self.frame.destination()
    }

    /// [`source`](Self::source) as a GID.
    pub fn source_gid(&self) -> Gid {
        self.source().into()
    }

    /// [`destination`](Self::destination) as a GID.
    pub fn destination_gid(&self) -> Gid {
        self.destination().into()
    }

    /// Whether the packet met congestion on its way.
    pub const fn ecn(&self) -> Ecn {
        self.frame.ecn()
    }

    /// The packet's place in its train, counted from 0.
    pub const fn index(&self) -> u16 {
        self.index
    }

    /// The whole packet, from the first byte of the BTH to the last of the ICRC.
    pub const fn bytes(&self) -> &'a [u8] {
        self.body.bytes
    }
}
