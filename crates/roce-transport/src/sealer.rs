//! What a driver does to packets while they are in the cache.

use roce_wire::{PayloadCrc, Qpn};

use crate::{PathHandle, TransmitQueue};

/// Finishes each packet of a train as soon as it is written; see
/// [`Endpoint::poll_transmit_sealed`](crate::Endpoint::poll_transmit_sealed).
///
/// A packet is given when the next one has been written, for until then it may change. A driver
/// that makes the ICRC here instead of behind the whole train reads the payload while it is in the
/// innermost cache, and its processor copies the next payload meanwhile.
///
/// ```
/// use roce_transport::{PacketSealer, PathHandle};
/// use roce_wire::PayloadCrc;
///
/// /// Counts bytes instead.
/// struct Count(usize);
/// impl PacketSealer for Count {
///     fn begin(&mut self, _: roce_wire::Qpn, _: roce_wire::Qpn, _: PathHandle) {
///         self.0 = 0;
///     }
///     fn seal(&mut self, packet: &mut [u8], _: Option<PayloadCrc>) {
///         self.0 += packet.len();
///     }
/// }
/// let mut count = Count(1);
/// count.begin(roce_wire::Qpn::GSI, roce_wire::Qpn::GSI, PathHandle(0));
/// count.seal(&mut [0; 20], None);
/// assert_eq!(count.0, 20);
/// ```
pub trait PacketSealer {
    /// The packets that follow are those of a train from `qpn` to `dest_qpn` along `path`. It may
    /// turn out that there are none.
    fn begin(&mut self, qpn: Qpn, dest_qpn: Qpn, path: PathHandle);

    /// Returns the driver's transmit queue through which packets to `dest_qpn` along `path` leave, with
    /// this traffic class instead of that of the path, if any.
    /// Asked while a transmit queue is suspended, see
    /// [`Endpoint::suspend_transmit`](crate::Endpoint::suspend_transmit), and for acknowledgements of
    /// queue pairs that are gone.
    fn transmit_queue(
        &self,
        _dest_qpn: Qpn,
        _path: PathHandle,
        _traffic_class: Option<u8>,
    ) -> Option<TransmitQueue> {
        None
    }

    /// Finishes the train's next packet: from its BTH to its last pad byte, and 4 bytes of room for
    /// its ICRC.
    ///
    /// `payload` comes with packets that end with a whole path MTU of payload, and only where the
    /// memory has summed it while it was read: see
    /// [`Memory::read_summed`](crate::Memory::read_summed).
    fn seal(&mut self, packet: &mut [u8], payload: Option<PayloadCrc>);

    /// As [`begin`](Self::begin), and [`seal`](Self::seal) of the only packet.
    fn seal_single(&mut self, qpn: Qpn, dest_qpn: Qpn, path: PathHandle, packet: &mut [u8]) {
        self.begin(qpn, dest_qpn, path);
        self.seal(packet, None);
    }
}

/// Leaves packets as they are.
impl PacketSealer for () {
    fn begin(&mut self, _: Qpn, _: Qpn, _: PathHandle) {}

    fn seal(&mut self, _: &mut [u8], _: Option<PayloadCrc>) {}
}
