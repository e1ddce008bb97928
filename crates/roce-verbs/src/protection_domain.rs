//! Protection domains: which queue pairs may use which memory.

use std::sync::Arc;

use roce_engine::Registration;
use roce_transport::{Access, AccessFlags, Completion, MemoryFault, PdHandle, SrqInit};
use roce_wire::GRH_LEN;

use crate::address_handle::AddressHandle;
use crate::completion_queue::CompletionQueue;
use crate::driver::Driver;
use crate::error::Error;
use crate::events::EventQueue;
use crate::fork;
use crate::memory_region::{MemoryRegion, Prefetch, RegisterOptions, check_rights};
use crate::null_region::NullRegion;
use crate::path::AddressVector;
use crate::queue_pair::QueuePairBuilder;
use crate::region::Mapping;
use crate::shared_receive_queue::SharedReceiveQueue;

/// A domain whose queue pairs may access its memory regions, and no others; as `ibv_pd`.
///
/// A queue pair reaches the regions of its own domain and no others. Cheap to clone.
///
/// ```no_run
/// # use roce_verbs::{AccessFlags, Device, DeviceConfig, Error};
/// # fn main() -> Result<(), Error> {
/// let device = Device::open("eth0", DeviceConfig::default())?;
/// let pd = device.alloc_pd()?;
/// let region = pd.register(4096, AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_WRITE)?;
/// println!("peers write to {:#x} with key {:#x}", region.address(), region.rkey());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct ProtectionDomain {
    driver: Arc<Driver>,
    /// The asynchronous events of its context.
    events: Arc<EventQueue>,
    handle: PdHandle,
}

impl ProtectionDomain {
    pub(crate) fn new(driver: Arc<Driver>, events: Arc<EventQueue>, handle: PdHandle) -> Self {
        Self { driver, events, handle }
    }

    /// Allocates `len` zeroed bytes, page-aligned, and registers them.
    ///
    /// # Errors
    /// As [`register_with`](Self::register_with).
    pub fn register(&self, len: usize, access: AccessFlags) -> Result<MemoryRegion, Error> {
        self.register_with(len, access, RegisterOptions::default())
    }

    /// As [`register`](Self::register), with options.
    ///
    /// # Errors
    /// [`Error::Register`] when there is not enough memory;
    /// [`Error::RemoteWithoutLocalWrite`]; [`Error::Forked`].
    pub fn register_with(
        &self,
        len: usize,
        access: AccessFlags,
        options: RegisterOptions,
    ) -> Result<MemoryRegion, Error> {
        let mapping = Mapping::allocate(len, options.huge_pages)
            .map_err(|source| Error::Register { address: 0, len, source })?;
        self.register_mapping(Arc::new(mapping), access, options)
    }

    /// Registers memory of the caller; as `ibv_reg_mr`.
    ///
    /// # Errors
    /// [`Error::Register`] where the range is not mapped, or not writable with
    /// [`AccessFlags::LOCAL_WRITE`]; otherwise as [`register_with`](Self::register_with).
    ///
    /// # Safety
    /// Until the last clone of the region is gone, the range is used for memory that queue pairs may
    /// access and for nothing else. While queue
    /// pairs may reach it, peers and the engine's threads read and (as `access` allows)
    /// write it at any time: meanwhile the caller holds no reference into it, and touches
    /// it through the region's methods, atomics or raw pointers alone, ordered by
    /// completions where it wants to see whole messages. An access to a page that is not mapped, or
    /// not with these rights, fails with the request that it is part of (on x86-64; on other
    /// processors the range must stay mapped).
    #[allow(unsafe_code)]
    pub unsafe fn register_memory(
        &self,
        address: *mut u8,
        len: usize,
        access: AccessFlags,
        options: RegisterOptions,
    ) -> Result<MemoryRegion, Error> {
        let writable = access.contains(AccessFlags::LOCAL_WRITE);
        // SAFETY: the caller's promise is the one that `borrow` asks for.
        let mapping = unsafe { Mapping::borrow(address, len, writable, options.on_demand) }
            .map_err(|source| Error::Register { address: address as u64, len, source })?;
        self.register_mapping(Arc::new(mapping), access, options)
    }

    /// Registers the memory of `region` once more: with this domain, which may belong to
    /// another device, with a key and rights of its own. The remote address of its first byte is the
    /// virtual one.
    ///
    /// So one buffer serves several interfaces. The memory is freed with the last region over it.
    ///
    /// # Errors
    /// [`Error::Register`] where the memory belongs to the caller, whose promise was for one
    /// region; otherwise as [`register_with`](Self::register_with).
    pub fn register_shared(
        &self,
        region: &MemoryRegion,
        access: AccessFlags,
    ) -> Result<MemoryRegion, Error> {
        if !region.mapping().is_owned() {
            let reason = "the memory belongs to the caller; register it with register_memory";
            let source = std::io::Error::new(std::io::ErrorKind::InvalidInput, reason);
            return Err(Error::Register { address: region.address(), len: region.len(), source });
        }
        self.register_mapping(Arc::clone(region.mapping()), access, RegisterOptions::default())
    }

