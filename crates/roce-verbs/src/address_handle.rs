//! Address handles: where datagrams go.

use roce_faults::VerbMoment;
use roce_transport::{Completion, CompletionStatus, PathAttributes, PdHandle};
use roce_wire::GRH_LEN;
use std::net::IpAddr;
use std::sync::Arc;

use crate::datagram_source::DatagramSource;
use crate::driver::Driver;
use crate::error::Error;
use crate::path::{AddressVector, Path, resolve};
use crate::protection_domain::ProtectionDomain;

/// The address of a host to which datagrams are sent; as `ibv_ah`.
///
/// Made by [`ProtectionDomain::create_ah`](crate::ProtectionDomain::create_ah), or by
/// [`create_ah_from_completion`](crate::ProtectionDomain::create_ah_from_completion) for the sender
/// of a datagram that was received. One handle serves any number of queue pairs of its domain and of
/// the peer's. It is cheap to clone, and may be dropped as soon as its datagrams are posted.
///
/// ```no_run
/// use roce_verbs::{AddressVector, Device, DeviceConfig, Gid, Qpn, SendOperation, SendWr, Service};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let device = Device::open("eth0", DeviceConfig::default())?;
/// let pd = device.alloc_pd()?;
/// let cq = device.create_cq(16, None)?;
/// let qp = pd.queue_pair(&cq, &cq).service(Service::Ud).build()?;
/// qp.ready_for_datagrams(0x1111_1111)?;
///
/// let row = device.default_gid_index()?.unwrap_or_default();
/// let peer = Gid::from(std::net::IpAddr::from([10, 0, 0, 2]));
/// let ah = pd.create_ah(&AddressVector::new(row, peer))?;
/// let hello = SendWr::inline(1, SendOperation::send(), b"hello").signaled();
/// let their_qpn = Qpn::new(0x11).expect("24 bits");
/// qp.post_send_to([hello], &ah, their_qpn, 0x1111_1111)?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct AddressHandle {
    path: Path,
    pd: PdHandle,
}

impl ProtectionDomain {
    /// Makes an address handle, to which queue pairs of this domain send datagrams; as
    /// `ibv_create_ah`. Resolves the address, which may take as long as
    /// [`Device::resolve`](crate::Device::resolve) says.
    ///
    /// # Errors
    /// As [`Device::resolve`](crate::Device::resolve).
    pub fn create_ah(&self, vector: &AddressVector) -> Result<AddressHandle, Error> {
        self.driver.check_verb(VerbMoment::CreateAh)?;
        AddressHandle::new(&self.driver, self.handle, vector)
    }

    /// Makes an address handle to the sender of a datagram; as `ibv_create_ah_from_wc`. `grh` are
    /// the first 40 bytes of its receive. The handle has the datagram's traffic class and flow
    /// label. It sends from the address that the datagram was sent to; if that was a multicast
    /// group, from the device's first address of the same family.
    ///
    /// # Errors
    /// [`Error::NotADatagram`] where completion or bytes are not those of a datagram;
    /// [`Error::AddressGone`] where its destination is no usable address any more; otherwise as
    /// [`create_ah`](Self::create_ah).
    ///
    /// ```no_run
    /// use roce_verbs::{Completion, GRH_LEN, MemoryRegion, ProtectionDomain, QueuePair};
    /// use roce_verbs::{SendOperation, SendWr};
    ///
    /// /// Answers a datagram whose receive is at the start of `region`.
    /// fn answer(
    ///     pd: &ProtectionDomain,
    ///     qp: &QueuePair,
    ///     region: &MemoryRegion,
    ///     received: &Completion,
    /// ) -> Result<(), Box<dyn std::error::Error>> {
    ///     let mut grh = [0; GRH_LEN];
    ///     region.read(0, &mut grh)?;
    ///     let sender = pd.create_ah_from_completion(received, &grh)?;
    ///     let pong = SendWr::inline(1, SendOperation::send(), b"pong");
    ///     let qpn = received.source_qpn.ok_or("not a datagram")?;
    ///     Ok(qp.post_send_to([pong], &sender, qpn, 0x1111_1111)?)
    /// }
    /// ```
    pub fn create_ah_from_completion(
        &self,
        completion: &Completion,
        grh: &[u8; GRH_LEN],
    ) -> Result<AddressHandle, Error> {
        self.driver.check_verb(VerbMoment::CreateAh)?;
        AddressHandle::of_sender(&self.driver, self.handle, completion, grh)
    }
}

impl AddressHandle {
    pub(crate) fn new(
        driver: &Arc<Driver>,
        pd: PdHandle,
        vector: &AddressVector,
    ) -> Result<Self, Error> {
        Ok(Self { path: resolve(driver, vector)?, pd })
    }

    /// The address of the sender of a datagram.
    pub(crate) fn of_sender(
        driver: &Arc<Driver>,
        pd: PdHandle,
        completion: &Completion,
        grh: &[u8; GRH_LEN],
    ) -> Result<Self, Error> {
        let is_datagram =
            completion.status == CompletionStatus::Success && completion.source_qpn.is_some();
        let source = is_datagram.then(|| DatagramSource::parse(grh)).flatten();
        let source = source.ok_or(Error::NotADatagram)?;
        let row = {
            let engine = driver.engine()?;
            match source.destination.is_multicast() {
                // The group is no address to send from.
                true => engine.gids().first_of_family(source.destination),
                false => engine.gids().row_of(source.destination),
            }
        };
        let row = row.ok_or_else(|| Error::AddressGone {
            address: source.destination,
            interface: driver.port().name().to_owned(),
        })?;
        let vector = AddressVector {
            traffic_class: source.traffic_class,
            flow_label: source.flow_label,
            ..AddressVector::new(row, source.source.into())
        };
        Self::new(driver, pd, &vector)
    }

    pub(crate) fn belongs_to(&self, driver: &Arc<Driver>, pd: PdHandle) -> bool {
        self.path.belongs_to(driver) && self.pd == pd
    }

    pub(crate) fn attributes(&self) -> PathAttributes {
        self.path.attributes()
    }

    /// Returns the own address.
    pub fn local(&self) -> IpAddr {
        self.path.local()
    }

    /// Returns the peer's address.
    pub fn remote(&self) -> IpAddr {
        self.path.remote()
    }
}
