//! The sending half of a round: the endpoint writes frames, which are sealed and queued.

use std::collections::VecDeque;
use std::io;

use roce_io::FrameDevice;
use roce_transport::{Endpoint, Instant, Observer, TransmitLimits, TransmitQueue};

use super::Engine;
use super::devices::Devices;
use super::frame_sealer::{FrameSealer, Framing};
use super::tables::Tables;
use super::transmit_batch::{TRANSMIT_BUDGET, TransmitBatch};
use super::transmit_queues::{
    LO_QUEUE, LOOPBACK_QUEUE, LocalFrame, MAX_LOCAL_FRAMES, WIRE_QUEUE, transmit_queue,
};
use crate::consumer::Consumer;

impl<C: Consumer> Engine<C> {
    /// Fills the interface's slots; frames for this host go to their own queues. Those are built in
    /// a scratch buffer while the interface is full. Returns the number of frames.
    pub(super) fn transmit(&mut self, now: Instant) -> usize {
        let Self { endpoint, tables, devices, framing, policy, drops, .. } = self;
        let Tables { memory, paths, numbers, .. } = tables;
        let Devices { wire, lo, loopback, loopback_queue, lo_queue, is_wire_suspended, .. } =
            devices;
        let Framing { source_ports, sealing, headroom, scratch } = framing;
        let mut sent = 0;
        loop {
            let before = sent;
            if policy.acks_after_send {
                endpoint.join_acks();
            }
            let mut batch = TransmitBatch {
                now,
                limits: TransmitLimits { max_packets: wire.capabilities().max_train_packets },
                lo_limits: lo.as_ref().map(|lo| lo.capabilities()),
                endpoint,
                memory,
                sealer: FrameSealer::new(paths, numbers, &devices.pauses, source_ports, sealing),
                numbers,
                drops,
                loopback_queue,
                lo_queue,
                headroom,
                acks_after_send: &mut policy.acks_after_send,
                sent: &mut sent,
            };
            let mut result = wire.transmit(&mut |slot| batch.next_frame(slot));
            if *is_wire_suspended && !wire.has_unsent() {
                *is_wire_suspended = false;
                batch.endpoint.resume_transmit(WIRE_QUEUE);
                result = result.and(wire.transmit(&mut |slot| batch.next_frame(slot)));
            }
            if wire.has_unsent() {
                *is_wire_suspended = true;
                batch.endpoint.suspend_transmit(WIRE_QUEUE);
                scratch.resize(wire.capabilities().max_frame_len, 0);
                while batch.next_frame(scratch).is_some() {
                    // A frame whose path has changed to the interface meanwhile is dropped; the
                    // protocol recovers from loss.
                    batch.drops.count("drop_no_room");
                }
            }
            let had_frames_for_lo = !lo_queue.is_empty();
            let to_lo = transmit_local(lo, lo_queue, endpoint, LO_QUEUE);
            let to_loopback = transmit_local(loopback, loopback_queue, endpoint, LOOPBACK_QUEUE);
            drops.note_error_of(result, "wire_transmit_error");
            drops.note_error_of(to_lo, "lo_transmit_error");
            drops.note_error_of(to_loopback, "loopback_transmit_error");
            // Another pass only for frames to other processes of this host. Frames to this engine
            // are received in the next round.
            let is_over = !had_frames_for_lo || !endpoint.has_pending_transmit();
            if sent == before || sent >= TRANSMIT_BUDGET || is_over || !loopback_queue.is_empty() {
                return sent;
            }
        }
    }
}

