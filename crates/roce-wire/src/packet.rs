//! One RoCEv2 packet: headers, payload, and whether its ICRC has been checked.

use core::{marker::PhantomData, net::IpAddr};

use crate::{BadIcrc, Ecn, Frame, Gid, Headers, WireError, body::Body};

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
    trust: PhantomData<Trust>,
}

impl<'a> Packet<'a, Unverified> {
    pub(crate) fn parse(
        frame: &'a Frame<'a>,
        index: u16,
        bytes: &'a [u8],
    ) -> Result<Self, WireError> {
        Ok(Self { frame, body: Body::parse(bytes)?, index, trust: PhantomData })
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
    pub fn verify_icrc(self) -> Result<Packet<'a, Verified>, BadIcrc> {
        let Self { frame, body, index, .. } = self;
        let base = frame.identification().unwrap_or(0);
        let computed = frame.covered.icrc(base.wrapping_add(index), body.before_icrc);
        let right = computed == body.icrc
            || (index != 0
                && frame.identification().is_some()
                && frame.covered.icrc(base, body.before_icrc) == body.icrc);
        if right || cfg!(fuzzing) {
            Ok(Packet { frame, body, index, trust: PhantomData })
        } else {
            Err(BadIcrc { computed, carried: body.icrc })
        }
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
