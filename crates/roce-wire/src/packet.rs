//! A RoCEv2 packet, verified or not.

use core::{marker::PhantomData, net::IpAddr};

use crate::{BadIcrc, Ecn, Frame, Headers, WireError, body::Body, icrc::TrainStart};

/// The ICRC has not been verified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unverified {}

/// The ICRC has been verified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verified {}

/// A packet, borrowed from its frame. Its lengths match its opcode; act on its contents only if it
/// is [`Verified`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet<'a, Trust> {
    frame: &'a Frame<'a>,
    body: Body<'a>,
    index: u16,
    /// For a packet of a train.
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

    /// Verifies the ICRC. Under a fuzzer every ICRC passes, as mutated packets would otherwise
    /// never reach an engine.
    ///
    /// A kernel that segments a train increments the IPv4 identification with each packet, and the
    /// ICRC covers it. So packet *i* is tried with the frame's identification plus *i*, then with
    /// the frame's own, for merged packets of a sender that does not increment it.
    ///
    /// Time O(length), no allocation.
    ///
    /// # Errors
    /// [`BadIcrc`]: drop the packet, and count it under [`BadIcrc::COUNTER`].
    //= rule icrc-dropped: InfiniBand 9.6; rxe_recv.c: rxe_rcv
    //# A packet with a wrong ICRC is dropped silently.
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

    /// The payload, without pad.
    pub const fn payload(&self) -> &'a [u8] {
        self.body.payload
    }

    /// Number of pad bytes after the payload, 0 ..= 3.
    pub const fn pad(&self) -> usize {
        self.body.headers.bth.pad.bytes()
    }

    /// The packet's frame.
    pub const fn frame(&self) -> &'a Frame<'a> {
        self.frame
    }

    /// Source address.
    pub const fn source(&self) -> IpAddr {
        self.frame.source()
    }

    /// Destination address.
    pub const fn destination(&self) -> IpAddr {
        self.frame.destination()
    }

    /// Returns true if the packet experienced congestion.
    pub const fn ecn(&self) -> Ecn {
        self.frame.ecn()
    }

    /// Index of the packet in its train.
    pub const fn index(&self) -> u16 {
        self.index
    }

    /// The whole packet, from the first byte of the BTH to the last of the ICRC.
    pub const fn bytes(&self) -> &'a [u8] {
        self.body.bytes
    }
}
