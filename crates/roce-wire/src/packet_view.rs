//! A packet without its ICRC, read on demand; the same in RoCEv1 and RoCEv2.

use crate::opcode::OpcodeFacts;
use crate::{
    AETH_LEN, Aeth, AtomicAckEth, AtomicEth, BTH_LEN, Bth, BthView, Deth, Ext, FETH_LEN, Feth,
    Headers, Immediate, InvalidateKey, KnownOpcode, Layer, LenError, Operation, Pad, Position,
    Reth, WireError,
};

/// A packet without pad and ICRC, whose fields are read from its bytes on demand.
///
/// Its lengths match its opcode, so no accessor can panic. One for an extension header returns `None`
/// exactly if the opcode has no such header.
///
/// ```
/// use roce_wire::{Bth, Headers, PacketView, Psn, Qpn, Reth, opcode};
/// let reth = Reth { addr: 0x1000, rkey: 0x11, len: 5 };
/// let bth = Bth::new(opcode::RC_WRITE_ONLY, Qpn::new(0x12).unwrap(), Psn::ZERO);
/// let headers = Headers { reth: Some(reth), ..Headers::new(bth) }.with_pad(3);
/// let mut bytes = [0; 36];
/// headers.emit(&mut bytes);
/// bytes[28..33].copy_from_slice(b"hello");
///
/// let packet = PacketView::parse(&bytes).unwrap();
/// assert_eq!((packet.opcode(), packet.bth().psn()), (opcode::RC_WRITE_ONLY, Psn::ZERO));
/// assert_eq!((packet.reth(), packet.deth()), (Some(reth), None));
/// assert_eq!(packet.payload(), b"hello");
/// assert_eq!(packet.headers(), headers);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketView<'a> {
    /// Version 0, and an opcode of the table.
    bth: BthView<'a>,
    /// The extension headers of that opcode, and the payload.
    behind_bth: &'a [u8],
}

impl<'a> PacketView<'a> {
    /// Checks version, opcode and lengths.
    ///
    /// # Errors
    /// As [`Headers::parse`] and [`Headers::split_payload`].
    #[inline]
    pub fn parse(bytes: &'a [u8]) -> Result<Self, WireError> {
        let (bth, behind_bth) = BthView::split(bytes)?;
        let opcode = bth.known_opcode()?;
        let Some(rest_len) = behind_bth.len().checked_sub(opcode.facts().extensions_len()) else {
            return Err(Self::short_extension(opcode, bytes.len()).into());
        };
        let payload_len = Headers::checked_payload_len(opcode, bth.pad(), rest_len)?;
        let end = behind_bth.len() - (rest_len - payload_len);
        Ok(Self { bth, behind_bth: behind_bth.get(..end).unwrap_or(behind_bth) })
    }

    /// Returns the first extension header for which a packet of `len` bytes is too short.
    #[cold]
    fn short_extension(opcode: KnownOpcode, len: usize) -> LenError {
        let mut short = LenError::new(Layer::Bth, BTH_LEN, len);
        for ext in opcode.info().extensions {
            if short.have < short.need {
                break;
            }
            let (at, have) = (short.at + short.need, short.have - short.need);
            short = LenError::new(layer(*ext), ext.wire_len(), have).beneath(at);
        }
        short
    }

