//! Errors of packets in the making.

use std::net::IpAddr;

use roce_dissect::FieldWriteError;
use roce_wire::SealError;

/// A text that names nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// No field has the name.
    #[error(
        "no field is called {name:?}{}",
        similar_text(similar, "`roce dissect --fields` lists all")
    )]
    Field {
        /// The name.
        name: String,
        /// Names of fields that are like it.
        similar: Vec<&'static str>,
    },
    /// No opcode has the name.
    #[error(
        "no opcode is called {name:?}{}",
        similar_text(similar, "write a name such as rc_send_only, or a number such as 0x04")
    )]
    Opcode {
        /// The name.
        name: String,
        /// Names of opcodes that are like it.
        similar: Vec<&'static str>,
    },
    /// The text is no change of a field.
    #[error("{0:?} is no change of a field; write NAME=VALUE, or NAME+=N for a series")]
    Change(String),
    /// The text is no payload.
    #[error("{0:?} is no payload; write a number of bytes up to {max}, or bytes such as 0xdeadbeef", max = crate::MAX_PAYLOAD_LEN)]
    Payload(String),
    /// The text is no mapping of addresses.
    #[error("{0:?} is no mapping; write OLD=NEW, two addresses of the same IP version")]
    AddressMapping(String),
    /// The text is no mapping of queue pairs.
    #[error("{0:?} is no mapping; write OLD=NEW or OLD@ADDRESS=NEW, such as 0x11@10.0.0.2=0x2a")]
    QueuePairMapping(String),
}

/// A change that a packet cannot have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChangeError {
    /// The packet does not have the field.
    #[error("{packet} has no field {field}")]
    NoSuchField {
        /// The packet, by its opcode.
        packet: String,
        /// Name of the field.
        field: &'static str,
    },
    /// The field of a series is no number of at most 64 bits.
    #[error("{field} is no number; only numbers can rise from packet to packet")]
    NoNumber {
        /// Name of the field.
        field: &'static str,
    },
    /// The field cannot have the value.
    #[error(transparent)]
    Write(#[from] FieldWriteError),
}

/// A packet that cannot be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DraftError {
    /// The outer headers cannot be written.
    #[error(transparent)]
    Seal(#[from] SealError),
    /// The captured packet is none of RoCEv2.
    #[error("frame {frame} is no packet of RoCEv2")]
    NotRoce {
        /// Number of the frame in its capture.
        frame: u64,
    },
    /// Part of the packet was not captured.
    #[error("frame {frame} was not captured whole")]
    Cut {
        /// Number of the frame in its capture.
        frame: u64,
    },
    /// A captured packet is of the other IP version.
    #[error("the packet cannot be sent to {address}, an address of another IP version")]
    OtherVersion {
        /// Address that does not fit.
        address: IpAddr,
    },
    /// Source and destination are of two IP versions.
    #[error("{from} and {to} are addresses of two IP versions")]
    Families {
        /// Source address.
        from: IpAddr,
        /// Destination address.
        to: IpAddr,
    },
}

/// Returns the end of a message about a name.
fn similar_text(similar: &[&str], without: &str) -> String {
    match similar {
        [] => format!("; {without}"),
        similar => format!("; similar: {}", similar.join(", ")),
    }
}
