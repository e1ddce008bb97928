//! The one queue pair of an engine that is alone: how it is made, brought up and changed.

use core::net::{IpAddr, Ipv4Addr};

use roce_wire::{PathMtu, Psn, Qpn, RnrTimer, Service};

use crate::{
    AccessFlags, AckTimeout, CqHandle, EndpointConfig, PathAttributes, PathHandle, PdHandle,
    QpAttributes, QpCap, QpInit, QpState, SrqHandle, WindowConfig, WorkQueueNumbers,
};
use roce_fuzz_support::Script;

/// What completions call the work queues of the queue pair.
pub(super) const SEND_QUEUE: u32 = 0xfed_cba;
pub(super) const RECEIVE_QUEUE: u32 = 0x123_456;

/// How the queue pair is made and brought up each time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Settings {
    pub(super) service: Service,
    /// Receives come from a shared queue.
    pub(super) is_shared: bool,
    pub(super) mtu: PathMtu,
    pub(super) first_psn: Psn,
    pub(super) access: AccessFlags,
    pub(super) max_rd_atomic: u8,
    pub(super) timers: u8,
    pub(super) is_sending: bool,
    pub(super) signal_all: bool,
    pub(super) gap_reports: bool,
    pub(super) max_packets: usize,
}

/// The queue pair under test. Number 1 would not do: datagrams to that have rules of their own.
pub(super) const QPN: Qpn = Qpn::from_be_bytes([0, 0, 2]);
pub(super) const PD: PdHandle = PdHandle(1);
pub(super) const SEND_CQ: CqHandle = CqHandle(1);
pub(super) const RECV_CQ: CqHandle = CqHandle(2);
pub(super) const LOCAL: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 9, 0, 1));
pub(super) const REMOTE: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 9, 0, 2));
pub(super) const PATH: PathAttributes =
    PathAttributes { handle: PathHandle(5), local: LOCAL, remote: REMOTE, max_rate: None };
pub(super) const PEER: Qpn = Qpn::MAX;
pub(super) const Q_KEY: u32 = 1;

impl Settings {
    /// Takes the first bytes of a script: how the queue pair is, and how its endpoint.
    pub(super) fn read(script: &mut Script<'_>, always_sends: bool) -> (Self, EndpointConfig) {
        let flags = script.byte();
        let mtu = script.pick(&[PathMtu::B256, PathMtu::B512, PathMtu::B1024]);
        let (psn, service) = (script.byte(), script.byte());
        let settings = Self {
            service: match service / 17 {
                0..=7 => Service::Rc,
                8..=11 => Service::Uc,
                _ => Service::Ud,
            },
            is_shared: psn & 0xe0 == 0x80,
            mtu,
            // So near the end of the circle that it is crossed.
            first_psn: Psn::wrapping(0xff_fff0 + u32::from(psn & 0x1f)),
            access: AccessFlags::from_bits_truncate(!u32::from(flags >> 4)),
            max_rd_atomic: service % 17,
            timers: script.byte(),
            is_sending: always_sends || flags & 1 == 0,
            signal_all: flags & 2 == 0,
            gap_reports: psn & 0x20 == 0,
            max_packets: if flags & 4 == 0 { 16 } else { 1 },
        };
        let window = script.pick(&[2, 4, 16, 128]);
        let config = EndpointConfig {
            advertise_credits: flags & 8 == 0,
            window: WindowConfig {
                initial_packets: window,
                min_packets: 1,
                max_packets: 4 * window,
                ..WindowConfig::default()
            },
            ..EndpointConfig::default()
        };
        (settings, config)
    }

    /// What the queue pair is made of.
    pub(super) const fn init(&self, srq: Option<SrqHandle>) -> QpInit {
        QpInit {
            pd: PD,
            send_cq: SEND_CQ,
            recv_cq: RECV_CQ,
            cap: QpCap {
                max_send_wr: 16,
                max_recv_wr: 16,
                max_send_sge: 8,
                max_recv_sge: 8,
                max_inline: 128,
            },
            signal_all: self.signal_all,
            service: self.service,
            srq,
            numbers: WorkQueueNumbers { send: SEND_QUEUE, receive: RECEIVE_QUEUE },
        }
    }

    /// What brings a queue pair from RESET to RTS.
    pub(super) fn steps(&self) -> [QpAttributes; 3] {
        let retries = Some(self.timers >> 5);
        let steps = [
            QpAttributes { q_key: Some(Q_KEY), ..QpAttributes::init(self.access) },
            QpAttributes {
                max_dest_rd_atomic: Some(self.max_rd_atomic),
                min_rnr_timer: RnrTimer::new(self.timers & 0x1f),
                gap_reports: Some(self.gap_reports),
                ..QpAttributes::ready_to_receive(PATH, self.mtu, PEER, self.first_psn)
            },
            QpAttributes {
                max_rd_atomic: Some(self.max_rd_atomic),
                ack_timeout: AckTimeout::new(self.timers & 0x1f),
                retry_count: retries,
                rnr_retry: retries,
                ..QpAttributes::ready_to_send(self.first_psn)
            },
        ];
        steps.map(|step| step.of_service(self.service))
    }

    /// To `state`, with the attributes whose bits are set in `with`.
    pub(super) fn attributes(
        &self,
        script: &mut Script<'_>,
        state: QpState,
        with: u32,
    ) -> QpAttributes {
        let bit = |index: u32| with >> index & 1 == 1;
        let value = if with == 0 { 0 } else { script.byte() };
        QpAttributes {
            state: Some(state).filter(|_| !bit(0)),
            current_state: bit(1).then_some(QpState::ReadyToSend),
            access: bit(2).then_some(AccessFlags::from_bits_truncate(value.into())),
            pkey_index: bit(3).then_some(u16::from(value & 1)),
            port: bit(4).then_some(1),
            path: bit(5).then_some(PATH),
            // One MTU for all, so that a packet can be judged by it.
            path_mtu: bit(6).then_some(self.mtu),
            dest_qpn: bit(7).then_some(PEER),
            rq_psn: bit(8).then_some(Psn::wrapping(u32::from(value) << 16)),
            sq_psn: bit(9).then_some(Psn::wrapping(u32::from(value) << 16)),
            max_rd_atomic: bit(10).then_some(value),
            max_dest_rd_atomic: bit(11).then_some(value),
            min_rnr_timer: RnrTimer::new(value & 0x1f).filter(|_| bit(12)),
            ack_timeout: AckTimeout::new(value & 0x1f).filter(|_| bit(13)),
            retry_count: bit(14).then_some(value & 0xf),
            rnr_retry: bit(15).then_some(value & 0xf),
            sqd_notify: bit(16).then_some(value & 1 == 1),
            q_key: bit(17).then_some(Q_KEY),
            gap_reports: bit(18).then_some(value & 1 == 1),
        }
    }
}
