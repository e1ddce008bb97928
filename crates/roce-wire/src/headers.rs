//! The transport headers of a packet: BTH and extension headers.

use crate::{
    AETH_LEN, ATOMIC_ACK_ETH_LEN, ATOMIC_ETH_LEN, Aeth, AtomicAckEth, AtomicEth, BTH_LEN, Bth,
    BthView, CNP_RESERVED_LEN, DETH_LEN, Deth, Ext, FETH_LEN, Feth, ICRC_LEN, IMMEDIATE_LEN,
    INVALIDATE_KEY_LEN, Immediate, InvalidateKey, KnownOpcode, Layer, LenError, Pad, RETH_LEN,
    Reth, WireError,
};

/// The BTH and the extension headers of one packet.
///
/// The opcode determines the extensions: exactly those of its row in the table are `Some` after
/// [`parse`](Self::parse), and have to be for [`emit`](Self::emit).
///
/// ```
/// use roce_wire::{Bth, Headers, Psn, Qpn, Reth, opcode};
/// let read = Headers {
///     reth: Some(Reth { addr: 0x1000, rkey: 0x11, len: 4096 }),
///     ..Headers::new(Bth::new(opcode::RC_READ_REQUEST, Qpn::new(0x12).unwrap(), Psn::ZERO))
/// };
/// let mut bytes = [0; 28];
/// assert_eq!(read.emit(&mut bytes), 28);
/// assert_eq!(Headers::parse(&bytes), Ok((read, &[][..])));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Headers {
    pub bth: Bth,
    pub reth: Option<Reth>,
    pub atomic_eth: Option<AtomicEth>,
    pub aeth: Option<Aeth>,
    pub atomic_ack: Option<AtomicAckEth>,
    pub deth: Option<Deth>,
    pub immediate: Option<Immediate>,
    pub invalidate: Option<InvalidateKey>,
    pub feth: Option<Feth>,
}

impl Headers {
    /// Creates headers without extensions; the caller adds those of the opcode.
    pub const fn new(bth: Bth) -> Self {
        Self {
            bth,
            reth: None,
            feth: None,
            atomic_eth: None,
            aeth: None,
            atomic_ack: None,
            deth: None,
            immediate: None,
            invalidate: None,
        }
    }

    /// Splits the headers off the front of `bytes`; also returns what follows them.
    ///
    /// # Errors
    /// [`WireError::Short`], [`WireError::BthVersion`], [`WireError::UnknownOpcode`].
    #[inline]
    pub fn parse(bytes: &[u8]) -> Result<(Self, &[u8]), WireError> {
        let (view, mut rest) = BthView::split(bytes)?;
        let mut headers = Self::new(Bth::parse(view)?);
        for ext in headers.bth.opcode.info().extensions {
            let at = bytes.len() - rest.len();
            rest = headers.parse_extension(*ext, rest).map_err(|short| short.beneath(at))?;
        }
        Ok((headers, rest))
    }

