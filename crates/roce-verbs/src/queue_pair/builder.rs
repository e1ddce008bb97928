//! The builder of queue pairs.

use std::sync::{Arc, Mutex};

use roce_faults::VerbMoment;
use roce_transport::{ApiMisuse, EventSource, PdHandle, QpCap, QpInit, Service};
use roce_wire::{Psn, Qpn};

use super::QueuePair;
use crate::completion_queue::CompletionQueue;
use crate::driver::{Driver, QueuePairRunCell};
use crate::engine;
use crate::error::Error;
use crate::events::EventQueue;
use crate::first_psn::FirstPsn;
use crate::places::QueuePairPlaces;
use crate::protection_domain::ProtectionDomain;
use crate::shared_receive_queue::SharedReceiveQueue;

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
    events: Arc<EventQueue>,
    pd: PdHandle,
    queues: [CompletionQueue; 2],
    capacities: QpCap,
    signal_all: bool,
    service: Service,
    is_general_services: bool,
    srq: Option<SharedReceiveQueue>,
    first_psn: Option<Psn>,
}

impl ProtectionDomain {
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
}

impl QueuePairBuilder {
    fn new(
        driver: Arc<Driver>,
        events: Arc<EventQueue>,
        pd: PdHandle,
        send_cq: &CompletionQueue,
        recv_cq: &CompletionQueue,
    ) -> Self {
        Self {
            driver,
            events,
            pd,
            queues: [send_cq.clone(), recv_cq.clone()],
            capacities: QpCap::default(),
            signal_all: false,
            service: Service::Rc,
            is_general_services: false,
            srq: None,
            first_psn: None,
        }
    }

    /// Sets the service: [`Service::Rc`] (the default), [`Service::Uc`] or [`Service::Ud`].
    pub fn service(mut self, service: Service) -> Self {
        self.service = service;
        self
    }

    /// Makes it the general services queue pair of the device: of service UD and of number 1
    /// ([`Qpn::GSI`]), for management datagrams.
    ///
    /// Packets to number 1 are dropped by the packet filter while no such queue pair exists. Its Q_Key
    /// is [`GSI_Q_KEY`](crate::GSI_Q_KEY), whatever is asked for, and its datagrams have at most 256
    /// bytes. A process has at most one for each interface; each process of the host may have one, and
    /// each of these receives every datagram.
    ///
    /// ```no_run
    /// use roce_verbs::{Device, DeviceConfig, GSI_Q_KEY, Qpn};
    ///
    /// # fn main() -> Result<(), roce_verbs::Error> {
    /// let device = Device::open("eth0", DeviceConfig::default())?;
    /// let pd = device.alloc_pd()?;
    /// let cq = device.create_cq(64, None)?;
    /// let qp = pd.queue_pair(&cq, &cq).general_services().build()?;
    /// qp.ready_for_datagrams(GSI_Q_KEY)?;
    /// assert_eq!(qp.number(), Qpn::GSI);
    /// # Ok(())
    /// # }
    /// ```
    pub fn general_services(mut self) -> Self {
        self.service = Service::Ud;
        self.is_general_services = true;
        self
    }

    /// Sets a shared queue from which receives are taken. The queue pair keeps it alive, and has no
    /// receive queue of its own: `max_recv_wr` and `max_recv_sge` do not count.
    pub fn srq(mut self, srq: &SharedReceiveQueue) -> Self {
        self.srq = Some(srq.clone());
        self
    }

    /// Sets the most send requests that are outstanding, as
    /// [`DeviceConfig::queue_rule`](crate::DeviceConfig::queue_rule) counts them. Default: see [`QpCap`].
    pub fn max_send_wr(mut self, max: u32) -> Self {
        self.capacities.max_send_wr = max;
        self
    }

    /// Sets the most receive requests that are outstanding, as
    /// [`DeviceConfig::queue_rule`](crate::DeviceConfig::queue_rule) counts them.
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
    /// [`Error::Misuse`] where a capacity is too large, no queue pair has the service, or the
    /// general services queue pair exists or is asked for with another service than UD;
    /// [`Error::OtherDevice`] where a completion queue or the shared receive queue belongs to another
    /// device;
    /// [`Error::OutOfMemory`]; [`Error::System`] when there is no free queue pair number; [`Error::Forked`].
    pub fn build(self) -> Result<QueuePair, Error> {
        let [send_cq, recv_cq] = &self.queues;
        let is_ours = self.queues.iter().all(|queue| queue.belongs_to(&self.driver))
            && self.srq.as_ref().is_none_or(|srq| srq.belongs_to(&self.driver));
        if !is_ours {
            return Err(Error::OtherDevice);
        }
        self.driver.check_verb(VerbMoment::CreateQp)?;
        // As the shared receive queue is part of an engine, its queue pairs are in the same.
        let shard = match &self.srq {
            Some(srq) => srq.shard(),
            None => self.driver.shard(send_cq.inner().shards.home()),
        };
        let shard = Arc::clone(shard);
        self.driver.prepare_for_traffic(&shard);
        let places = QueuePairPlaces::new(&self.driver, &self.capacities)?;
        let number = {
            let mut engine = shard.engine()?;
            if self.events.is_shut_down() {
                return Err(Error::ShutDown);
            }
            let allocated = match self.is_general_services {
                true if self.service != Service::Ud => {
                    return Err(ApiMisuse::ServiceNotSupported(self.service).into());
                }
                true if !self.driver.take_general_services() => {
                    return Err(ApiMisuse::QpExists(Qpn::GSI).into());
                }
                true => {
                    let allocated = engine.consumer_mut().numbers.alloc_general_services();
                    allocated.ok_or(ApiMisuse::QpExists(Qpn::GSI))?
                }
                false => engine.consumer_mut().numbers.alloc()?,
            };
            let init = QpInit {
                pd: self.pd,
                send_cq: send_cq.handle(),
                recv_cq: recv_cq.handle(),
                cap: self.capacities,
                signal_all: self.signal_all,
                service: self.service,
                srq: self.srq.as_ref().map(SharedReceiveQueue::handle_in_shard),
                numbers: places.numbers(self.srq.as_ref().map(SharedReceiveQueue::number)),
            };
            let made = engine.endpoint_mut().create_qp(allocated.qpn, init).map_err(Error::from);
            let filtered = match allocated.is_filtered {
                true => engine::update_filters(&mut engine).map_err(Error::from),
                false => Ok(()),
            };
            if let Err(error) = made.and(filtered) {
                engine.endpoint_mut().destroy_qp(allocated.qpn);
                engine.consumer_mut().numbers.free(allocated.qpn);
                if allocated.qpn == Qpn::GSI {
                    self.driver.give_general_services_back();
                }
                return Err(error);
            }
            if let Some(faults) = &engine.consumer().verb_faults {
                faults.note_queue_pair(allocated.qpn);
            }
            engine.consumer_mut().events.add(EventSource::QueuePair(allocated.qpn), self.events);
            for queue in &self.queues {
                engine.consumer_mut().add_queue(queue.handle(), queue.inner());
            }
            allocated.qpn
        };
        for queue in &self.queues {
            self.driver.add_user(queue.inner(), shard.number());
        }
        Ok(QueuePair {
            driver: self.driver,
            shard,
            number,
            first_psn: Mutex::new(FirstPsn::new(self.first_psn)),
            service: self.service,
            pd: self.pd,
            queues: self.queues,
            places,
            srq: self.srq,
            path: Mutex::default(),
            run: QueuePairRunCell::default(),
            memberships: Mutex::default(),
        })
    }
}
