//! Whole datagrams of connection management.

use super::{
    Apr, CmAttribute, CommunicationId, Drep, Dreq, Lap, MANAGEMENT_DATAGRAM_LEN,
    MANAGEMENT_HEADER_LEN, ManagementError, ManagementHeader, Mra, Rej, Rep, Req, Rtu, SidrRep,
    SidrReq,
};

/// A management datagram of connection management.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CmDatagram {
    /// Number of the exchange: messages that answer repeat it.
    pub transaction: u64,
    /// Message.
    pub message: CmMessage,
}

/// A message of connection management.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
// The variants have 232 bytes on the wire; boxes would need an allocator.
#[allow(clippy::large_enum_variant)]
pub enum CmMessage {
    Req(Req),
    Mra(Mra),
    Rej(Rej),
    Rep(Rep),
    Rtu(Rtu),
    Dreq(Dreq),
    Drep(Drep),
    SidrReq(SidrReq),
    SidrRep(SidrRep),
    Lap(Lap),
    Apr(Apr),
}

impl CmDatagram {
    /// Reads a datagram. Status, class specific bytes, attribute modifier and reserved bits are
    /// ignored.
    ///
    /// # Errors
    /// The bytes are no datagram of connection management.
    pub fn decode(bytes: &[u8]) -> Result<Self, ManagementError> {
        let bytes: &[u8; MANAGEMENT_DATAGRAM_LEN] =
            bytes.try_into().map_err(|_| ManagementError::Length(bytes.len()))?;
        let Some((header, body)) = bytes.split_first_chunk::<MANAGEMENT_HEADER_LEN>() else {
            return Err(ManagementError::Length(bytes.len()));
        };
        let Ok(body) = body.try_into() else {
            return Err(ManagementError::Length(bytes.len()));
        };
        let header = ManagementHeader::from_bytes(header);
        let message = match header.cm_attribute()? {
            CmAttribute::Req => CmMessage::Req(Req::decode_body(body)),
            CmAttribute::Mra => CmMessage::Mra(Mra::decode_body(body)),
            CmAttribute::Rej => CmMessage::Rej(Rej::decode_body(body)),
            CmAttribute::Rep => CmMessage::Rep(Rep::decode_body(body)),
            CmAttribute::Rtu => CmMessage::Rtu(Rtu::decode_body(body)),
            CmAttribute::Dreq => CmMessage::Dreq(Dreq::decode_body(body)),
            CmAttribute::Drep => CmMessage::Drep(Drep::decode_body(body)),
            CmAttribute::SidrReq => CmMessage::SidrReq(SidrReq::decode_body(body)),
            CmAttribute::SidrRep => CmMessage::SidrRep(SidrRep::decode_body(body)),
            CmAttribute::Lap => CmMessage::Lap(Lap::decode_body(body)),
            CmAttribute::Apr => CmMessage::Apr(Apr::decode_body(body)),
        };
        Ok(Self { transaction: header.transaction, message })
    }

    /// Returns the bytes on the wire. Bits of values beyond the width of their fields are left out.
    pub fn encode(&self) -> [u8; MANAGEMENT_DATAGRAM_LEN] {
        let body = match &self.message {
            CmMessage::Req(it) => it.encode_body(),
            CmMessage::Mra(it) => it.encode_body(),
            CmMessage::Rej(it) => it.encode_body(),
            CmMessage::Rep(it) => it.encode_body(),
            CmMessage::Rtu(it) => it.encode_body(),
            CmMessage::Dreq(it) => it.encode_body(),
            CmMessage::Drep(it) => it.encode_body(),
            CmMessage::SidrReq(it) => it.encode_body(),
            CmMessage::SidrRep(it) => it.encode_body(),
            CmMessage::Lap(it) => it.encode_body(),
            CmMessage::Apr(it) => it.encode_body(),
        };
        let header = ManagementHeader::for_cm(self.message.attribute(), self.transaction);
        let mut bytes = [0; MANAGEMENT_DATAGRAM_LEN];
        bytes[..MANAGEMENT_HEADER_LEN].copy_from_slice(&header.to_bytes());
        bytes[MANAGEMENT_HEADER_LEN..].copy_from_slice(&body);
        bytes
    }
}

impl CmMessage {
    /// Returns the kind.
    pub const fn attribute(&self) -> CmAttribute {
        match self {
            Self::Req(_) => CmAttribute::Req,
            Self::Mra(_) => CmAttribute::Mra,
            Self::Rej(_) => CmAttribute::Rej,
            Self::Rep(_) => CmAttribute::Rep,
            Self::Rtu(_) => CmAttribute::Rtu,
            Self::Dreq(_) => CmAttribute::Dreq,
            Self::Drep(_) => CmAttribute::Drep,
            Self::SidrReq(_) => CmAttribute::SidrReq,
            Self::SidrRep(_) => CmAttribute::SidrRep,
            Self::Lap(_) => CmAttribute::Lap,
            Self::Apr(_) => CmAttribute::Apr,
        }
    }

    /// Returns the communication id of the sender; in SIDR messages, the number of the request.
    pub const fn local_id(&self) -> CommunicationId {
        match self {
            Self::Req(it) => it.local_id,
            Self::Mra(it) => it.local_id,
            Self::Rej(it) => it.local_id,
            Self::Rep(it) => it.local_id,
            Self::Rtu(it) => it.local_id,
            Self::Dreq(it) => it.local_id,
            Self::Drep(it) => it.local_id,
            Self::SidrReq(it) => it.request_id,
            Self::SidrRep(it) => it.request_id,
            Self::Lap(it) => it.local_id,
            Self::Apr(it) => it.local_id,
        }
    }

    /// Returns the communication id of the receiver; `None` if the message names none.
    pub const fn remote_id(&self) -> Option<CommunicationId> {
        match self {
            Self::Req(_) | Self::SidrReq(_) | Self::SidrRep(_) => None,
            Self::Mra(it) => Some(it.remote_id),
            Self::Rej(it) => Some(it.remote_id),
            Self::Rep(it) => Some(it.remote_id),
            Self::Rtu(it) => Some(it.remote_id),
            Self::Dreq(it) => Some(it.remote_id),
            Self::Drep(it) => Some(it.remote_id),
            Self::Lap(it) => Some(it.remote_id),
            Self::Apr(it) => Some(it.remote_id),
        }
    }
}
