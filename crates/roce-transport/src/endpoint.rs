//! All queue pairs of a device, and the face that the driver sees.

use roce_wire::{Packet, Qpn, Verified};

use crate::{
    ApiMisuse, AsyncEvent, Completion, Counters, CqHandle, EndpointConfig, Instant, Memory,
    ModifyError, Observer, PathHandle, PostError, QpAttributes, QpInfo, QpInit, RecvWork, SendWork,
};

/// All queue pairs of one device and process, as pure computation.
///
/// # Driving it
///
/// | kind | name | when |
/// |---|---|---|
/// | input from the network | [`handle_packet`](Self::handle_packet) | a verified packet arrived |
/// | input from the clock | [`handle_timeout`](Self::handle_timeout) | the instant from [`poll_timeout`](Self::poll_timeout) came; extra calls do no harm |
/// | input from the application | `create_qp`, `modify_qp`, `destroy_qp`, `post_*` | it asks for something |
/// | output | `poll_*` | after every input, in the order below, until `None` |
///
/// After each input drain [`poll_transmit`](Self::poll_transmit), then
/// [`poll_completion`](Self::poll_completion), then [`poll_event`](Self::poll_event), then ask
/// [`poll_timeout`](Self::poll_timeout) once. A whole batch of received packets counts as one
/// input: all its acknowledgements leave as one for each queue pair. Instants must never go
/// backwards.
#[derive(Debug)]
pub struct Endpoint<O: Observer = ()> {
    config: EndpointConfig,
    counters: Counters,
    observer: O,
}

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
    /// Its way to the peer.
    pub path: PathHandle,
    /// Bytes of every segment but the last, which may be shorter.
    pub segment_len: usize,
    /// Bytes of all segments together.
    pub len: usize,
    /// How many segments.
    pub packets: usize,
}

impl Endpoint {
    /// An endpoint without queue pairs that nobody observes.
    pub fn new(config: EndpointConfig) -> Self {
        Self::with_observer(config, ())
    }
}

#[allow(unused_variables)]
impl<O: Observer> Endpoint<O> {
    /// An endpoint without queue pairs that tells `observer` what it does.
    pub fn with_observer(config: EndpointConfig, observer: O) -> Self {
        Self { config, counters: Counters::default(), observer }
    }

    /// Makes a queue pair in state RESET.
    ///
    /// # Errors
    /// [`ApiMisuse`]; then nothing was made.
    pub fn create_qp(&mut self, qpn: Qpn, init: QpInit) -> Result<(), ApiMisuse> {
        Ok(())
    }

    /// Sets attributes and goes to another state, as the standard's table allows.
    ///
    /// # Errors
    /// [`ModifyError`]; then the queue pair is as it was.
    pub fn modify_qp(
        &mut self,
        now: Instant,
        qpn: Qpn,
        asked: &QpAttributes,
    ) -> Result<(), ModifyError> {
        Ok(())
    }

    /// What a queue pair tells about itself; `None` if there is none of this number.
    pub fn query_qp(&self, qpn: Qpn) -> Option<QpInfo> {
        None
    }

    /// Removes a queue pair without completing what is posted; false if there is none of this
    /// number. Completions that it has made already are still to be polled.
    pub fn destroy_qp(&mut self, qpn: Qpn) -> bool {
        false
    }

    /// Posts a request to the send queue.
    ///
    /// # Errors
    /// [`PostError`]; then nothing was posted.
    pub fn post_send(&mut self, now: Instant, qpn: Qpn, work: SendWork) -> Result<(), PostError> {
        Ok(())
    }

    /// Posts a request to the receive queue.
    ///
    /// # Errors
    /// [`PostError`]; then nothing was posted.
    pub fn post_recv(&mut self, now: Instant, qpn: Qpn, work: RecvWork) -> Result<(), PostError> {
        Ok(())
    }

    /// Takes a packet in.
    pub fn handle_packet(
        &mut self,
        now: Instant,
        packet: &Packet<'_, Verified>,
        memory: &mut impl Memory,
    ) {
    }

    /// Does what is due at `now`.
    pub fn handle_timeout(&mut self, now: Instant) {}

    /// A completion queue overflowed: its queue pairs go to ERROR.
    pub fn handle_cq_overflow(&mut self, now: Instant, cq: CqHandle) {}

    /// Writes the next train that may leave now into `buf`, if there is one.
    ///
    /// `buf` is the driver's own transmit slot behind the headroom, so that a payload is
    /// copied once, from the registered region to where it leaves.
    pub fn poll_transmit(
        &mut self,
        now: Instant,
        memory: &mut impl Memory,
        limits: TransmitLimits,
        buf: &mut [u8],
    ) -> Option<Transmit> {
        None
    }

    /// The next completion and the queue that it belongs to.
    pub fn poll_completion(&mut self) -> Option<(CqHandle, Completion)> {
        None
    }

    /// The next event.
    pub fn poll_event(&mut self) -> Option<AsyncEvent> {
        None
    }

    /// When to call [`handle_timeout`](Self::handle_timeout) at the latest. It may turn out
    /// that nothing was due: a deadline that moves away is looked at again when the old one
    /// comes.
    pub fn poll_timeout(&self) -> Option<Instant> {
        None
    }

    /// How often what happened.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// The observer.
    pub fn observer(&self) -> &O {
        &self.observer
    }

    /// The observer.
    pub fn observer_mut(&mut self) -> &mut O {
        &mut self.observer
    }
}
