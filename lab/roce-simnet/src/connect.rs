//! The attributes that connect a queue pair.

use roce_transport::{
    AccessFlags, AckTimeout, CqHandle, PathAttributes, QpAttributes, QpCap, QpInit, SrqHandle,
};
use roce_wire::{PathMtu, Psn, Qpn, RnrTimer, Service};

use crate::PD;

/// Attributes of a connection, the same at both ends but for the PSNs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectOptions {
    /// Service. A UD queue pair takes only the PSNs and the Q_Key of what follows, and no path.
    pub service: Service,
    /// Q_Key of UD queue pairs.
    pub q_key: u32,
    /// Shared receive queue.
    pub srq: Option<SrqHandle>,
    /// Static rate of UC and UD in bytes per second; `None` is unlimited.
    pub max_rate: Option<u64>,
    /// Path MTU.
    pub path_mtu: PathMtu,
    /// First PSN that each end sends.
    pub first_psn: [Psn; 2],
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
    /// All requests are signaled, not only those that ask for it.
    pub signal_all: bool,
    /// Both ends report gaps, which is of no standard.
    pub gap_reports: bool,
    /// Capacities of each queue pair.
    pub cap: QpCap,
}

impl Default for ConnectOptions {
    /// RC, MTU 1024, PSNs from 0, 67 ms, 7 retries, an RNR timer of 0.64 ms, 16 READs, all accesses, no
    /// gap reports.
    fn default() -> Self {
        Self {
            service: Service::Rc,
            q_key: 0x1111_1111,
            srq: None,
            max_rate: None,
            path_mtu: PathMtu::B1024,
            first_psn: [Psn::ZERO; 2],
            ack_timeout: AckTimeout::new(14).expect("below 32"),
            retry_count: 7,
            rnr_retry: 7,
            min_rnr_timer: RnrTimer::DEFAULT,
            max_rd_atomic: 16,
            max_dest_rd_atomic: 16,
            access: AccessFlags::ALL,
            signal_all: false,
            gap_reports: false,
            cap: QpCap::default(),
        }
    }
}

impl ConnectOptions {
    /// Returns the attributes of a queue pair in [`PD`] with these completion queues.
    pub fn init(&self, send_cq: CqHandle, recv_cq: CqHandle) -> QpInit {
        let Self { cap, service, srq, signal_all, .. } = *self;
        let numbers = Default::default();
        QpInit { pd: PD, send_cq, recv_cq, cap, signal_all, service, srq, numbers }
    }

    /// Returns the attributes of the transitions of end 0 or 1 from RESET to INIT, RTR and RTS, for a
    /// connection to queue pair `peer` over `path`.
    ///
    /// # Panics
    /// If there is no such end.
    pub fn transitions(&self, end: usize, path: PathAttributes, peer: Qpn) -> [QpAttributes; 3] {
        let (own_psn, psn) = (self.first_psn[end], self.first_psn[1 - end]);
        let steps = [
            QpAttributes { q_key: Some(self.q_key), ..QpAttributes::init(self.access) },
            QpAttributes {
                max_dest_rd_atomic: Some(self.max_dest_rd_atomic),
                min_rnr_timer: Some(self.min_rnr_timer),
                gap_reports: self.gap_reports.then_some(true),
                ..QpAttributes::ready_to_receive(path, self.path_mtu, peer, psn)
            },
            QpAttributes {
                max_rd_atomic: Some(self.max_rd_atomic),
                ack_timeout: Some(self.ack_timeout),
                retry_count: Some(self.retry_count),
                rnr_retry: Some(self.rnr_retry),
                ..QpAttributes::ready_to_send(own_psn)
            },
        ];
        steps.map(|step| step.of_service(self.service))
    }
}