    /// The BTH.
    #[inline]
    pub const fn bth(self) -> BthView<'a> {
        self.bth
    }

    /// What follows the BTH: extension headers and payload.
    #[inline]
    pub const fn behind_bth(self) -> &'a [u8] {
        self.behind_bth
    }

    /// Returns the number of bytes from the first of the BTH to the last of the pad.
    #[inline]
    pub const fn len_with_pad(self) -> usize {
        BTH_LEN + self.behind_bth.len() + self.pad().bytes()
    }

    /// Opcode.
    #[inline]
    pub const fn opcode(self) -> KnownOpcode {
        KnownOpcode::of_known(self.bth.opcode())
    }

    #[inline]
    const fn facts(self) -> OpcodeFacts {
        self.opcode().facts()
    }

    /// Operation.
    #[inline]
    pub const fn operation(self) -> Operation {
        self.facts().operation
    }

    /// Returns true for requests; false for responses, CNPs and gap reports.
    #[inline]
    pub const fn is_request(self) -> bool {
        self.facts().is_request
    }

    /// Position in the message.
    #[inline]
    pub const fn position(self) -> Position {
        self.facts().position
    }

    /// Returns true if the packet carries extension header `ext`.
    #[inline]
    pub const fn has(self, ext: Ext) -> bool {
        self.facts().has(ext)
    }

    /// The pad after the payload.
    #[inline]
    pub const fn pad(self) -> Pad {
        self.bth.pad()
    }

    /// The payload.
    #[inline]
    pub fn payload(self) -> &'a [u8] {
        self.behind_bth.get(self.facts().extensions_len()..).unwrap_or(&[])
    }

    /// Returns the bytes of an extension header that is `at` bytes behind the BTH, if the opcode has it.
    #[inline]
    fn extension<const N: usize>(self, ext: Ext, at: usize) -> Option<&'a [u8; N]> {
        if !self.has(ext) {
            return None;
        }
        self.behind_bth.get(at..)?.first_chunk()
    }

    /// Returns the bytes of the extension header behind all others, if the opcode has it.
    #[inline]
    fn trailer<const N: usize>(self, ext: Ext) -> Option<&'a [u8; N]> {
        self.extension(ext, self.facts().extensions_len().wrapping_sub(N))
    }

    /// RETH.
    #[inline]
    pub fn reth(self) -> Option<Reth> {
        let at = if self.has(Ext::Feth) { FETH_LEN } else { 0 };
        self.extension(Ext::Reth, at).map(Reth::from_bytes)
    }

    /// FETH.
    #[inline]
    pub fn feth(self) -> Option<Feth> {
        self.extension(Ext::Feth, 0).map(Feth::from_bytes)
    }

    /// AtomicETH.
    #[inline]
    pub fn atomic_eth(self) -> Option<AtomicEth> {
        self.extension(Ext::AtomicEth, 0).map(AtomicEth::from_bytes)
    }

    /// AETH.
    #[inline]
    pub fn aeth(self) -> Option<Aeth> {
        self.extension(Ext::Aeth, 0).map(Aeth::from_bytes)
    }

    /// AtomicAckETH.
    #[inline]
    pub fn atomic_ack(self) -> Option<AtomicAckEth> {
        self.extension(Ext::AtomicAckEth, AETH_LEN).map(AtomicAckEth::from_bytes)
    }

    /// DETH.
    #[inline]
    pub fn deth(self) -> Option<Deth> {
        self.extension(Ext::Deth, 0).map(Deth::from_bytes)
    }

    /// Immediate data.
    #[inline]
    pub fn immediate(self) -> Option<Immediate> {
        self.trailer(Ext::Immediate).map(|bytes| Immediate(*bytes))
    }

    /// The key to invalidate.
    #[inline]
    pub fn invalidate(self) -> Option<InvalidateKey> {
        self.trailer(Ext::InvalidateKey).map(|bytes| InvalidateKey(u32::from_be_bytes(*bytes)))
    }

    /// All headers, as values.
    pub fn headers(self) -> Headers {
        Headers {
            bth: Bth::with_opcode(self.bth, self.opcode()),
            reth: self.reth(),
            atomic_eth: self.atomic_eth(),
            aeth: self.aeth(),
            atomic_ack: self.atomic_ack(),
            deth: self.deth(),
            immediate: self.immediate(),
            invalidate: self.invalidate(),
            feth: self.feth(),
        }
    }
}

/// Returns the name of an extension header in errors.
const fn layer(ext: Ext) -> Layer {
    match ext {
        Ext::Reth => Layer::Reth,
        Ext::AtomicEth => Layer::AtomicEth,
        Ext::Aeth => Layer::Aeth,
        Ext::AtomicAckEth => Layer::AtomicAckEth,
        Ext::Deth => Layer::Deth,
        Ext::Immediate => Layer::Immediate,
        Ext::InvalidateKey => Layer::InvalidateKey,
        Ext::CnpReserved => Layer::CnpReserved,
        Ext::Feth => Layer::Feth,
    }
}
