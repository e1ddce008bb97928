//! The connection management of a device: its first shard has the agent, and queue pair 1.

use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use roce_cm::{Agent, AgentConfig, Change, Event, StrayDatagram};
use roce_engine::policy::{Cause, LOCK_HOLDER_SLEEP};
use roce_engine::{ManagementDestination, ManagementPort, PathEntry, RouteError};
use roce_transport::{ApiMisuse, Instant};
use roce_wire::{Gid, MacAddr, OuterHeaders, Qpn};

use super::Driver;
use super::monitor::ManagementQueries;
use super::shard::Shard;
use crate::cm_router::{ConnectionFile, DeviceNumber, Owner, Router};
use crate::engine::{self, Engine};
use crate::error::Error;
use crate::process::fork;
use crate::sockets::network_namespace;

/// Longest time that the outcome of [`Driver::reach`] is waited for; the kernel gives up before.
const MAX_REACH: Duration = Duration::from_secs(3600);

/// What the owner of an engine does for its agent.
struct Port {
    router: Arc<Mutex<Router>>,
    queries: ManagementQueries,
    /// Where connections are written down.
    file: Option<ConnectionFile>,
}

impl ManagementPort for Port {
    fn push_event(&mut self, event: Event) {
        lock(&self.router).push(event);
    }

    fn note_change(&mut self, change: Change) {
        if let Some(file) = &mut self.file {
            file.note(change);
        }
    }

    fn push_stray(&mut self, stray: StrayDatagram) -> bool {
        self.queries.decide(stray)
    }

    fn resolve(&mut self, destination: ManagementDestination) {
        self.queries.resolve(destination);
    }
}

fn lock(router: &Mutex<Router>) -> MutexGuard<'_, Router> {
    router.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Driver {
    /// Begins to manage connections, unless the device does already.
    ///
    /// # Errors
    /// [`ApiMisuse::QpExists`] if the program has a general services queue pair; [`Error::Forked`].
    pub(crate) fn manage_connections(self: &Arc<Self>) -> Result<(), Error> {
        self.check_alive()?;
        let mut management = self.management.lock().unwrap_or_else(PoisonError::into_inner);
        if management.is_some() {
            return Ok(());
        }
        if !self.take_general_services() {
            return Err(ApiMisuse::QpExists(Qpn::GSI).into());
        }
        let router = Arc::new(Mutex::new(Router::new(DeviceNumber(Arc::as_ptr(self) as usize))));
        let (its, queries) = (Arc::clone(&router), self.monitor.queries());
        if let Err(error) = self.open_queue_pair_1(Port { router: its, queries, file: None }) {
            self.give_general_services_back();
            return Err(error);
        }
        *management = Some(router);
        Ok(())
    }

    fn open_queue_pair_1(&self, mut port: Port) -> Result<(), Error> {
        let config = AgentConfig::new(guid_of(self.port().mac()), fork::random(), Vec::new());
        let config = self.device().config.connection_timing.apply_to(config);
        let mut engine = self.engine()?;
        let (allocated, id_prefix) = {
            let numbers = &mut engine.consumer_mut().numbers;
            let id_prefix = numbers.block()?;
            (numbers.alloc_general_services(), id_prefix)
        };
        allocated.ok_or(ApiMisuse::QpExists(Qpn::GSI))?;
        port.file = self.connection_file(id_prefix);
        let keeps_records = port.file.is_some();
        let agent = Agent::new(AgentConfig { id_prefix, keeps_records, ..config });
        let opened = engine
            .manage_connections(agent, Box::new(port))
            .map_err(Error::from)
            .and_then(|()| Ok(engine::update_filters(&mut engine)?));
        if let Err(error) = opened {
            engine.consumer_mut().numbers.free(Qpn::GSI);
            return Err(error);
        }
        engine::update_agent(&mut engine, self.port().connection_mtu());
        Ok(())
    }

    /// Creates the file for connections with these communication ids, if the configuration names one. Where the
    /// network namespace is unknown, as without /proc, another's process would seem dead: there is no file then.
    fn connection_file(&self, block: u16) -> Option<ConnectionFile> {
        let path = self.device().config.connection_file.as_deref()?;
        let owner = Owner {
            namespace: network_namespace::current()?,
            interface: self.port().index(),
            block,
        };
        let created = ConnectionFile::create(path, owner);
        // The device works without it.
        created.inspect_err(|error| tracing::info!(%error, "connections are not written down")).ok()
    }

    /// Does `work` with the agent and what routes its events, and then runs one round, so that datagrams
    /// due to `work` have left when this returns. `None` if the device manages no connections.
    ///
    /// # Errors
    /// [`Error::Forked`].
    pub(crate) fn with_agent<T>(
        &self,
        work: impl FnOnce(&mut Agent, &mut Router, Instant) -> T,
    ) -> Result<Option<T>, Error> {
        self.check_alive()?;
        let router = self.management.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let Some(router) = router else { return Ok(None) };
        Ok(self.first().with_agent(|agent, now| work(agent, &mut lock(&router), now)))
    }

    /// Ends all connections that connection management has made, for the end of the process, and drives the
    /// device until their peers are told. Waits at most until `deadline` for that and for the lock.
    pub(crate) fn end_connections(&self, deadline: std::time::Instant) {
        let shard = self.first();
        while shard.generation.is_current() {
            // Connections that have been ended stay so.
            if let Some(mut engine) = shard.engine.try_lock_engine()
                && shard.end_connections(&mut engine)
            {
                return;
            }
            if std::time::Instant::now() >= deadline {
                return;
            }
            std::thread::sleep(LOCK_HOLDER_SLEEP);
        }
    }

    /// Resolves the next hop of a path, and calls `done` with the outcome from the monitor thread, after
    /// `timeout` or at most some four seconds.
    pub(crate) fn reach(
        &self,
        local: IpAddr,
        remote: IpAddr,
        traffic_class: u8,
        timeout: Duration,
        done: impl FnOnce(Result<(), RouteError>) + Send + 'static,
    ) -> Result<(), Error> {
        self.check_alive()?;
        let outer = OuterHeaders { traffic_class, ..OuterHeaders::new(local, remote) };
        let mixed = |_| std::io::Error::from(std::io::ErrorKind::InvalidInput);
        let until = self.shards.common.now() + timeout.min(MAX_REACH);
        self.monitor.reach(PathEntry::new(outer).map_err(mixed)?, until, Box::new(done));
        Ok(())
    }
}

