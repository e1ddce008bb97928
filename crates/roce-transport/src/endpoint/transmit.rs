//! Writes what leaves next into the driver's buffer.

use roce_wire::Qpn;

use super::Endpoint;
use crate::context::Context;
use crate::endpoint::scheduler::Selected;
use crate::owed_ack::OwedAck;
use crate::owed_cnp::OwedCnp;
use crate::rc::RcQueuePair;
use crate::train::TrainWriter;
use crate::tx_demand::TxPending;
use crate::{Instant, Memory, Observer, PacketSealer, PathHandle, TransmitQueue};

/// The longest train that a driver can send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TransmitLimits {
    /// Packets of one train, at least 1.
    pub max_packets: usize,
}

/// A train of packets of one queue pair, written into the driver's buffer just as
/// [`roce_wire::seal`] wants it behind the headroom: each segment is a packet from its BTH to
/// its last pad byte and 4 bytes of room for its ICRC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// The queue pair that sends.
    pub qpn: Qpn,
    /// Its peer.
    pub dest_qpn: Qpn,
    /// The path to the peer.
    pub path: PathHandle,
    /// Bytes of every segment but the last, which may be shorter.
    pub segment_len: usize,
    /// Bytes of all segments together.
    pub len: usize,
    /// How many segments.
    pub packets: usize,
    /// Traffic class instead of that of the path.
    pub traffic_class: Option<u8>,
}

impl Transmit {
    /// A train of one packet of `len` bytes.
    const fn single(qpn: Qpn, dest_qpn: Qpn, path: PathHandle, len: usize) -> Self {
        Self { qpn, dest_qpn, path, segment_len: len, len, packets: 1, traffic_class: None }
    }
}

impl<O: Observer> Endpoint<O> {
    /// Delays ACKs from now on (`true`), or lets those that were delayed leave (`false`).
    ///
    /// For a driver whose application is about to reply to what has just arrived: the reply then
    /// leaves before the ACK, which the peer's application does not wait for. Only ACK-only packets
    /// are delayed, never NAKs and the responses to READs and atomics. After a while the peer takes
    /// a missing ACK for a loss, so release them soon: one packet then acknowledges everything.
    ///
    /// ```
    /// let mut endpoint = roce_transport::Endpoint::new(Default::default());
    /// assert_eq!(endpoint.acks_scheduled(), 0); // nothing has arrived
    /// endpoint.delay_acks(true);
    /// // here the application polls what has arrived, and replies
    /// endpoint.delay_acks(false);
    /// ```
    pub fn delay_acks(&mut self, hold: bool) {
        self.scheduler.set_delay_acks(hold);
    }

    /// Lets a delayed ACK leave behind the next message of its queue pair, in one train with it, until
    /// [`delay_acks`](Self::delay_acks) is called again. It joins messages of one packet, of no fewer
    /// bytes than an ACK. Without delayed ACKs nothing changes.
    ///
    /// For a driver whose application replies now to what came: the peer gets the reply and the ACK with
    /// one frame. Where [`TransmitLimits::max_packets`] is 1, the ACK stays delayed.
    ///
    /// ```
    /// let mut endpoint = roce_transport::Endpoint::new(Default::default());
    /// endpoint.delay_acks(true);
    /// endpoint.join_acks(); // the application has posted its reply
    /// // here the reply leaves, and the ACK
    /// endpoint.delay_acks(false); // those that could not join
    /// ```
    pub fn join_acks(&mut self) {
        self.scheduler.join_acks();
    }

    /// Suspends queue pairs whose packets leave through `queue`, which is full, until
    /// [`resume_transmit`](Self::resume_transmit). All others go on sending.
    /// [`PacketSealer::transmit_queue`] returns the queue of a packet.
    ///
    /// ```
    /// use roce_transport::{Endpoint, TransmitQueue};
    ///
    /// let mut endpoint = Endpoint::new(Default::default());
    /// endpoint.suspend_transmit(TransmitQueue(0));
    /// // here the driver waits until the queue has room
    /// endpoint.resume_transmit(TransmitQueue(0));
    /// ```
    pub fn suspend_transmit(&mut self, queue: TransmitQueue) {
        self.scheduler.suspend(queue, self.time.latest());
    }

    /// Lets queue pairs send again whose packets leave through `queue`.
    pub fn resume_transmit(&mut self, queue: TransmitQueue) {
        self.scheduler.resume(queue);
        self.out.owed_acks.resume();
    }

