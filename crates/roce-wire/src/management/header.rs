//! The common header of management datagrams.

use super::{CmAttribute, MANAGEMENT_HEADER_LEN};

const BASE_VERSION: u8 = 1;
const CM_CLASS: u8 = 0x07;
const CM_CLASS_VERSION: u8 = 2;
const METHOD_SEND: u8 = 0x03;

/// The common header of management datagrams of every class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ManagementHeader {
    /// Version of this header.
    pub base_version: u8,
    /// Class: the protocol that the datagram belongs to.
    pub class: u8,
    /// Version of the class.
    pub class_version: u8,
    /// What is asked of the receiver.
    pub method: u8,
    /// Status of a response.
    pub status: u16,
    /// Bytes whose meaning depends on the class.
    pub class_specific: u16,
    /// Number of the exchange.
    pub transaction: u64,
    /// Kind of the data.
    pub attribute: u16,
    /// Modifier of the attribute.
    pub attribute_modifier: u32,
}

impl ManagementHeader {
    /// Returns the header of a message of connection management.
    //= rule cm-header: cm.c: cm_format_mad_hdr
    //# Messages of connection management have base version 1, class 7 of version 2 and the method Send.
    pub const fn for_cm(attribute: CmAttribute, transaction: u64) -> Self {
        Self {
            base_version: BASE_VERSION,
            class: CM_CLASS,
            class_version: CM_CLASS_VERSION,
            method: METHOD_SEND,
            status: 0,
            class_specific: 0,
            transaction,
            attribute: attribute.code(),
            attribute_modifier: 0,
        }
    }

    /// Reads the header; cannot fail.
    pub const fn from_bytes(bytes: &[u8; MANAGEMENT_HEADER_LEN]) -> Self {
        let [b, c, v, m, s0, s1, x0, x1, rest @ ..] = *bytes;
        let [t0, t1, t2, t3, t4, t5, t6, t7, a0, a1, _, _, m0, m1, m2, m3] = rest;
        Self {
            base_version: b,
            class: c,
            class_version: v,
            method: m,
            status: u16::from_be_bytes([s0, s1]),
            class_specific: u16::from_be_bytes([x0, x1]),
            transaction: u64::from_be_bytes([t0, t1, t2, t3, t4, t5, t6, t7]),
            attribute: u16::from_be_bytes([a0, a1]),
            attribute_modifier: u32::from_be_bytes([m0, m1, m2, m3]),
        }
    }

    /// Returns the bytes on the wire.
    pub fn to_bytes(self) -> [u8; MANAGEMENT_HEADER_LEN] {
        let mut bytes = [0; MANAGEMENT_HEADER_LEN];
        bytes[..4].copy_from_slice(&[
            self.base_version,
            self.class,
            self.class_version,
            self.method,
        ]);
        bytes[4..6].copy_from_slice(&self.status.to_be_bytes());
        bytes[6..8].copy_from_slice(&self.class_specific.to_be_bytes());
        bytes[8..16].copy_from_slice(&self.transaction.to_be_bytes());
        bytes[16..18].copy_from_slice(&self.attribute.to_be_bytes());
        bytes[20..].copy_from_slice(&self.attribute_modifier.to_be_bytes());
        bytes
    }

    /// Returns which message of connection management follows.
    ///
    /// # Errors
    /// Another version, class or method, or an attribute that is not defined.
    pub fn cm_attribute(&self) -> Result<CmAttribute, ManagementError> {
        if self.base_version != BASE_VERSION {
            return Err(ManagementError::BaseVersion(self.base_version));
        }
        if (self.class, self.class_version) != (CM_CLASS, CM_CLASS_VERSION) {
            let (class, version) = (self.class, self.class_version);
            return Err(ManagementError::Class { class, version });
        }
        if self.method != METHOD_SEND {
            return Err(ManagementError::Method(self.method));
        }
        CmAttribute::from_code(self.attribute).ok_or(ManagementError::Attribute(self.attribute))
    }
}

/// Reason why bytes are no message of connection management: drop them and count the drop under
/// [`counter`](Self::counter).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ManagementError {
    /// Not 256 bytes.
    #[error("a management datagram of {0} bytes, which should have 256")]
    Length(usize),
    /// A common header of another version.
    #[error("version {0} of management datagrams")]
    BaseVersion(u8),
    /// Another class, or another version of connection management.
    #[error("management class {class:#04x} of version {version}")]
    Class {
        /// Class.
        class: u8,
        /// Its version.
        version: u8,
    },
    /// Another method than Send.
    #[error("method {0:#04x} of connection management")]
    Method(u8),
    /// A message that is not defined.
    #[error("attribute {0:#06x} of connection management")]
    Attribute(u16),
}

impl ManagementError {
    /// Returns the stable name of the counter of such drops.
    pub const fn counter(&self) -> &'static str {
        match self {
            Self::Length(_) => "cm_drop_length",
            Self::BaseVersion(_) => "cm_drop_base_version",
            Self::Class { .. } => "cm_drop_class",
            Self::Method(_) => "cm_drop_method",
            Self::Attribute(_) => "cm_drop_attribute",
        }
    }
}
