//! A RoCEv2 packet, verified or not.

use core::net::IpAddr;

use crate::icrc::{TrainStart, split_icrc};
use crate::{BadIcrc, BthView, Ecn, Frame, Headers, KnownOpcode, Operation, PacketView, WireError};

/// The ICRC has not been verified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unverified<'a> {
    /// The carried ICRC.
    icrc: u32,
    /// What it covers, from the first byte of the BTH to the last of the pad.
    covered: &'a [u8],
    /// For a packet of a train.
    start: Option<TrainStart>,
}

/// The ICRC has been verified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verified(());

/// A packet, read from its frame on demand. Its lengths match its opcode; act on its contents only if it is
/// [`Verified`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet<'a, Trust> {
    view: PacketView<'a>,
    frame: &'a Frame<'a>,
    index: u16,
    trust: Trust,
}

impl<'a> Packet<'a, Unverified<'a>> {
    #[inline]
    pub(crate) fn parse(
        frame: &'a Frame<'a>,
        start: Option<TrainStart>,
        index: u16,
        bytes: &'a [u8],
    ) -> Result<Self, WireError> {
        let (covered, icrc) = split_icrc(bytes)?;
        let view = PacketView::parse(covered)?;
        Ok(Self { view, frame, index, trust: Unverified { icrc, covered, start } })
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
                let Self { view, frame, index, .. } = self;
                Ok(Packet { view, frame, index, trust: Verified(()) })
            }
        }
    }

    #[inline]
    pub(crate) fn check_icrc(&self) -> Result<(), BadIcrc> {
        let carried = self.trust.icrc;
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
        let packet = self.trust.covered;
        let in_train =
            self.trust.start.as_ref().and_then(|start| start.icrc(identification, packet));
        in_train.unwrap_or_else(|| self.frame.covered.icrc(identification, packet))
    }
}

impl<'a, Trust> Packet<'a, Trust> {
    /// The packet without its frame.
    #[inline]
    pub const fn view(&self) -> &PacketView<'a> {
        &self.view
    }

    /// The BTH.
    #[inline]
    pub const fn bth(&self) -> BthView<'a> {
        self.view.bth()
    }

    /// Opcode.
    #[inline]
    pub const fn opcode(&self) -> KnownOpcode {
        self.view.opcode()
    }

    /// Operation.
    #[inline]
    pub const fn operation(&self) -> Operation {
        self.view.operation()
    }

    /// BTH and extension headers, as values.
    pub fn headers(&self) -> Headers {
        self.view.headers()
    }

    /// The payload, without pad.
    #[inline]
    pub fn payload(&self) -> &'a [u8] {
        self.view.payload()
    }

    /// Number of pad bytes after the payload, 0 ..= 3.
    pub const fn pad(&self) -> usize {
        self.view.pad().bytes()
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
}
