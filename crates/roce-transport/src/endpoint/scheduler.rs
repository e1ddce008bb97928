//! Decides which queue pair transmits next, and when which timer fires.

use crate::endpoint::peers::PeerTable;
use crate::endpoint::run_queue::{RunQueue, Runnable};
use crate::endpoint::slot::Slot;
use crate::endpoint::suspended_queues::SuspendedQueues;
use crate::endpoint::timer_queue::TimerQueue;
use crate::frames_in_flight::FrameFeedback;
use crate::peer_window::{PeerView, PeerWindow};
use crate::rc::RcQueuePair;
use crate::tx_demand::TxPending;
use crate::{Instant, PacketSealer, PeerWindowConfig, TransmitQueue};

/// Run queue, peer windows and timers of all queue pairs. Queue pairs are named by their slots.
///
/// Queue pairs take turns, one train each. A queue pair whose peer window admits no frame waits
/// for the peer, in FIFO order; one whose transmit queue is full, until that has room.
#[derive(Debug, Default)]
pub(super) struct Scheduler {
    run_queue: RunQueue,
    /// A queue pair in the run queue was posted to and may have no timer yet: the time of a post may
    /// be an old one, and mostly the request leaves at once.
    has_untimed: bool,
    /// Queue pair whose burst continues first.
    current: Option<usize>,
    /// ACK-only packets are delayed.
    delay_acks: bool,
    /// A delayed ACK may join the next packet of its queue pair.
    join_acks: bool,
    /// Queue pairs that owe a delayed ACK.
    delayed_acks: RunQueue,
    suspended: SuspendedQueues,
    /// Time at which a train last left.
    transmitted_at: Instant,
    timers: TimerQueue,
    peers: PeerTable,
}

/// A queue pair that may transmit a train.
#[derive(Clone, Copy, Debug)]
pub(super) struct Selected {
    pub(super) index: usize,
    /// The peer window admits a frame of requests.
    pub(super) may_request: bool,
}

impl Scheduler {
    /// A request was posted to this queue pair.
    #[inline]
    pub(super) fn on_posted(&mut self, index: usize) {
        self.run_queue.push(Runnable::QueuePair(index));
        self.has_untimed = true;
    }

    /// A packet, a timer or the application changed this queue pair; `feedback` is what that says of
    /// frames in flight.
    #[inline]
    pub(super) fn on_input(
        &mut self,
        index: usize,
        slot: &mut Slot,
        feedback: FrameFeedback,
        time: Instant,
    ) {
        self.update_timer(index, slot);
        if let Some((_, peer)) = slot.peer.filter(|_| feedback != FrameFeedback::default()) {
            let window = self.peers.window(peer);
            window.on_feedback(feedback, time);
            if !window.waiters.is_empty() {
                self.run_queue.push(Runnable::PeerWaiters(peer));
            }
        }
        self.run_queue.push(Runnable::QueuePair(index));
    }

    /// A train of this queue pair was written, or nothing could be.
    #[inline]
    pub(super) fn on_transmit(&mut self, index: usize, slot: &mut Slot) {
        self.update_timer(index, slot);
    }

    /// A train leaves.
    #[inline]
    pub(super) fn note_train(&mut self, time: Instant) {
        self.transmitted_at = time;
    }

    /// Time at which frames last left that this queue pair's own have to wait for: those of its
    /// transmit queue if that is full, and otherwise those of queue pairs that take turns with it.
    pub(super) fn taken_at(&self, index: usize) -> Instant {
        let since = self.suspended.waits_since(Runnable::QueuePair(index));
        since.unwrap_or(self.transmitted_at)
    }

    /// This queue pair has `pending` left to send.
    #[inline]
    pub(super) fn on_pending(&mut self, index: usize, pending: TxPending) {
        match pending {
            TxPending::Ready => self.run_queue.push(Runnable::QueuePair(index)),
            TxPending::DelayedAck => self.delayed_acks.push(Runnable::QueuePair(index)),
            TxPending::None => {}
        }
    }

    /// The next train is of this queue pair again.
    pub(super) fn continue_with(&mut self, index: usize) {
        self.current = Some(index);
    }

    /// The path of this queue pair may have changed.
    pub(super) fn update_peer(&mut self, slot: &mut Slot, config: PeerWindowConfig) {
        // Without acknowledgements no window limits a sender.
        let address = slot.queue_pair.rc().and_then(RcQueuePair::peer);
        if slot.peer.map(|(address, _)| address) == address {
            return;
        }
        if let Some((_, peer)) = slot.peer {
            self.peers.release(peer, slot.wait_ticket.take());
            if let Some(rc) = slot.queue_pair.rc_mut() {
                rc.reset_frames();
            }
        }
        slot.peer = address.map(|it| (it, self.peers.acquire(it, config)));
    }

