//! A packet from its BTH to its ICRC, parsed; the same in RoCEv1 and RoCEv2.

use crate::{Headers, ICRC_LEN, Layer, LenError, WireError};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Body<'a> {
    /// From the first byte of the BTH to the last byte of the ICRC.
    pub(crate) bytes: &'a [u8],
    /// The same without ICRC.
    pub(crate) before_icrc: &'a [u8],
    /// The carried ICRC.
    pub(crate) icrc: u32,
    pub(crate) headers: Headers,
    /// Between headers and pad.
    pub(crate) payload: &'a [u8],
}

impl<'a> Body<'a> {
    #[inline]
    pub(crate) fn parse(bytes: &'a [u8]) -> Result<Self, WireError> {
        let (before_icrc, icrc) =
            bytes.split_last_chunk().ok_or(LenError::new(Layer::Icrc, ICRC_LEN, bytes.len()))?;
        //= rule icrc-byte-order: rxe_icrc.c: rxe_icrc_generate
        //# The ICRC is sent least significant byte first.
        let icrc = u32::from_le_bytes(*icrc);
        let (headers, rest) = Headers::parse(before_icrc)?;
        let payload = headers.split_payload(rest)?;
        Ok(Self { bytes, before_icrc, icrc, headers, payload })
    }
}
