//! Management datagrams on queue pair 1: the messages of connection management.
//!
//! [`CmDatagram`] is a whole datagram of 256 bytes: the common header, whose transaction id is the
//! only field that varies, and one [`CmMessage`]. Each message is a struct; its table
//! `FIELDS` has the place of each field, for readers of captures. Encoding and decoding are total
//! functions of fixed lengths: no message is refused for a value of a field.
//!
//! ```
//! use roce_wire::management::{CmDatagram, CmMessage, CommunicationId, Rtu};
//!
//! let rtu = Rtu {
//!     local_id: CommunicationId(0x194b_7b0b),
//!     remote_id: CommunicationId(0x0774_5d5b),
//!     ..Rtu::default()
//! };
//! let datagram = CmDatagram { transaction: 7, message: CmMessage::Rtu(rtu) };
//! let bytes = datagram.encode();
//! assert_eq!(bytes.len(), 256);
//! assert_eq!(CmDatagram::decode(&bytes), Ok(datagram));
//! ```

mod answered_message;
mod apr;
mod attribute;
mod cma_header;
mod communication_id;
mod datagram;
mod drep;
mod dreq;
mod field;
mod header;
mod lap;
mod lengths;
mod mra;
mod rej;
mod reject_reason;
mod rep;
mod req;
mod rtu;
mod service_id;
mod sidr_rep;
mod sidr_req;
mod sidr_status;
#[cfg(test)]
mod tests;
mod timeout;
mod transport_service;

pub use answered_message::AnsweredMessage;
pub use apr::Apr;
pub use attribute::CmAttribute;
pub use cma_header::{CMA_HEADER_LEN, CmaAddresses, CmaHeader, CmaHeaderError};
pub use communication_id::CommunicationId;
pub use datagram::{CmDatagram, CmMessage};
pub use drep::Drep;
pub use dreq::Dreq;
pub use field::{CmField, CmFieldKind};
pub use header::{ManagementError, ManagementHeader};
pub use lap::Lap;
pub use lengths::{CM_BODY_LEN, MANAGEMENT_DATAGRAM_LEN, MANAGEMENT_HEADER_LEN};
pub use mra::Mra;
pub use rej::Rej;
pub use reject_reason::RejectReason;
pub use rep::Rep;
pub use req::Req;
pub use rtu::Rtu;
pub use service_id::{PortSpace, ServiceId};
pub use sidr_rep::SidrRep;
pub use sidr_req::SidrReq;
pub use sidr_status::SidrStatus;
pub use timeout::CmTimeout;
pub use transport_service::TransportService;