    /// Forgets a queue pair that is destroyed. Its turn may still come: then it is over before it
    /// has begun, or is that of the next queue pair in this slot.
    pub(super) fn remove(&mut self, index: usize, slot: &mut Slot) {
        self.current.take_if(|it| *it == index);
        self.timers.forget(index, &mut slot.timer_at);
        if let Some((_, peer)) = slot.peer {
            self.peers.release(peer, slot.wait_ticket);
        }
    }

    pub(super) fn set_delay_acks(&mut self, delay: bool) {
        self.delay_acks = delay;
        self.join_acks = false;
        if !delay {
            while let Some(runnable) = self.delayed_acks.pop() {
                self.run_queue.push(runnable);
            }
        }
    }

    pub(super) const fn delays_acks(&self) -> bool {
        self.delay_acks
    }

    pub(super) fn join_acks(&mut self) {
        self.join_acks = self.delay_acks;
    }

    pub(super) const fn joins_acks(&self) -> bool {
        self.join_acks
    }

    pub(super) fn suspend(&mut self, queue: TransmitQueue, time: Instant) {
        self.suspended.suspend(queue, time);
    }

    pub(super) fn resume(&mut self, queue: TransmitQueue) {
        self.suspended.resume(queue, &mut self.run_queue);
    }

    pub(super) fn is_suspended(&mut self, queue: TransmitQueue) -> bool {
        self.suspended.waiting(queue).is_some()
    }

    /// Returns true if [`next`](Self::next) may have a queue pair.
    pub(super) fn has_runnable(&self) -> bool {
        self.current.is_some() || !self.run_queue.is_empty()
    }

    /// Returns true if no other queue pair waits for its turn.
    #[inline]
    pub(super) fn is_alone(&self) -> bool {
        self.run_queue.is_empty()
    }

    /// The queue pair whose turn it is, if no other waits for its own and the peer window admits it.
    pub(super) fn only_admitted(&mut self, qps: &[Option<Slot>]) -> Option<usize> {
        let only = match self.run_queue.only() {
            Some(Runnable::QueuePair(index)) if self.current.is_none() => index,
            _ => return None,
        };
        let (_, peer) = qps[only].as_ref()?.peer?;
        self.peers.window(peer).admits_new().then_some(only)
    }

    /// The window of the peer that this queue pair sends to.
    #[inline]
    pub(super) fn window(&mut self, slot: &Slot) -> Option<&mut PeerWindow> {
        let (_, peer) = slot.peer?;
        Some(self.peers.window(peer))
    }

    /// The earliest deadline of a queue pair or peer.
    #[inline]
    pub(super) fn earliest(&self) -> Option<Instant> {
        let (one, other) = (self.timers.earliest(), self.peers.earliest());
        one.into_iter().chain(other).min()
    }

    /// The instant at which timers are to be looked at; `latest` is the time now.
    pub(super) fn poll_timeout(&self, latest: Instant) -> Option<Instant> {
        let is_untimed = self.has_untimed && !self.run_queue.is_empty();
        if is_untimed { Some(latest) } else { self.earliest() }
    }

    /// Gives each queue pair that was posted to a timer, and lets the waiters of peers go on whose
    /// timer fired.
    pub(super) fn handle_timeout(&mut self, qps: &mut [Option<Slot>], time: Instant) {
        if core::mem::take(&mut self.has_untimed) {
            let Self { run_queue, timers, .. } = self;
            for index in run_queue.queue_pairs() {
                let Some(slot) = qps[index].as_mut() else { continue };
                slot.queue_pair.keep_timed(time);
                timers.set(index, &mut slot.timer_at, slot.queue_pair.poll_timeout());
            }
        }
        while let Some(peer) = self.peers.take_due(time) {
            self.run_queue.push(Runnable::PeerWaiters(peer));
        }
    }

    /// Takes a queue pair whose timer is due, with what is known of its peer.
    pub(super) fn take_due(
        &mut self,
        qps: &mut [Option<Slot>],
        time: Instant,
    ) -> Option<(usize, PeerView)> {
        loop {
            let index = self.timers.take_due(time)?;
            let Some(slot) = qps[index].as_mut() else { continue };
            slot.timer_at = None;
            let view = slot.peer.map(|(_, peer)| self.peers.view(peer, slot.wait_ticket, time));
            return Some((index, view.unwrap_or_default()));
        }
    }

