//! Queue pairs.

mod builder;

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use roce_engine::SendQueue;
use roce_faults::VerbMoment;
use roce_io::MulticastMembership;
use roce_transport::{
    EventSource, Instant, PathHandle, PdHandle, PostError, QpAttributes, QpInfo, QpState, RecvWr,
    Service,
};
use roce_wire::{Psn, Qpn};

pub use self::builder::QueuePairBuilder;
use crate::completion_queue::CompletionQueue;
use crate::driver::{Driver, QueuePairRunCell, Shard};
use crate::engine::{self, Engine};
use crate::error::Error;
use crate::first_psn::FirstPsn;
use crate::path::Path;
use crate::places::QueuePairPlaces;
use crate::shared_receive_queue::SharedReceiveQueue;
use crate::wr_error::{BadWr, WrError};

/// One end of a connection, or a queue pair of datagrams; as `ibv_qp`.
///
/// Made by [`ProtectionDomain::queue_pair`](crate::ProtectionDomain::queue_pair), in
/// state RESET. [`connect`](Self::connect) and [`ready_for_datagrams`](Self::ready_for_datagrams)
/// take the common way to RTS; [`modify`](Self::modify) takes any. Destroyed when dropped: work that
/// was not completed then never completes.
///
/// | service | messages |
/// |---|---|
/// | [`Service::Rc`] | SEND, WRITE, READ, atomics, ATOMIC WRITE, FLUSH; acknowledged, in order, sent again when lost |
/// | [`Service::Uc`] | SEND and WRITE; a message of which a packet is lost is lost as a whole |
/// | [`Service::Ud`] | SEND of at most a path MTU, to any queue pair; what is lost stays lost |
///
/// UC and UD have no acknowledgements: a request completes when its last packet is handed to the
/// interface. A receiver without a posted receive drops the message and counts `out_of_buffer`.
/// `AddressVector::max_rate` limits the sender's rate.
///
/// # A record and its valid word
///
/// A reader of the peer's that sees the word of an ATOMIC WRITE sees all that was written before. FLUSH
/// completes once that is visible to all, so that the writer may tell others of it.
///
/// ```no_run
/// use std::time::Duration;
///
/// use roce_verbs::{
///     AccessFlags, ConnectOptions, Device, DeviceConfig, RemoteAddr, SendOperation, SendWr,
/// };
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let device = Device::open("eth0", DeviceConfig::default())?;
/// let pd = device.alloc_pd()?;
/// let cq = device.create_cq(16, None)?;
/// let [writer, reader] = [(); 2].map(|()| pd.queue_pair(&cq, &cq).signal_all(true).build());
/// let (writer, reader) = (writer?, reader?);
/// writer.connect(&reader.dest(None)?, &ConnectOptions::default())?;
/// reader.connect(&writer.dest(None)?, &ConnectOptions::default())?;
///
/// let access =
///     AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_WRITE | AccessFlags::FLUSH_GLOBAL;
/// let log = pd.register(4096, access)?;
/// let at = |offset| RemoteAddr { addr: log.address() + offset, rkey: log.rkey() };
/// writer.post_send([
///     SendWr::inline(1, SendOperation::write(at(64)), b"a record"),
///     SendWr::new(2, SendOperation::atomic_write(at(0), 1), []),
///     SendWr::new(3, SendOperation::flush(at(0), 72), []),
/// ])?;
/// for _ in 0..3 {
///     assert!(cq.spin_wait(Duration::from_secs(1)).is_some());
/// }
/// assert_eq!(log.load_u64(0)?, 1);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct QueuePair {
    pub(crate) driver: Arc<Driver>,
    pub(crate) shard: Arc<Shard>,
    pub(crate) number: Qpn,
    first_psn: Mutex<FirstPsn>,
    service: Service,
    pub(crate) pd: PdHandle,
    queues: [CompletionQueue; 2],
    pub(crate) places: QueuePairPlaces,
    /// The queue that its receives come from. It lives longer than the queue pair.
    srq: Option<SharedReceiveQueue>,
    /// The path in use, of which this is a user. Changed with the paths of the device locked.
    path: Mutex<Option<PathHandle>>,
    /// Posts of the present run; see [`DoorbellCoalescing`](roce_engine::policy::DoorbellCoalescing).
    pub(crate) run: QueuePairRunCell,
    /// The multicast groups of which it is a member.
    memberships: Mutex<HashMap<IpAddr, MulticastMembership>>,
}

