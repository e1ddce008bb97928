//! The attributes that connect a queue pair.

use roce_transport::{AccessFlags, AckTimeout, PathAttributes, QpAttributes, QpState};
use roce_wire::{PathMtu, Psn, Qpn, RnrTimer};

/// Attributes of one end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectOptions {
    /// Path MTU.
    pub path_mtu: PathMtu,
    /// First PSN to send.
    pub sq_psn: Psn,
    /// First PSN to receive.
    pub rq_psn: Psn,
    /// ACK timeout: 4.096 µs · 2^this, 0 for infinite.
    pub ack_timeout: AckTimeout,
    /// Number of retries after an ACK timeout, 0 ..= 7.
    pub retry_count: u8,
    /// Number of retries after an RNR NAK, 0 ..= 7; 7 is infinite.
    pub rnr_retry: u8,
    /// RNR timer to send if no receive is posted.
    pub min_rnr_timer: RnrTimer,
    /// Maximum number of outstanding READs and atomics as requester.
    pub max_rd_atomic: u8,
    /// Maximum number of outstanding READs and atomics as responder.
    pub max_dest_rd_atomic: u8,
    /// Accesses that the peer may make.
    pub access: AccessFlags,
}

impl Default for ConnectOptions {
    /// MTU 1024, PSNs from 0, 67 ms, 7 retries, an RNR timer of 0.64 ms, 16 READs, all accesses.
    fn default() -> Self {
        Self {
            path_mtu: PathMtu::B1024,
            sq_psn: Psn::ZERO,
            rq_psn: Psn::ZERO,
            ack_timeout: AckTimeout::new(14).expect("below 32"),
            retry_count: 7,
            rnr_retry: 7,
            min_rnr_timer: RnrTimer::DEFAULT,
            max_rd_atomic: 16,
            max_dest_rd_atomic: 16,
            access: AccessFlags::ALL,
        }
    }
}

impl ConnectOptions {
    /// Returns the attributes of the transitions from RESET to INIT, RTR and RTS, for a connection to
    /// queue pair `peer` over `path`.
    pub fn transitions(&self, path: PathAttributes, peer: Qpn) -> [QpAttributes; 3] {
        [
            QpAttributes {
                state: Some(QpState::Init),
                pkey_index: Some(0),
                port: Some(1),
                access: Some(self.access),
                ..QpAttributes::default()
            },
            QpAttributes {
                state: Some(QpState::ReadyToReceive),
                path: Some(path),
                path_mtu: Some(self.path_mtu),
                dest_qpn: Some(peer),
                rq_psn: Some(self.rq_psn),
                max_dest_rd_atomic: Some(self.max_dest_rd_atomic),
                min_rnr_timer: Some(self.min_rnr_timer),
                ..QpAttributes::default()
            },
            QpAttributes {
                state: Some(QpState::ReadyToSend),
                sq_psn: Some(self.sq_psn),
                max_rd_atomic: Some(self.max_rd_atomic),
                ack_timeout: Some(self.ack_timeout),
                retry_count: Some(self.retry_count),
                rnr_retry: Some(self.rnr_retry),
                ..QpAttributes::default()
            },
        ]
    }
}
