//! Shared receive queues.

use std::sync::Arc;

use roce_faults::VerbMoment;
use roce_transport::{
    EventSource, Instant, ModifySrqError, PostError, RecvWr, SrqAttributes, SrqHandle, SrqInfo,
    SrqInit,
};

use crate::driver::{Driver, Shard};
use crate::engine::{Engine, check_post};
use crate::error::Error;
use crate::events::EventQueue;
use crate::places::SharedReceivePlaces;
use crate::protection_domain::ProtectionDomain;
use crate::wr_error::{BadWr, WrError};

/// Receives that several queue pairs take from; as `ibv_srq`.
///
/// Made by [`ProtectionDomain::create_srq`](crate::ProtectionDomain::create_srq), whose domain has
/// the memory of its receives. Each message of any of its queue pairs takes the oldest receive, and
/// completes in the receive queue of that queue pair. Cheap to clone: it is destroyed with the last
/// clone and the last queue pair that uses it, in any order. Receives that are posted then never
/// complete.
///
/// ```no_run
/// use roce_verbs::{AccessFlags, AsyncEvent, Device, DeviceConfig, RecvWr, SrqAttributes};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let device = Device::open("eth0", DeviceConfig::default())?;
/// let pd = device.alloc_pd()?;
/// let cq = device.create_cq(1024, None)?;
/// let region = pd.register(512 * 4096, AccessFlags::LOCAL_WRITE)?;
/// let srq = pd.create_srq(512, 1)?;
/// let buffer = |n: usize| region.sge(n * 4096..(n + 1) * 4096);
/// for n in 0..512 {
///     srq.post_recv([RecvWr::new(n as u64, [buffer(n)?])])?;
/// }
/// // An event asks for more receives once fewer than 64 are left.
/// srq.modify(&SrqAttributes { limit: Some(64), ..SrqAttributes::default() })?;
/// let pairs: Result<Vec<_>, _> =
///     (0..16).map(|_| pd.queue_pair(&cq, &cq).srq(&srq).build()).collect();
/// # drop(pairs?);
/// if device.poll_event() == Some(AsyncEvent::SrqLimitReached { srq: srq.handle() }) {
///     println!("{} receives are left", srq.query()?.posted);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct SharedReceiveQueue(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    driver: Arc<Driver>,
    /// The shard that has it, and the queue pairs that use it.
    shard: Arc<Shard>,
    /// Its name in the device.
    handle: SrqHandle,
    /// Its name in its shard.
    local: SrqHandle,
    places: SharedReceivePlaces,
}

impl ProtectionDomain {
    /// Makes a shared receive queue for `max_wr` receives of at most `max_sge` pieces each, from this
    /// domain's memory; as `ibv_create_srq`.
    ///
    /// # Errors
    /// [`Error::Misuse`] where a capacity is too large; [`Error::OutOfMemory`]; [`Error::Forked`].
    pub fn create_srq(&self, max_wr: u32, max_sge: u32) -> Result<SharedReceiveQueue, Error> {
        let init = SrqInit { pd: self.handle, max_wr, max_sge };
        SharedReceiveQueue::new(Arc::clone(&self.driver), &self.events, init)
    }
}

impl SharedReceiveQueue {
    pub(crate) fn new(
        driver: Arc<Driver>,
        events: &Arc<EventQueue>,
        init: SrqInit,
    ) -> Result<Self, Error> {
        driver.check_verb(VerbMoment::CreateSrq)?;
        let shard = Arc::clone(driver.shard_of_next_receive_queue());
        let places = SharedReceivePlaces::new(&driver, init.max_wr)?;
        let (handle, local) = {
            let mut engine = shard.engine()?;
            let local = engine.endpoint_mut().create_srq(init)?;
            let handle = engine.consumer().name_of(local);
            let source = EventSource::SharedReceiveQueue(handle);
            engine.consumer_mut().events.add(source, Arc::clone(events));
            (handle, local)
        };
        Ok(Self(Arc::new(Inner { driver, shard, handle, local, places })))
    }

    pub(crate) fn belongs_to(&self, driver: &Arc<Driver>) -> bool {
        Arc::ptr_eq(&self.0.driver, driver)
    }

    /// Returns its name in [`AsyncEvent::SrqLimitReached`](crate::AsyncEvent::SrqLimitReached). A
    /// later queue may have the name of one that is destroyed.
    pub fn handle(&self) -> SrqHandle {
        self.0.handle
    }

    /// Returns its name in its shard.
    pub(crate) fn handle_in_shard(&self) -> SrqHandle {
        self.0.local
    }

    /// Returns the shard of the queue and of the queue pairs that use it.
    pub(crate) fn shard(&self) -> &Arc<Shard> {
        &self.0.shard
    }

    /// Posts requests in order; as `ibv_post_srq_recv`.
    ///
    /// # Errors
    /// The first request that was refused, and why; those before it are posted.
    pub fn post_recv(&self, work: impl IntoIterator<Item = RecvWr>) -> Result<(), BadWr> {
        let posted = self.0.shard.post_receives(|engine, now| {
            work.into_iter().enumerate().try_for_each(|(index, work)| {
                check_post(engine, now, VerbMoment::PostSrqRecv, None)
                    .map_err(WrError::from)
                    .and_then(|()| Ok(self.post_receive(engine, now, work)?))
                    .map_err(|source| BadWr { index, source })
            })
        });
        posted.unwrap_or(Err(BadWr { index: 0, source: WrError::Forked }))
    }

    fn post_receive(
        &self,
        engine: &mut Engine,
        now: Instant,
        work: RecvWr,
    ) -> Result<(), PostError> {
        let posted = || engine.endpoint().query_srq(self.0.local).map_or(0, |info| info.posted);
        self.0.places.check_room(posted)?;
        engine.endpoint_mut().post_srq_recv(now, self.0.local, work)?;
        self.0.places.take();
        Ok(())
    }

    /// Returns what completions of its receives call it.
    pub(crate) fn number(&self) -> u32 {
        self.0.places.number()
    }

    /// A receive that a message has taken will never complete.
    pub(crate) fn lose_receive(&self) {
        self.0.places.lose_receive();
    }

    /// Sets the attributes that are `Some`; as `ibv_modify_srq`. `limit` arms the limit event, which
    /// is raised at once if fewer receives are posted; `max_wr` resizes the queue.
    ///
    /// # Errors
    /// [`Error::ModifySrq`], then nothing has changed; [`Error::Forked`].
    pub fn modify(&self, attributes: &SrqAttributes) -> Result<(), Error> {
        let modify = |engine: &mut Engine, _| {
            engine.endpoint_mut().modify_srq(self.0.local, attributes)?;
            attributes.max_wr.into_iter().for_each(|max| self.0.places.set_capacity(max));
            Ok::<_, ModifySrqError>(())
        };
        Ok(self.0.shard.with_engine(modify)??)
    }

    /// Returns its attributes, and how many receives are posted; as `ibv_query_srq`.
    ///
    /// # Errors
    /// [`Error::Forked`].
    pub fn query(&self) -> Result<SrqInfo, Error> {
        let engine = self.0.shard.engine()?;
        Ok(engine.endpoint().query_srq(self.0.local).expect("the queue lives as long as self"))
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // In a child after fork there is nothing to end. No queue pair uses it: each has a clone.
        let _ended = self.shard.end(|engine| {
            engine.consumer_mut().events.remove(EventSource::SharedReceiveQueue(self.handle));
            engine.endpoint_mut().destroy_srq(self.local)
        });
    }
}