impl QueuePair {
    /// Returns the queue pair number, to which peers address packets.
    pub fn number(&self) -> Qpn {
        self.number
    }

    /// Returns the service.
    pub fn service(&self) -> Service {
        self.service
    }

    /// Returns the shared queue that its receives come from, if there is one.
    pub fn srq(&self) -> Option<&SharedReceiveQueue> {
        self.srq.as_ref()
    }

    /// Returns the PSN at which [`connect`](Self::connect) starts; the peer needs it.
    ///
    /// Every connection has its own. From RTS on it is the PSN at which this connection has started,
    /// so a program may send it to its peer before or after it connects. In state ERR, and after
    /// RESET, it is that of the next connection: a program that connects again sends it again.
    pub fn first_psn(&self) -> Psn {
        // In a forked child the state is unknown, and the queue pair cannot connect again.
        let state = self.query().map_or(QpState::ReadyToSend, |info| info.state);
        self.lock_first_psn().in_state(state)
    }

    /// Makes this queue pair of datagrams a member of a multicast group, and the interface, too: it then
    /// receives the datagrams to the group's address and queue pair [`Qpn::MULTICAST`] with its Q_Key; as
    /// `ibv_attach_mcast`. A membership that exists stays as it is. It ends with
    /// [`detach`](Self::detach), or with the queue pair. Every 20 groups of a device take a descriptor.
    ///
    /// A datagram is sent to a group by an [`AddressHandle`](crate::AddressHandle) with its address. Each
    /// member gets one copy, also on the sender's host, and the sender if it is one.
    ///
    /// # Errors
    /// [`Error::Attach`] for another service, an address of no group, or too many members;
    /// [`Error::JoinGroup`]; [`Error::Forked`].
    ///
    /// ```no_run
    /// use std::net::IpAddr;
    /// use roce_verbs::{AddressVector, Device, DeviceConfig, Qpn, SendOperation, SendWr, Service};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let device = Device::open("eth0", DeviceConfig::default())?;
    /// let pd = device.alloc_pd()?;
    /// let cq = device.create_cq(16, None)?;
    /// let qp = pd.queue_pair(&cq, &cq).service(Service::Ud).build()?;
    /// qp.ready_for_datagrams(0x1111_1111)?;
    ///
    /// let group = IpAddr::from([239, 1, 2, 3]);
    /// qp.attach(group)?;
    /// let row = device.default_gid_index()?.unwrap_or_default();
    /// let members = pd.create_ah(&AddressVector::new(row, group.into()))?;
    /// let hello = SendWr::inline(1, SendOperation::send(), b"hello").signaled();
    /// qp.post_send_to([hello], &members, Qpn::MULTICAST, 0x1111_1111)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn attach(&self, group: IpAddr) -> Result<(), Error> {
        let mut memberships = self.lock_memberships();
        if memberships.contains_key(&group) {
            return self.driver.check_alive();
        }
        {
            let mut engine = self.shard.engine()?;
            engine.endpoint_mut().attach(self.number, group)?;
            if let Err(error) = engine::update_filters(&mut engine) {
                engine.endpoint_mut().detach(self.number, group);
                return Err(error.into());
            }
        }
        match self.driver.join(group) {
            Ok(membership) => drop(memberships.insert(group, membership)),
            Err(source) => {
                self.leave(group)?;
                let interface = self.driver.port().name().to_owned();
                return Err(Error::JoinGroup { interface, group, source });
            }
        }
        Ok(())
    }

    /// Ends a membership; as `ibv_detach_mcast`.
    ///
    /// # Errors
    /// [`Error::NotAttached`]; [`Error::Forked`].
    pub fn detach(&self, group: IpAddr) -> Result<(), Error> {
        let mut memberships = self.lock_memberships();
        self.driver.check_alive()?;
        let membership = memberships.remove(&group).ok_or(Error::NotAttached { group })?;
        self.leave(group)?;
        drop(membership);
        Ok(())
    }

    /// Returns true if the queue pair is a member of a multicast group.
    pub fn is_attached(&self) -> bool {
        !self.lock_memberships().is_empty()
    }

    fn leave(&self, group: IpAddr) -> Result<(), Error> {
        let mut engine = self.shard.engine()?;
        engine.endpoint_mut().detach(self.number, group);
        // If the filter cannot be narrowed, the engine drops the packets.
        let _refused = engine::update_filters(&mut engine);
        Ok(())
    }

    fn lock_memberships(&self) -> MutexGuard<'_, HashMap<IpAddr, MulticastMembership>> {
        self.memberships.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_first_psn(&self) -> MutexGuard<'_, FirstPsn> {
        self.first_psn.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes attributes, and with them the state, by the standard's rules; as
    /// `ibv_modify_qp`. A path in `attributes` belongs to a live [`Path`]; the queue pair keeps it
    /// alive.
    ///
    /// # Errors
    /// [`Error::Modify`] where the transition does not exist, an attribute is missing or
    /// not allowed in it, or out of range; [`Error::PathMtuTooLarge`] where the interface
    /// cannot carry the path MTU; [`Error::NoSuchPath`]; [`Error::Forked`]. Nothing has changed
    /// then.
    pub fn modify(&self, attributes: &QpAttributes) -> Result<(), Error> {
        if let Some(requested) = attributes.path_mtu
            && self.driver.port().active_mtu().is_none_or(|max| requested > max)
        {
            return Err(Error::path_mtu_too_large(requested, self.driver.port()));
        }
        // Nothing takes the path meanwhile.
        let paths = attributes.path.map(|_| self.driver.paths()).transpose()?;
        self.shard.with_engine(|engine, now| {
            if let Some(faults) = engine.consumer().verb_faults.clone() {
                faults.check_call(engine, now, VerbMoment::ModifyQp, Some(self.number))?;
            }
            if attributes.path.is_some_and(|path| !engine.paths().contains(&path)) {
                return Err(Error::NoSuchPath);
            }
            let shared_receive = self.shared_receive_in_use(engine);
            engine.endpoint_mut().modify_qp(now, self.number, attributes)?;
            if attributes.state == Some(QpState::Reset) {
                // Under the engine's lock, so that no completion of before is left when requests are
                // posted again.
                self.queues.iter().for_each(|queue| queue.inner().remove_qp(self.number));
                self.places.clear();
                shared_receive.into_iter().for_each(SharedReceiveQueue::lose_receive);
            }
            if let Some(psn) = attributes.sq_psn {
                self.lock_first_psn().set_used(psn);
            }
            Ok(())
        })??;
        if let Some((mut paths, path)) = paths.zip(attributes.path) {
            paths.retain(path.handle);
            let before = self.lock_path().replace(path.handle);
            before.into_iter().for_each(|before| paths.release(before));
        }
        Ok(())
    }

    /// As [`modify`](Self::modify), with the path as an object.
    ///
    /// # Errors
    /// As [`modify`](Self::modify); [`Error::OtherDevice`] where another device made the path.
    pub fn modify_with_path(&self, attributes: &QpAttributes, path: &Path) -> Result<(), Error> {
        if !path.belongs_to(&self.driver) {
            return Err(Error::OtherDevice);
        }
        let attributes = QpAttributes { path: Some(path.attributes()), ..*attributes };
        self.modify(&attributes)
    }

    /// Returns the shared queue of a receive that a message has taken which is not whole: the receive
    /// is lost if the queue pair is reset or destroyed.
    fn shared_receive_in_use(&self, engine: &Engine) -> Option<&SharedReceiveQueue> {
        self.srq.as_ref().filter(|_| engine.endpoint().holds_shared_receive(self.number))
    }

    fn lock_path(&self) -> MutexGuard<'_, Option<PathHandle>> {
        self.path.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the present state and attributes; as `ibv_query_qp`.
    ///
    /// # Errors
    /// [`Error::ShutDown`]; [`Error::Forked`].
    pub fn query(&self) -> Result<QpInfo, Error> {
        let engine = self.shard.engine()?;
        engine.endpoint().query_qp(self.number).ok_or(Error::ShutDown)
    }

    /// Posts requests to the receive queue in order; as `ibv_post_recv`.
    ///
    /// # Errors
    /// The first request that was refused, and why; those before it are posted.
    pub fn post_recv(&self, work: impl IntoIterator<Item = RecvWr>) -> Result<(), BadWr> {
        let posted = self.shard.post_receives(|engine, now| {
            work.into_iter().enumerate().try_for_each(|(index, work)| {
                engine::check_post(engine, now, VerbMoment::PostRecv, Some(self.number))
                    .map_err(WrError::from)
                    .and_then(|()| Ok(self.post_receive(engine, now, work)?))
                    .map_err(|source| BadWr { index, source })
            })
        });
        posted.unwrap_or(Err(BadWr { index: 0, source: WrError::Forked }))
    }

    /// Posts a receive to the queue pair's own queue.
    fn post_receive(
        &self,
        engine: &mut Engine,
        now: Instant,
        work: RecvWr,
    ) -> Result<(), PostError> {
        // A shared queue has places of its own, and takes no receive here.
        if self.srq().is_none() {
            self.places.check_receive(|| engine.endpoint().query_qp(self.number))?;
        }
        engine.endpoint_mut().post_recv(now, self.number, work)?;
        self.places.take_receive();
        Ok(())
    }
}