    /// Returns true if [`poll_transmit`](Self::poll_transmit) may have a packet: a queue pair that something has changed
    /// is asked for one only there, and may have none. With false it would return `None`.
    pub fn has_pending_transmit(&self) -> bool {
        self.scheduler.has_runnable()
            || !self.out.owed_acks.is_empty()
            || !self.out.owed_cnps.is_empty()
    }

    /// Returns true if [`poll_transmit`](Self::poll_transmit) needs the current time, since what it
    /// sends next is timed or sets a timer. Otherwise an instant that is a little old will do.
    pub fn needs_fresh_now(&mut self) -> bool {
        let Some(only) = self.scheduler.only_admitted(&self.qps) else {
            return self.has_pending_transmit();
        };
        self.qps[only]
            .as_ref()
            .and_then(|slot| slot.queue_pair.rc())
            .is_none_or(|rc| rc.needs_fresh_now())
    }

    /// Returns the number of ACKs scheduled since the endpoint was made. It grows when the peer has
    /// sent a request that is to be acknowledged.
    pub fn acks_scheduled(&self) -> u64 {
        self.out.acks_scheduled
    }

    /// Returns the queue pair that was called last, by a packet or by the application; `None` if there
    /// was none, or if it is not known any more.
    pub fn latest_queue_pair(&self) -> Option<Qpn> {
        self.lookup_cache.map(|(qpn, _)| qpn)
    }

    /// Writes the next train that may leave now into `buf`, if there is one.
    ///
    /// `buf` is the driver's own transmit slot behind the headroom, so that a payload is
    /// copied once, from the registered region to where it leaves. It has to hold the path MTU and 64
    /// bytes more: a packet that does not fit is not sent, and
    /// [`send_err`](crate::Counters::send_err) counts it. Queue pairs take turns,
    /// one train each; those whose peer window admits no frame
    /// ([`PeerWindowConfig`](crate::PeerWindowConfig)) wait until the peer responds.
    pub fn poll_transmit(
        &mut self,
        now: Instant,
        memory: &mut impl Memory,
        limits: TransmitLimits,
        buf: &mut [u8],
    ) -> Option<Transmit> {
        self.poll_transmit_sealed(now, memory, limits, buf, &mut ())
    }

    /// As [`poll_transmit`](Self::poll_transmit), and lets `sealer` finish each packet when it is
    /// written.
    pub fn poll_transmit_sealed(
        &mut self,
        now: Instant,
        memory: &mut impl Memory,
        limits: TransmitLimits,
        buf: &mut [u8],
        sealer: &mut dyn PacketSealer,
    ) -> Option<Transmit> {
        let max_packets = limits.max_packets.min(self.config.max_train_packets);
        let time = self.advance(now);
        while let Some(owed) = self.out.owed_acks.pop() {
            let queue = sealer.transmit_queue(owed.dest_qpn, owed.path, None);
            if queue.is_some_and(|queue| self.scheduler.is_suspended(queue)) {
                self.out.owed_acks.set_aside(owed);
            } else if let Some(transmit) = self.transmit_owed_ack(owed, now, buf, sealer) {
                return Some(transmit);
            }
        }
        while let Some(owed) = self.out.owed_cnps.pop() {
            if let Some(transmit) = self.transmit_cnp(owed, now, buf, sealer) {
                return Some(transmit);
            }
        }
        while let Some(selected) = self.scheduler.next(&mut self.qps, time, sealer) {
            let Selected { index, may_request } = selected;
            let Self { config, out, qps, scheduler, .. } = self;
            let Some(slot) = qps[index].as_mut() else { continue };
            let (qpn, delay_acks) = (slot.qpn, scheduler.delays_acks());
            let is_alone = scheduler.is_alone();
            let mut cx = Context { is_alone, ..Context::new(now, time, qpn, config, out) };
            let mut window = if may_request { scheduler.window(slot) } else { None };
            let qp = &mut slot.queue_pair;
            let Some((path, dest_qpn)) = qp.path_and_dest() else { continue };
            if let Some(window) = window.as_deref_mut()
                && let Some(rc) = qp.rc_mut()
                && let Some(len) = rc.transmit_single(delay_acks, window, memory, buf, &mut cx)
            {
                let mut transmit = Transmit::single(qpn, dest_qpn, path, len);
                let has_delayed_ack = rc.demand().has_responses();
                if has_delayed_ack && scheduler.joins_acks() && max_packets > 1 {
                    join_ack(rc, &mut transmit, memory, buf, sealer, &mut cx);
                } else {
                    sealer.seal_single(qpn, dest_qpn, path, &mut buf[..len]);
                }
                if has_delayed_ack && transmit.packets == 1 {
                    scheduler.on_pending(index, TxPending::DelayedAck);
                }
                scheduler.on_transmit(index, slot);
                scheduler.note_train(time);
                return Some(self.note_sent(transmit, now));
            }
            sealer.begin(qpn, dest_qpn, path);
            let fitting = window.as_ref().map_or(usize::MAX, |window| window.max_train_packets());
            let mut train = TrainWriter::new(buf, sealer, max_packets.min(fitting));
            let has_delayed_ack = qp.transmit(delay_acks, window, memory, &mut train, &mut cx);
            train.finish();
            if train.is_too_short() {
                cx.counters().send_err += 1;
            }
            let (len, segment_len, packets) = (train.len(), train.segment_len(), train.packets());
            if packets == 0 {
                if has_delayed_ack {
                    scheduler.on_pending(index, TxPending::DelayedAck);
                }
            } else if may_request && qp.rc().is_some_and(RcQueuePair::must_continue) {
                scheduler.continue_with(index);
            } else {
                scheduler.on_pending(index, qp.demand().pending(delay_acks));
            }
            scheduler.on_transmit(index, slot);
            if packets == 0 {
                continue;
            }
            scheduler.note_train(time);
            let single = Transmit::single(qpn, dest_qpn, path, len);
            return Some(self.note_sent(Transmit { segment_len, packets, ..single }, now));
        }
        None
    }

