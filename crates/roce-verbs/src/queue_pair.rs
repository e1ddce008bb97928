//! Queue pairs.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use roce_transport::{
    PathHandle, PdHandle, QpAttributes, QpCap, QpInfo, QpInit, QpState, RecvWr, SendWr, Service,
};
use roce_wire::{Psn, Qpn};

use crate::completion_queue::CompletionQueue;
use crate::doorbell::Posted;
use crate::driver::{Driver, QueuePairRunCell};
use crate::engine::Engine;
use crate::error::{BadWr, Error, WrError};
use crate::first_psn::FirstPsn;
use crate::path::Path;

/// One end of a reliable connection; as `ibv_qp`.
///
/// Made by [`ProtectionDomain::queue_pair`](crate::ProtectionDomain::queue_pair), in
/// state RESET. [`connect`](Self::connect) takes the common way to RTS;
/// [`modify`](Self::modify) takes any. Destroyed when dropped: work that was not
/// completed then never completes.
#[derive(Debug)]
pub struct QueuePair {
    pub(crate) driver: Arc<Driver>,
    number: Qpn,
    first_psn: Mutex<FirstPsn>,
    queues: [CompletionQueue; 2],
    /// The path in use, of which this is a user. Locked under the engine's lock.
    path: Mutex<Option<PathHandle>>,
    /// Posts of the present run; see [`DoorbellCoalescing`](crate::doorbell::DoorbellCoalescing).
    run: QueuePairRunCell,
}

/// A builder of a queue pair; every parameter has a default.
///
/// ```no_run
/// # use roce_verbs::{Device, DeviceConfig, Error};
/// # fn main() -> Result<(), Error> {
/// # let device = Device::open("eth0", DeviceConfig::default())?;
/// # let pd = device.alloc_pd()?;
/// let cq = device.create_cq(256, None)?;
/// let qp = pd.queue_pair(&cq, &cq).max_send_wr(128).max_recv_wr(128).build()?;
/// println!("queue pair {:?} starts at {:?}", qp.number(), qp.first_psn());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until `build`"]
pub struct QueuePairBuilder {
    driver: Arc<Driver>,
    pd: PdHandle,
    queues: [CompletionQueue; 2],
    capacities: QpCap,
    signal_all: bool,
    first_psn: Option<Psn>,
}

impl QueuePairBuilder {
    pub(crate) fn new(
        driver: Arc<Driver>,
        pd: PdHandle,
        send_cq: &CompletionQueue,
        recv_cq: &CompletionQueue,
    ) -> Self {
        Self {
            driver,
            pd,
            queues: [send_cq.clone(), recv_cq.clone()],
            capacities: QpCap::default(),
            signal_all: false,
            first_psn: None,
        }
    }

    /// Sets the most outstanding send requests. Default: see [`QpCap`].
    pub fn max_send_wr(mut self, max: u32) -> Self {
        self.capacities.max_send_wr = max;
        self
    }

    /// Sets the most posted receive requests.
    pub fn max_recv_wr(mut self, max: u32) -> Self {
        self.capacities.max_recv_wr = max;
        self
    }

    /// Pieces that a send request may gather from, 1..=32.
    pub fn max_send_sge(mut self, max: u32) -> Self {
        self.capacities.max_send_sge = max;
        self
    }

    /// Pieces that a receive request may scatter to, 1..=32.
    pub fn max_recv_sge(mut self, max: u32) -> Self {
        self.capacities.max_recv_sge = max;
        self
    }

    /// Sets the most bytes of inline data of a request.
    pub fn max_inline(mut self, max: u32) -> Self {
        self.capacities.max_inline = max;
        self
    }

    /// Sets whether every send request is signalled; as `sq_sig_all`.
    pub fn signal_all(mut self, yes: bool) -> Self {
        self.signal_all = yes;
        self
    }

    /// Sets the PSN of the first request of the first connection. Default: random, so that packets in
    /// flight to an earlier queue pair of this number are not accepted.
    ///
    /// When the queue pair connects again after that, it starts at a random PSN in any case: at
    /// the same one, packets of the connection before would be taken for new. To choose it
    /// nevertheless, pass `sq_psn` to [`modify`](QueuePair::modify).
    pub fn first_psn(mut self, psn: Psn) -> Self {
        self.first_psn = Some(psn);
        self
    }