/// Passes the frames for this host to their device, if there is one.
#[inline]
fn transmit_local(
    device: &mut Option<Box<dyn FrameDevice>>,
    frames: &mut VecDeque<LocalFrame>,
    endpoint: &mut Endpoint<impl Observer>,
    queue: TransmitQueue,
) -> io::Result<()> {
    let Some(device) = device else { return Ok(()) };
    let result = transmit_queue(&mut **device, frames);
    if frames.len() < MAX_LOCAL_FRAMES {
        endpoint.resume_transmit(queue);
    }
    result
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};
    use std::os::fd::BorrowedFd;
    use std::rc::Rc;
    use std::sync::Arc;

    use roce_io::{DeviceCapabilities, RxFrame, TxFrame};
    use roce_transport::{
        AccessFlags, AsyncEvent, Completion, CqHandle, EndpointConfig, PathAttributes, PdHandle,
        PostError, QpAttributes, QpInit, SendOperation, SendWr, Service,
    };
    use roce_wire::{MacAddr, OuterHeaders, PathMtu, Psn, Qpn};

    use super::*;
    use crate::consumer::Pushed;
    use crate::engine::EngineParts;
    use crate::gid_table::GidTable;
    use crate::path_table::PathEntry;
    use crate::plain_region::PlainRegion;
    use crate::policy::Cause;
    use crate::route::NextHop;

    /// Takes no completion and no event.
    struct NoConsumer;

    impl Consumer for NoConsumer {
        type Observer = ();
        type Region = Rc<PlainRegion>;
        type Queue = ();
        type Refusal = PostError;

        fn can_bypass((): &(), _: CqHandle) -> bool {
            false
        }
        fn has_channel((): &()) -> bool {
            false
        }
        fn push(&mut self, _: CqHandle, _: Completion, _: Instant) -> Pushed {
            Pushed::Queued
        }
        fn drop_oldest(&mut self, _: CqHandle) -> bool {
            false
        }
        fn push_event(&mut self, _: AsyncEvent) {}
        fn may_mistake_reports(&self) -> bool {
            false
        }
        fn publish_counters(&self, _: impl FnOnce() -> Vec<(&'static str, u64)>) {}
    }

    /// Takes no frame while it is full, and has room again when it receives.
    struct FullUntilReceive {
        is_full: bool,
        sent: Arc<std::sync::atomic::AtomicUsize>,
    }

    impl FrameDevice for FullUntilReceive {
        fn capabilities(&self) -> DeviceCapabilities {
            let (max_frame_len, mtu) = (2048, 1500);
            DeviceCapabilities { max_frame_len, mtu, max_train_packets: 1 }
        }
        fn receive(&mut self, _: usize, _: &mut dyn FnMut(RxFrame<'_>)) -> io::Result<usize> {
            self.is_full = false;
            Ok(0)
        }
        fn transmit(
            &mut self,
            fill: &mut dyn FnMut(&mut [u8]) -> Option<TxFrame>,
        ) -> io::Result<usize> {
            let mut slot = [0; 2048];
            let mut sent = 0;
            while !self.is_full && fill(&mut slot).is_some() {
                sent += 1;
            }
            self.sent.fetch_add(sent, std::sync::atomic::Ordering::Relaxed);
            Ok(sent)
        }
        fn has_unsent(&self) -> bool {
            self.is_full
        }
        fn wait_fds(&self) -> Vec<BorrowedFd<'_>> {
            Vec::new()
        }
    }

    #[test]
    fn an_interface_that_has_room_again_while_it_receives_lets_queue_pairs_send() {
        let sent = Arc::default();
        let device = FullUntilReceive { is_full: true, sent: Arc::clone(&sent) };
        let mac = MacAddr([2, 0, 0, 0, 0, 1]);
        let [local, remote] = [1, 2].map(|last| IpAddr::from(Ipv4Addr::new(10, 0, 0, last)));
        let gids = GidTable::of(mac, &[local]);
        let mut engine = Engine::new(EngineParts {
            endpoint: Endpoint::new(EndpointConfig::default()),
            wire: Box::new(device),
            lo: None,
            loopback: None,
            gids,
            consumer: NoConsumer,
            source_ports: Vec::new(),
        });
        let entry = PathEntry::new(OuterHeaders::new(local, remote)).unwrap();
        let hop = Some(NextHop::Neighbour(MacAddr([2, 0, 0, 0, 0, 2])));
        let handle = engine.tables.paths.insert(entry.with_next_hop(hop, mac));
        let (qpn, cq) = (Qpn::new(0x11).unwrap(), CqHandle(1));
        let init = QpInit::new(Service::Uc, PdHandle(1), cq);
        engine.endpoint.create_qp(qpn, init).unwrap();
        let now = Instant::default();
        let path = PathAttributes { handle, local, remote, max_rate: None };
        for step in [
            QpAttributes::init(AccessFlags::ALL),
            QpAttributes::ready_to_receive(path, PathMtu::B1024, qpn, Psn::ZERO),
            QpAttributes::ready_to_send(Psn::ZERO),
        ] {
            engine.endpoint.modify_qp(now, qpn, &step).unwrap();
        }
        let post = |engine: &mut Engine<NoConsumer>| {
            let work = SendWr::inline(1, SendOperation::send(), b"hello");
            engine.endpoint.post_send(now, qpn, work).unwrap();
        };
        post(&mut engine);
        // The first batch finds the interface full and suspends its queue pairs.
        engine.run(now, Cause::Post, None);
        assert_eq!(sent.load(std::sync::atomic::Ordering::Relaxed), 0);
        engine.run(now, Cause::Call, None);
        assert_eq!(sent.load(std::sync::atomic::Ordering::Relaxed), 1);
    }
}