    #[inline]
    fn parse_extension<'a>(&mut self, ext: Ext, bytes: &'a [u8]) -> Result<&'a [u8], LenError> {
        fn keep<'a, T>(place: &mut Option<T>, (value, rest): (T, &'a [u8])) -> &'a [u8] {
            *place = Some(value);
            rest
        }
        Ok(match ext {
            Ext::Reth => keep(&mut self.reth, Reth::split(bytes)?),
            Ext::Feth => keep(&mut self.feth, Feth::split(bytes)?),
            Ext::AtomicEth => keep(&mut self.atomic_eth, AtomicEth::split(bytes)?),
            Ext::Aeth => keep(&mut self.aeth, Aeth::split(bytes)?),
            Ext::AtomicAckEth => keep(&mut self.atomic_ack, AtomicAckEth::split(bytes)?),
            Ext::Deth => keep(&mut self.deth, Deth::split(bytes)?),
            Ext::Immediate => keep(&mut self.immediate, Immediate::split(bytes)?),
            Ext::InvalidateKey => keep(&mut self.invalidate, InvalidateKey::split(bytes)?),
            Ext::CnpReserved => LenError::split::<CNP_RESERVED_LEN>(Layer::CnpReserved, bytes)?.1,
        })
    }

    /// Returns the payload of `rest`, the bytes between headers and ICRC.
    ///
    /// # Errors
    /// [`WireError::Unaligned`], [`WireError::UnexpectedPayload`],
    /// [`WireError::PadExceedsPayload`]. The length is not checked against path MTU and message.
    #[inline]
    pub fn split_payload<'a>(&self, rest: &'a [u8]) -> Result<&'a [u8], WireError> {
        self.payload_len(rest.len()).map(|payload_len| &rest[..payload_len])
    }

    /// As [`split_payload`](Self::split_payload), from the number of bytes only: a capture may have
    /// fewer.
    ///
    /// # Errors
    /// As [`split_payload`](Self::split_payload).
    #[inline]
    pub fn payload_len(&self, rest_len: usize) -> Result<usize, WireError> {
        Self::checked_payload_len(self.bth.opcode, self.bth.pad, rest_len)
    }

    /// As [`payload_len`](Self::payload_len), of a packet with this opcode and pad.
    //= also wire-pad
    #[inline]
    pub(crate) fn checked_payload_len(
        opcode: KnownOpcode,
        pad: Pad,
        rest_len: usize,
    ) -> Result<usize, WireError> {
        if rest_len != 0 && !opcode.facts().carries_payload {
            return Err(WireError::UnexpectedPayload { opcode: opcode.code(), len: rest_len });
        }
        if !rest_len.is_multiple_of(4) {
            return Err(WireError::Unaligned { len: rest_len });
        }
        let pad = pad.bytes();
        rest_len.checked_sub(pad).ok_or(WireError::PadExceedsPayload { pad, have: rest_len })
    }

    /// Writes the headers to the front of `into` and returns their length.
    ///
    /// An extension of the opcode that is `None` is written as zeros, one that the opcode does not
    /// have is left out; both are errors of the caller.
    ///
    /// # Panics
    /// If `into` is shorter than [`len`](Self::len); in debug builds, also if not
    /// [`is_complete`](Self::is_complete).
    #[inline]
    pub fn emit(&self, into: &mut [u8]) -> usize {
        self.emit_with(self.bth.to_bytes(), into)
    }

    /// As [`emit`](Self::emit), with the bytes of the BTH.
    #[inline]
    fn emit_with(&self, bth: [u8; BTH_LEN], into: &mut [u8]) -> usize {
        debug_assert!(self.is_complete(), "extensions disagree with the opcode: {self:?}");
        into[..BTH_LEN].copy_from_slice(&bth);
        let extensions = self.bth.opcode.info().extensions;
        // The most frequent, with lengths known to the compiler.
        match (extensions, self.reth) {
            ([], _) => return BTH_LEN,
            ([Ext::Reth], Some(reth)) => {
                into[BTH_LEN..BTH_LEN + RETH_LEN].copy_from_slice(&reth.to_bytes());
                return BTH_LEN + RETH_LEN;
            }
            _ => {}
        }
        let mut at = BTH_LEN;
        let mut put = |bytes: &[u8]| {
            into[at..at + bytes.len()].copy_from_slice(bytes);
            at += bytes.len();
        };
        for ext in extensions {
            match ext {
                Ext::Reth => put(&self.reth.map_or([0; RETH_LEN], Reth::to_bytes)),
                Ext::Feth => put(&self.feth.map_or([0; FETH_LEN], Feth::to_bytes)),
                Ext::AtomicEth => {
                    put(&self.atomic_eth.map_or([0; ATOMIC_ETH_LEN], AtomicEth::to_bytes))
                }
                Ext::Aeth => put(&self.aeth.map_or([0; AETH_LEN], Aeth::to_bytes)),
                Ext::AtomicAckEth => {
                    put(&self.atomic_ack.map_or([0; ATOMIC_ACK_ETH_LEN], AtomicAckEth::to_bytes))
                }
                Ext::Deth => put(&self.deth.map_or([0; DETH_LEN], Deth::to_bytes)),
                Ext::Immediate => {
                    put(&self.immediate.map_or([0; IMMEDIATE_LEN], Immediate::to_bytes))
                }
                Ext::InvalidateKey => {
                    put(&self.invalidate.map_or([0; INVALIDATE_KEY_LEN], InvalidateKey::to_bytes))
                }
                Ext::CnpReserved => put(&[0; CNP_RESERVED_LEN]),
            }
        }
        at
    }

    /// Completes a segment whose payload of `payload_len` bytes is at [`len`](Self::len): writes
    /// the headers before it and the pad after it. Returns the length of the segment with its ICRC,
    /// which [`seal`](crate::seal) writes.
    ///
    /// # Panics
    /// If `segment` is too short, or as [`emit`](Self::emit).
    //= also wire-pad
    #[inline]
    pub fn emit_around(&self, segment: &mut [u8], payload_len: usize) -> usize {
        let pad = Pad::for_payload(payload_len);
        let bth = Bth { pad, ..self.bth }.to_bytes();
        let payload_end = self.emit_with(bth, segment) + payload_len;
        if pad != Pad::NONE {
            segment[payload_end..payload_end + pad.bytes()].fill(0);
        }
        payload_end + pad.bytes() + ICRC_LEN
    }

    /// Returns the headers with a pad of `bytes & 3` bytes.
    #[must_use]
    pub fn with_pad(mut self, bytes: u8) -> Self {
        self.bth.pad = Pad::new(bytes & 3).unwrap_or(Pad::NONE);
        self
    }

    /// Returns the length of all headers in bytes, 12 ..= 40.
    pub const fn len(&self) -> usize {
        self.bth.opcode.headers_len()
    }

    /// Returns `false`.
    pub const fn is_empty(&self) -> bool {
        false
    }

    /// Returns true if exactly the extensions of the opcode are `Some`.
    pub fn is_complete(&self) -> bool {
        let info = self.bth.opcode.info();
        self.reth.is_some() == info.has(Ext::Reth)
            && self.feth.is_some() == info.has(Ext::Feth)
            && self.atomic_eth.is_some() == info.has(Ext::AtomicEth)
            && self.aeth.is_some() == info.has(Ext::Aeth)
            && self.atomic_ack.is_some() == info.has(Ext::AtomicAckEth)
            && self.deth.is_some() == info.has(Ext::Deth)
            && self.immediate.is_some() == info.has(Ext::Immediate)
            && self.invalidate.is_some() == info.has(Ext::InvalidateKey)
    }
}