    /// Creates the queue pair, in state RESET.
    ///
    /// # Errors
    /// [`Error::Misuse`] where a capacity is too large;
    /// [`Error::OtherDevice`] where a completion queue belongs to another device;
    /// [`Error::System`] when there is no free queue pair number; [`Error::Forked`].
    pub fn build(self) -> Result<QueuePair, Error> {
        let [send_cq, recv_cq] = &self.queues;
        if !self.queues.iter().all(|queue| queue.belongs_to(&self.driver)) {
            return Err(Error::OtherDevice);
        }
        let number = {
            let mut engine = self.driver.engine()?;
            let allocated = engine.qpns.alloc()?;
            let init = QpInit {
                pd: self.pd,
                send_cq: send_cq.handle(),
                recv_cq: recv_cq.handle(),
                cap: self.capacities,
                signal_all: self.signal_all,
                service: Service::Rc,
                srq: None,
            };
            let made = engine.endpoint.create_qp(allocated.qpn, init).map_err(Error::from);
            let filtered = match allocated.new_block {
                true => engine.update_filters().map_err(Error::from),
                false => Ok(()),
            };
            if let Err(error) = made.and(filtered) {
                engine.endpoint.destroy_qp(allocated.qpn);
                engine.qpns.free(allocated.qpn);
                return Err(error);
            }
            allocated.qpn
        };
        let first_psn = Mutex::new(FirstPsn::new(self.first_psn));
        let path = Mutex::new(None);
        let run = QueuePairRunCell::default();
        Ok(QueuePair { driver: self.driver, number, first_psn, queues: self.queues, path, run })
    }
}

impl QueuePair {
    /// Returns the queue pair number, to which peers address packets.
    pub fn number(&self) -> Qpn {
        self.number
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
        self.driver.with_engine(|engine, now| {
            if attributes.path.is_some_and(|path| !engine.paths.contains(&path)) {
                return Err(Error::NoSuchPath);
            }
            engine.endpoint.modify_qp(now, self.number, attributes)?;
            if let Some(psn) = attributes.sq_psn {
                self.lock_first_psn().set_used(psn);
            }
            if let Some(path) = attributes.path {
                engine.paths.retain(path.handle);
                self.replace_path(engine, path.handle);
            }
            Ok(())
        })??;
        if attributes.state == Some(QpState::Reset) {
            self.queues.iter().for_each(|queue| queue.inner().remove_qp(self.number));
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

    /// Replaces the path in use, and releases the one before.
    fn replace_path(&self, engine: &mut Engine, path: PathHandle) {
        let mut held = self.path.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(before) = held.replace(path) {
            engine.paths.release(before);
        }
    }

    /// Returns the present state and attributes; as `ibv_query_qp`.
    ///
    /// # Errors
    /// [`Error::Forked`].
    pub fn query(&self) -> Result<QpInfo, Error> {
        let engine = self.driver.engine()?;
        Ok(engine.endpoint.query_qp(self.number).expect("the queue pair lives as long as self"))
    }

    /// Posts requests to the send queue in order; as `ibv_post_send`.
    ///
    /// Packets that can leave have left when this returns, with one exception. A caller that posts again
    /// and again, less than a microsecond after the last call returned and without polling, would
    /// pay for a frame with each call. After eight such posts to a queue pair, or fewer once polls
    /// have followed promptly, requests wait for the next post: at most 64 of them, or 60 KiB.
    /// They leave with the next post that comes later than that, whenever the program polls any
    /// completion queue of the device, arms one, waits, modifies or drops a queue pair, and
    /// otherwise by the driver thread: within 200 µs of the last post, or 1 ms after a burst of
    /// more than 16 384 posts, as far as the system lets the thread run. The first requests of a
    /// burst, and those of a queue pair that has no unacknowledged packets, never wait.
    ///
    /// # Errors
    /// The first request that was refused, and why; those before it are posted.
    pub fn post_send(&self, work: impl IntoIterator<Item = SendWr>) -> Result<(), BadWr> {
        // By reference and in a loop, to move the requests fewer times.
        let mut work = work.into_iter().enumerate();
        let posted = self.driver.post_send(&self.run, |engine, now| {
            engine.on_send();
            let (mut requests, mut bytes, mut result) = (0, 0, Ok(()));
            for (index, work) in work.by_ref() {
                let len = work.data.len();
                if let Err(refused) = engine.endpoint.post_send(now, self.number, work) {
                    result = Err(BadWr { index, source: refused.into() });
                    break;
                }
                requests += 1;
                bytes += len;
            }
            let is_outstanding = engine.endpoint.has_outstanding(self.number);
            (result, Posted { queue_pair: self.number, requests, bytes, is_outstanding })
        });
        posted.unwrap_or(Err(BadWr { index: 0, source: WrError::Forked }))
    }

    /// Posts requests to the receive queue in order; as `ibv_post_recv`.
    ///
    /// # Errors
    /// The first request that was refused, and why; those before it are posted.
    pub fn post_recv(&self, work: impl IntoIterator<Item = RecvWr>) -> Result<(), BadWr> {
        let posted = self.driver.post_receives(|engine, now| {
            work.into_iter().enumerate().try_for_each(|(index, work)| {
                engine
                    .endpoint
                    .post_recv(now, self.number, work)
                    .map_err(|refused| BadWr { index, source: refused.into() })
            })
        });
        posted.unwrap_or(Err(BadWr { index: 0, source: WrError::Forked }))
    }
}

impl Drop for QueuePair {
    fn drop(&mut self) {
        // In a child after fork there is nothing to end.
        let _forked = self.driver.end(|engine| {
            engine.endpoint.destroy_qp(self.number);
            engine.qpns.free(self.number);
        });
        let path = self.path.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(path) = path {
            self.driver.release_path(path);
        }
    }
}
