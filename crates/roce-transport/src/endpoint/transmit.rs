//! Whose turn it is to send, and what leaves.

use roce_wire::Qpn;

use super::{Endpoint, QueuePair};
use crate::context::Context;
use crate::endpoint::run_queue::Runnable;
use crate::owed_ack::OwedAck;
use crate::rc::TxPending;
use crate::train::TrainWriter;
use crate::{Instant, Memory, Observer, PacketSealer, PathHandle, TransmitQueue};

/// What a driver can take in one piece.
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
    /// The way there.
    pub path: PathHandle,
    /// Bytes of every segment but the last, which may be shorter.
    pub segment_len: usize,
    /// Bytes of all segments together.
    pub len: usize,
    /// How many segments.
    pub packets: usize,
}

impl<O: Observer> Endpoint<O> {
    /// From now on, acknowledgements wait (`true`), or those that waited may leave (`false`).
    ///
    /// For a driver whose application is about to answer what has just arrived: the answer should
    /// not have to wait until an acknowledgement, for which nobody waits, is on its way. Only what
    /// says nothing but "arrived" is held; NAKs and the answers to READs and atomics never are.
    /// The peer takes silence for loss after a while, so release soon: whatever came meanwhile is
    /// then acknowledged by one packet.
    ///
    /// ```
    /// let mut endpoint = roce_transport::Endpoint::new(Default::default());
    /// assert_eq!(endpoint.acks_scheduled(), 0); // nothing has arrived
    /// endpoint.delay_acks(true);
    /// // here the application looks at what has arrived, and answers
    /// endpoint.delay_acks(false);
    /// ```
    pub fn delay_acks(&mut self, hold: bool) {
        self.delay_acks = hold;
        if !hold {
            while let Some(runnable) = self.delayed_acks.pop() {
                self.run_queue.push(runnable);
            }
        }
    }