    /// Makes pages of a region of this domain present that is registered on demand; as
    /// `ibv_advise_mr` with the flag to wait. `address` is that of work requests.
    ///
    /// # Errors
    /// [`Error::Advice`] where the key is not that of such a region of this domain, does not give the
    /// right to the range, or the process does not have the pages; [`Error::Forked`].
    pub fn prefetch(
        &self,
        lkey: u32,
        address: u64,
        len: usize,
        advice: Prefetch,
    ) -> Result<(), Error> {
        let access = match advice {
            Prefetch::Write => Access::LocalWrite,
            Prefetch::Read | Prefetch::NoFault => Access::LocalRead,
        };
        let (mapping, offset) = {
            let engine = self.driver.engine()?;
            let range =
                engine.memory.on_demand_range(self.handle, lkey, address, len as u64, access);
            range.map(|(mapping, offset)| (Arc::clone(mapping), offset)).map_err(Error::Advice)?
        };
        if advice == Prefetch::NoFault {
            return Ok(());
        }
        // Without the engine's lock: paging in may take long.
        mapping
            .populate(offset, len, advice == Prefetch::Write)
            .map_err(|_| Error::Advice(MemoryFault::NotPresent))
    }

    /// Makes a region without memory; as `ibv_alloc_null_mr`.
    ///
    /// # Errors
    /// [`Error::Forked`].
    pub fn alloc_null_region(&self) -> Result<NullRegion, Error> {
        NullRegion::new(&self.driver, self.handle)
    }

    /// Returns the handle of the domain if it belongs to this device.
    pub(crate) fn handle_for(&self, driver: &Arc<Driver>) -> Option<PdHandle> {
        Arc::ptr_eq(&self.driver, driver).then_some(self.handle)
    }

    fn register_mapping(
        &self,
        mapping: Arc<Mapping>,
        access: AccessFlags,
        options: RegisterOptions,
    ) -> Result<MemoryRegion, Error> {
        let registration = Registration {
            pd: self.handle,
            access,
            iova: options.iova.unwrap_or(mapping.address()),
            invalidatable: options.invalidatable,
            on_demand: options.on_demand,
        };
        check_rights(access)?;
        let key =
            self.driver.engine()?.memory.insert(Arc::clone(&mapping), registration, fork::random);
        Ok(MemoryRegion::new(Arc::clone(&self.driver), mapping, key, registration.iova))
    }

    /// Returns a builder of a queue pair that completes sends in one queue and receives in another, or
    /// both in the same.
    pub fn queue_pair(
        &self,
        send_cq: &CompletionQueue,
        recv_cq: &CompletionQueue,
    ) -> QueuePairBuilder {
        let (driver, events) = (Arc::clone(&self.driver), Arc::clone(&self.events));
        QueuePairBuilder::new(driver, events, self.handle, send_cq, recv_cq)
    }

    /// Makes a shared receive queue for `max_wr` receives of at most `max_sge` pieces each, from this
    /// domain's memory; as `ibv_create_srq`.
    ///
    /// # Errors
    /// [`Error::Misuse`] where a capacity is too large; [`Error::Forked`].
    pub fn create_srq(&self, max_wr: u32, max_sge: u32) -> Result<SharedReceiveQueue, Error> {
        let init = SrqInit { pd: self.handle, max_wr, max_sge };
        SharedReceiveQueue::new(Arc::clone(&self.driver), &self.events, init)
    }

    /// Makes an address handle, to which queue pairs of this domain send datagrams; as
    /// `ibv_create_ah`. Resolves the address, which may take as long as
    /// [`Device::resolve`](crate::Device::resolve) says.
    ///
    /// # Errors
    /// As [`Device::resolve`](crate::Device::resolve).
    pub fn create_ah(&self, vector: &AddressVector) -> Result<AddressHandle, Error> {
        AddressHandle::new(&self.driver, self.handle, vector)
    }

    /// Makes an address handle to the sender of a datagram; as `ibv_create_ah_from_wc`. `grh` are the
    /// first 40 bytes of its receive. The handle sends from the address to which the datagram came,
    /// with its traffic class and flow label.
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
        AddressHandle::of_sender(&self.driver, self.handle, completion, grh)
    }
}