impl Shard {
    /// Ends all connections and runs a round. Returns true if nothing is left to be sent.
    fn end_connections(&self, engine: &mut Engine) -> bool {
        let now = self.now();
        engine.set_now(now);
        let time = engine.last_now();
        if let Some(agent) = engine.agent() {
            agent.destroy_all(time);
            engine.run(now, Cause::Call, None);
        }
        !engine.has_unsent_management()
    }

    /// Does `work` with the agent at a time, and then runs a round.
    fn with_agent<T>(&self, work: impl FnOnce(&mut Agent, Instant) -> T) -> Option<T> {
        let (mut engine, now) = self.lock_engine_now();
        engine.set_now(now);
        let time = engine.last_now();
        let result = work(engine.agent()?, time);
        // The program is not known to poll: the driver thread goes on as it does.
        engine.run(now, Cause::Call, None);
        Some(result)
    }
}

/// Returns the GUID of a device, by which peers tell devices apart: the EUI-64 of its MAC address.
fn guid_of(mac: MacAddr) -> u64 {
    let Gid([.., a, b, c, d, e, f, g, h]) = Gid::link_local_from(mac);
    u64::from_be_bytes([a, b, c, d, e, f, g, h])
}

/// The monitor's answers about paths of management datagrams.
impl super::shards::Shards {
    /// Stores the path to a destination of management datagrams, or that there is none.
    pub(super) fn set_management_path(
        &self,
        destination: ManagementDestination,
        entry: Option<PathEntry>,
    ) {
        let mut paths = self.paths();
        let handle = entry.map(|entry| paths.insert(entry));
        let unused = self.first().lock_engine().set_management_path(destination, handle);
        unused.into_iter().for_each(|handle| paths.release(handle));
    }
}