    /// Sets queue pairs aside whose packets leave through `queue`, which is full, until
    /// [`resume_transmit`](Self::resume_transmit). All others go on sending. Which queue that is,
    /// [`PacketSealer::transmit_queue`] says.
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
        self.suspended.suspend(queue);
    }

    /// Lets queue pairs send again whose packets leave through `queue`.
    pub fn resume_transmit(&mut self, queue: TransmitQueue) {
        self.suspended.resume(queue, &mut self.run_queue);
        self.out.owed_acks.resume();
    }

    /// Whether [`poll_transmit`](Self::poll_transmit) may have something: if not, there is no
    /// need to ask.
    pub fn has_pending_transmit(&self) -> bool {
        self.current.is_some() || !self.run_queue.is_empty() || !self.out.owed_acks.is_empty()
    }

    /// Whether an instant that is a little old would not do for
    /// [`poll_transmit`](Self::poll_transmit): what may be sent now is timed, or sets a timer. A
    /// message for which that is not so need not wait until a clock has been read.
    pub fn needs_fresh_now(&mut self) -> bool {
        let only = match self.run_queue.only() {
            Some(Runnable::QueuePair(index)) if self.current.is_none() => index,
            _ => return self.has_pending_transmit(),
        };
        let Some(slot) = self.qps[only].as_ref() else { return true };
        let QueuePair::Rc(rc) = &slot.queue_pair;
        let is_window_open =
            slot.peer.is_some_and(|(_, peer)| self.peers.window(peer).admits_new());
        !is_window_open || rc.needs_fresh_now()
    }

    /// How often an acknowledgement has become due, counted from the beginning: more than before
    /// means that the peer has sent something that asks for one.
    pub fn acks_scheduled(&self) -> u64 {
        self.out.acks_scheduled
    }

    /// Writes the next train that may leave now into `buf`, if there is one.
    ///
    /// `buf` is the driver's own transmit slot behind the headroom, so that a payload is
    /// copied once, from the registered region to where it leaves. Queue pairs take turns,
    /// one train each; those whose peer has as much to take in already as it can hold
    /// ([`PeerWindowConfig`](crate::PeerWindowConfig)) stand in line until it answers.
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
            let is_full = |queue| self.suspended.waiting(queue).is_some();
            let queue = sealer.transmit_queue(owed.dest_qpn, owed.path);
            if queue.is_some_and(is_full) {
                self.out.owed_acks.set_aside(owed);
            } else if let Some(transmit) = self.transmit_owed_ack(owed, now, buf, sealer) {
                return Some(transmit);
            }
        }
        while let Some(runnable) =
            self.current.take().map(Runnable::Continue).or_else(|| self.run_queue.pop())
        {
            if !self.suspended.is_empty() && self.suspend_if_full(runnable, time, sealer) {
                continue;
            }
            let Some((index, may_request)) = self.select(runnable, time) else { continue };
            let Some(slot) = self.qps[index].as_mut() else { continue };
            let mut peer_window =
                slot.peer.filter(|_| may_request).map(|(_, peer)| self.peers.window(peer));
            let qpn = slot.qpn;
            let is_alone = self.run_queue.is_empty();
            let (config, out) = (&self.config, &mut self.out);
            let mut cx = Context { now, time, qpn, is_alone, config, out };
            let QueuePair::Rc(rc) = &mut slot.queue_pair;
            if let (Some(peer_window), Some((path, dest_qpn))) =
                (peer_window.as_deref_mut(), rc.path_and_dest())
                && let Some(len) =
                    rc.transmit_single(self.delay_acks, peer_window, memory, buf, &mut cx)
            {
                sealer.seal_single(qpn, dest_qpn, path, &mut buf[..len]);
                self.timers.set(index, &mut slot.timer_at, rc.poll_timeout());
                if rc.has_responses() {
                    self.delayed_acks.push(Runnable::QueuePair(index));
                }
                self.out.counters.sent_pkts += 1;
                self.out.observer.transmitted(now, qpn, 1);
                let (segment_len, packets) = (len, 1);
                return Some(Transmit { qpn, dest_qpn, path, segment_len, len, packets });
            }
            if let Some((path, dest_qpn)) = rc.path_and_dest() {
                sealer.begin(qpn, dest_qpn, path);
            }
            let fitting = peer_window
                .as_ref()
                .map_or(usize::MAX, |peer_window| peer_window.max_train_packets());
            let mut train = TrainWriter::new(buf, sealer, max_packets.min(fitting));
            let held_one = rc.transmit(self.delay_acks, peer_window, memory, &mut train, &mut cx);
            train.finish();
            self.timers.set(index, &mut slot.timer_at, rc.poll_timeout());
            if train.is_too_short() {
                self.out.counters.send_err += 1;
            }
            let (len, segment_len, packets) = (train.len(), train.segment_len(), train.packets());
            let Some((path, dest_qpn)) = rc.path_and_dest().filter(|_| packets > 0) else {
                if held_one {
                    self.delayed_acks.push(Runnable::QueuePair(index));
                }
                continue;
            };
            if may_request && rc.must_continue() {
                // Were it to wait for its next turn now, it would wait for an answer too, which
                // nobody has been asked for: a turn is a first packet and the train behind it.
                self.current = Some(index);
            } else {
                match rc.pending_tx(self.delay_acks) {
                    TxPending::Ready => self.run_queue.push(Runnable::QueuePair(index)),
                    TxPending::DelayedAck => self.delayed_acks.push(Runnable::QueuePair(index)),
                    TxPending::None => {}
                }
            }
            self.out.counters.sent_pkts += packets as u64;
            self.out.observer.transmitted(now, qpn, packets);
            return Some(Transmit { qpn, dest_qpn, path, segment_len, len, packets });
        }
        None
    }

    /// Keeps `turn` for later if the packets of its queue pair leave through a transmit queue
    /// that is suspended.
    fn suspend_if_full(
        &mut self,
        runnable: Runnable,
        time: Instant,
        sealer: &dyn PacketSealer,
    ) -> bool {
        let (first, runnable) = match runnable {
            Runnable::QueuePair(index) | Runnable::Continue(index) => {
                (Some(index), Runnable::QueuePair(index))
            }
            Runnable::PeerWaiters(peer) => (self.peers.window(peer).waiters.front(), runnable),
        };
        let Some(slot) = first.and_then(|index| self.qps[index].as_ref()) else { return false };
        let QueuePair::Rc(rc) = &slot.queue_pair;
        let queue =
            rc.path_and_dest().and_then(|(path, dest_qpn)| sealer.transmit_queue(dest_qpn, path));
        let Some(waiting) = queue.and_then(|queue| self.suspended.waiting(queue)) else {
            return false;
        };
        waiting.push(runnable);
        if let Runnable::QueuePair(index) = runnable
            && let Some(slot) = self.qps[index].as_mut()
        {
            let QueuePair::Rc(rc) = &mut slot.queue_pair;
            rc.keep_timed(time);
            self.timers.set(index, &mut slot.timer_at, rc.poll_timeout());
        }
        true
    }

    /// Writes what a queue pair that is gone owes its peer.
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
        let (len, packets) = (train.len(), train.packets());
        if packets == 0 {
            self.out.counters.send_err += 1;
            return None;
        }
        self.out.counters.sent_pkts += 1;
        self.out.observer.transmitted(now, qpn, 1);
        Some(Transmit { qpn, dest_qpn, path, segment_len: len, len, packets })
    }

    /// Which queue pair's turn this is, and whether it may send requests; `None` if nobody's.
    fn select(&mut self, runnable: Runnable, time: Instant) -> Option<(usize, bool)> {
        match runnable {
            Runnable::PeerWaiters(peer) => {
                let peer_window = self.peers.window(peer);
                if peer_window.waiters.is_empty() {
                    return None;
                }
                if !peer_window.admits() {
                    self.peers.on_blocked(peer, time);
                    return None;
                }
                let first = peer_window.waiters.pop()?;
                if let Some(slot) = self.qps[first].as_mut() {
                    slot.wait_ticket = None;
                    let QueuePair::Rc(rc) = &mut slot.queue_pair;
                    rc.prefer_requests();
                }
                if !peer_window.waiters.is_empty() {
                    self.run_queue.push(runnable);
                }
                Some((first, true))
            }
            Runnable::Continue(index) => {
                let slot = self.qps[index].as_mut()?;
                let (_, peer) = slot.peer?;
                let peer_window = self.peers.window(peer);
                if !peer_window.admits() && slot.wait_ticket.is_none() {
                    slot.wait_ticket = Some(peer_window.waiters.push_front(index));
                    self.run_queue.push(Runnable::PeerWaiters(peer));
                    let QueuePair::Rc(rc) = &slot.queue_pair;
                    return rc.has_responses().then_some((index, false));
                }
                Some((index, peer_window.admits()))
            }
            Runnable::QueuePair(index) => {
                let slot = self.qps[index].as_mut()?;
                let QueuePair::Rc(rc) = &mut slot.queue_pair;
                let (_, peer) = slot.peer?;
                let peer_window = self.peers.window(peer);
                if peer_window.admits_new() {
                    return Some((index, true));
                }
                if rc.has_requests() {
                    if slot.wait_ticket.is_none() {
                        slot.wait_ticket = Some(peer_window.waiters.push_back(index));
                        self.run_queue.push(Runnable::PeerWaiters(peer));
                    }
                    rc.keep_timed(time);
                    self.timers.set(index, &mut slot.timer_at, rc.poll_timeout());
                }
                rc.has_responses().then_some((index, false))
            }
        }
    }
}