impl SendQueue for QueuePair {
    #[inline]
    fn queue_pair(&self) -> Qpn {
        self.number
    }

    #[inline]
    fn now(&self) -> Instant {
        self.shard.now()
    }

    #[inline]
    fn check_room(
        &self,
        ahead: u32,
        info: impl FnOnce() -> Option<QpInfo>,
    ) -> Result<(), PostError> {
        self.places.check_send(ahead, info)
    }

    #[inline]
    fn take_place(&self) {
        self.places.take_send();
    }
}

impl Drop for QueuePair {
    fn drop(&mut self) {
        // In a child after fork there is nothing to end.
        let forked = self.shard.end(|engine| {
            let had_groups = engine.endpoint().has_groups();
            let shared_receive = self.shared_receive_in_use(engine);
            engine.destroy_qp(self.number);
            if self.srq.is_some() || !self.places.is_empty() {
                self.queues.iter().for_each(|queue| queue.inner().retire_qp(self.number));
            }
            shared_receive.into_iter().for_each(SharedReceiveQueue::lose_receive);
            engine.consumer_mut().events.remove(EventSource::QueuePair(self.number));
            engine.consumer_mut().numbers.free(self.number);
            if self.number == Qpn::GSI || had_groups != engine.endpoint().has_groups() {
                // If the filter cannot be narrowed, the endpoint drops its packets.
                let _refused = engine::update_filters(engine);
            }
        });
        if forked.is_err() {
            return;
        }
        if self.number == Qpn::GSI {
            self.driver.give_general_services_back();
        }
        for queue in &self.queues {
            queue.inner().shards.remove(self.shard.number());
        }
        let path = self.path.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(path) = path {
            self.driver.release_path(path);
        }
    }
}