    /// Writes the ACK that a queue pair owed when it was reset or destroyed.
    fn transmit_owed_ack(
        &mut self,
        owed: OwedAck,
        now: Instant,
        buf: &mut [u8],
        sealer: &mut dyn PacketSealer,
    ) -> Option<Transmit> {
        let OwedAck { qpn, dest_qpn, path, .. } = owed;
        sealer.begin(qpn, dest_qpn, path);
        let mut train = TrainWriter::new(buf, sealer, 1);
        owed.write(&mut train);
        train.finish();
        self.sent_alone(Transmit::single(qpn, dest_qpn, path, train.len()), now)
    }

    /// Writes a CNP. One whose transmit queue is full is dropped: more marked packets draw another CNP.
    #[cold]
    fn transmit_cnp(
        &mut self,
        owed: OwedCnp,
        now: Instant,
        buf: &mut [u8],
        sealer: &mut dyn PacketSealer,
    ) -> Option<Transmit> {
        let OwedCnp { qpn, dest_qpn, path } = owed;
        let traffic_class = Some(self.config.congestion.np_cnp_dscp << 2);
        let queue = sealer.transmit_queue(dest_qpn, path, traffic_class);
        if queue.is_some_and(|queue| self.scheduler.is_suspended(queue)) {
            return None;
        }
        sealer.begin(qpn, dest_qpn, path);
        let mut train = TrainWriter::new(buf, sealer, 1);
        owed.write(&mut train);
        train.finish();
        let single = Transmit::single(qpn, dest_qpn, path, train.len());
        let transmit = self.sent_alone(Transmit { traffic_class, ..single }, now)?;
        self.out.counters.np_cnp_sent += 1;
        Some(transmit)
    }

    /// A packet was written that no queue pair sends itself; of 0 bytes, if it did not fit.
    fn sent_alone(&mut self, transmit: Transmit, now: Instant) -> Option<Transmit> {
        if transmit.len == 0 {
            self.out.counters.send_err += 1;
            return None;
        }
        Some(self.note_sent(transmit, now))
    }

    #[inline]
    fn note_sent(&mut self, transmit: Transmit, now: Instant) -> Transmit {
        self.out.counters.sent_pkts += transmit.packets as u64;
        self.out.observer.transmitted(now, transmit.qpn, transmit.packets);
        transmit
    }
}

/// Puts the delayed ACK of a queue pair behind its message at the beginning of `buf`, if it fits there, and
/// seals both.
#[cold]
#[inline(never)]
fn join_ack<O: Observer>(
    rc: &mut RcQueuePair,
    transmit: &mut Transmit,
    memory: &impl Memory,
    buf: &mut [u8],
    sealer: &mut dyn PacketSealer,
    cx: &mut Context<'_, O>,
) {
    sealer.begin(transmit.qpn, transmit.dest_qpn, transmit.path);
    let mut train = TrainWriter::behind(transmit.len, buf, sealer);
    rc.transmit_ack_behind(memory, &mut train, cx);
    train.finish();
    (transmit.len, transmit.packets) = (train.len(), train.packets());
}