    /// Takes the queue pair whose turn it is.
    #[inline]
    pub(super) fn next(
        &mut self,
        qps: &mut [Option<Slot>],
        time: Instant,
        sealer: &dyn PacketSealer,
    ) -> Option<Selected> {
        loop {
            let runnable = match self.current.take() {
                Some(index) => Runnable::Continue(index),
                None => self.run_queue.pop()?,
            };
            if !self.suspended.is_empty() && self.suspend_if_full(runnable, qps, time, sealer) {
                continue;
            }
            if let Some((index, may_request)) = self.select(runnable, qps, time) {
                return Some(Selected { index, may_request });
            }
        }
    }

    /// Keeps `runnable` for later if the packets of its queue pair leave through a transmit queue
    /// that is suspended.
    fn suspend_if_full(
        &mut self,
        runnable: Runnable,
        qps: &mut [Option<Slot>],
        time: Instant,
        sealer: &dyn PacketSealer,
    ) -> bool {
        let (first, runnable) = match runnable {
            Runnable::QueuePair(index) | Runnable::Continue(index) => {
                (Some(index), Runnable::QueuePair(index))
            }
            Runnable::PeerWaiters(peer) => (self.peers.window(peer).waiters.front(), runnable),
        };
        let Some(slot) = first.and_then(|index| qps[index].as_mut()) else { return false };
        let way = slot.queue_pair.path_and_dest();
        let queue = way.and_then(|(path, dest_qpn)| sealer.transmit_queue(dest_qpn, path, None));
        let Some(waiting) = queue.and_then(|queue| self.suspended.waiting(queue)) else {
            return false;
        };
        waiting.push(runnable);
        if let Runnable::QueuePair(index) = runnable {
            slot.queue_pair.keep_timed(time);
            self.update_timer(index, slot);
        }
        true
    }

    /// Returns the queue pair that transmits in this turn, and true if it may send requests.
    #[inline]
    fn select(
        &mut self,
        runnable: Runnable,
        qps: &mut [Option<Slot>],
        time: Instant,
    ) -> Option<(usize, bool)> {
        match runnable {
            Runnable::PeerWaiters(peer) => {
                let window = self.peers.window(peer);
                if window.waiters.is_empty() {
                    return None;
                }
                if !window.admits() {
                    self.peers.on_blocked(peer, time);
                    return None;
                }
                let first = window.waiters.pop()?;
                if let Some(slot) = qps[first].as_mut() {
                    slot.wait_ticket = None;
                    if let Some(rc) = slot.queue_pair.rc_mut() {
                        rc.prefer_requests();
                    }
                }
                if !window.waiters.is_empty() {
                    self.run_queue.push(runnable);
                }
                Some((first, true))
            }
            Runnable::Continue(index) => {
                let slot = qps[index].as_mut()?;
                let (_, peer) = slot.peer?;
                let window = self.peers.window(peer);
                if !window.admits() && slot.wait_ticket.is_none() {
                    slot.wait_ticket = Some(window.waiters.push_front(index));
                    self.run_queue.push(Runnable::PeerWaiters(peer));
                    let demand = slot.queue_pair.demand();
                    return demand.has_responses().then_some((index, false));
                }
                Some((index, window.admits()))
            }
            Runnable::QueuePair(index) => {
                let slot = qps[index].as_mut()?;
                let Some((_, peer)) = slot.peer else {
                    return slot.queue_pair.rc().is_none().then_some((index, true));
                };
                let window = self.peers.window(peer);
                if window.admits_new() {
                    return Some((index, true));
                }
                let demand = slot.queue_pair.demand();
                if demand.requests {
                    if slot.wait_ticket.is_none() {
                        slot.wait_ticket = Some(window.waiters.push_back(index));
                        self.run_queue.push(Runnable::PeerWaiters(peer));
                    }
                    slot.queue_pair.keep_timed(time);
                    self.update_timer(index, slot);
                }
                (demand.has_responses() || demand.repairs).then_some((index, false))
            }
        }
    }

    #[inline]
    fn update_timer(&mut self, index: usize, slot: &mut Slot) {
        self.timers.set(index, &mut slot.timer_at, slot.queue_pair.poll_timeout());
    }

    /// Checks that a timer ends the requests of the queue pair in this slot.
    #[inline]
    pub(super) fn debug_assert_timed(&self, slot: &Slot) {
        if !cfg!(debug_assertions) || self.has_untimed {
            return;
        }
        let qp = &slot.queue_pair;
        let is_entered = match (slot.timer_at, qp.poll_timeout()) {
            (Some(entered), Some(wanted)) => entered <= wanted,
            (_, wanted) => wanted.is_none(),
        };
        assert!(is_entered && qp.is_timed(), "no timer ends the requests of {slot:?}");
    }
}
