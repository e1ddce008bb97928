//! Connections of processes that have died.

use std::fs;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use roce_cm::ConnectionRecord;
use roce_io::{interfaces, process::Own, sockets::bind_abstract};

use crate::cm_router::{Error, read_owner, read_records};
use crate::device::Device;
use crate::device_config::DeviceConfig;
use crate::qpn_allocator::block_name;
use crate::sockets::network_namespace;

/// Most files that one look reads.
const MAX_FILES: usize = 4096;
/// Longest time in which a peer is told of an end.
const MAX_TIME: Duration = Duration::from_secs(3);
/// Times that a message without answer is sent, and the time between them.
const TELLINGS: u32 = 3;
const TELLING_INTERVAL: Duration = Duration::from_millis(250);
/// Time for the answer to what the process itself has sent, and for a datagram to leave.
const SHORT_TIME: Duration = Duration::from_millis(100);
/// Time between two looks in [`Orphans::finish`].
const FINISH_INTERVAL: Duration = Duration::from_millis(5);

/// Ends the connections of processes that have died, as the kernel does for a process: their peers are
/// told.
///
/// A process writes down its connections if its [configuration](DeviceConfig::connection_file) says so.
/// As long as it lives, it holds the name of its communication ids. A [look](Self::look) finds the files
/// whose name is free, takes the name, and sends DREQ to the peers of established connections until they
/// answer, and REJ to those of half-open ones, for three seconds at most. While there is nothing to
/// tell, no device is open.
///
/// A child after `fork` holds the name as its parent does. Where a process dies whose child lives on
/// without `exec`, nothing is told before that ends, too.
///
/// ```
/// use roce_verbs::DeviceConfig;
/// use roce_verbs::cm::Orphans;
///
/// let mut orphans = Orphans::new("/tmp/no-such-folder".into(), DeviceConfig::default());
/// orphans.look();
/// assert!(orphans.is_done());
/// ```
#[derive(Debug)]
pub struct Orphans {
    folder: PathBuf,
    config: DeviceConfig,
    exchanges: Vec<Exchange>,
}

/// The connections of one process on one device.
#[derive(Debug)]
struct Exchange {
    device: Device,
    records: Vec<ConnectionRecord>,
    begun: Instant,
    tellings: u32,
    /// The name of the communication ids: none is used again meanwhile.
    _name: Own<UnixDatagram>,
}

impl Orphans {
    /// Returns what looks at the files of a folder. Devices are opened with a configuration when they are
    /// needed.
    pub fn new(folder: PathBuf, config: DeviceConfig) -> Self {
        let config = DeviceConfig { connection_file: None, ..config };
        Self { folder, config, exchanges: Vec::new() }
    }

    /// Finds processes that have died, and goes on with the ends of their connections. The process calls it
    /// some four times a second. It blocks while a device is opened, some 30 ms.
    pub fn look(&mut self) {
        for path in files(&self.folder) {
            match self.begin(&path) {
                Ok(exchange) => self.exchanges.extend(exchange),
                // Without a device there is no way to tell anything.
                Err(error) => tracing::info!(%error, "peers of a process that died are not told"),
            }
        }
        self.exchanges.iter_mut().for_each(Exchange::go_on);
        self.exchanges
            .retain(|exchange| exchange.begun.elapsed() < MAX_TIME && exchange.is_going_on());
    }

    /// Returns true if nothing is left to be told.
    pub fn is_done(&self) -> bool {
        self.exchanges.is_empty()
    }

    /// Looks a last time, and until all that was found is told: three seconds at most.
    ///
    /// Where the process itself has sent DREQ, this repeats it once, and waits for no answer: the peer may
    /// have answered, and ended.
    pub fn finish(mut self) {
        let deadline = Instant::now() + MAX_TIME;
        loop {
            self.look();
            self.exchanges.retain(Exchange::is_waited_for);
            if self.is_done() || Instant::now() >= deadline {
                return;
            }
            thread::sleep(FINISH_INTERVAL);
        }
    }

    /// Begins to end the connections in a file if its process has died.
    fn begin(&self, path: &Path) -> Result<Option<Exchange>, Error> {
        let Ok(Some(owner)) = read_owner(path) else { return Ok(None) };
        // The names of another network namespace are not seen here.
        if network_namespace::current() != Some(owner.namespace) {
            return Ok(None);
        }
        let Ok(name) = bind_abstract(&block_name(owner.block)) else { return Ok(None) };
        let records = read_records(path)?;
        fs::remove_file(path)?;
        if records.is_empty() {
            return Ok(None);
        }
        let found = interfaces()?.into_iter().find(|it| it.index == owner.interface);
        let Some(found) = found else { return Ok(None) };
        let device = Device::open(&found.name, self.config.clone())?;
        device.driver().manage_connections()?;
        let begun = Instant::now();
        let exchange = Exchange { device, records, begun, tellings: 0, _name: name };
        tracing::debug!(
            connections = exchange.records.len(),
            "the peers of a process that died are told"
        );
        Ok(Some(exchange))
    }
}

/// Returns the files of a folder, as many as one look reads.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.take(MAX_FILES).map(|entry| entry.path()).collect()
}

impl Exchange {
    /// Sends what is due. The device repeats DREQ by itself.
    fn go_on(&mut self) {
        let is_due = self.begun.elapsed() >= self.tellings * TELLING_INTERVAL;
        if self.tellings >= TELLINGS || !is_due {
            return;
        }
        self.tellings += 1;
        let told = self.device.with_agent(|agent, _, now| {
            self.records.iter().for_each(|record| agent.end_orphan(now, record));
            Ok(())
        });
        if let Err(error) = told {
            tracing::info!(%error, "peers of a process that died are not told");
        }
    }

    /// Returns the connections whose peers have not answered a DREQ.
    fn unanswered(&self) -> Vec<&ConnectionRecord> {
        let left = self.device.with_agent(|agent, _, _| {
            Ok(self.records.iter().filter(|it| agent.is_disconnecting(it.id())).collect())
        });
        left.unwrap_or_default()
    }

    /// Returns true until all messages without answer were sent as often as they are.
    fn is_telling(&self) -> bool {
        let has_half_open = self.records.iter().any(ConnectionRecord::is_half_open);
        let time = (TELLINGS - 1) * TELLING_INTERVAL + SHORT_TIME;
        self.tellings == 0 || has_half_open && self.begun.elapsed() < time
    }

    fn is_going_on(&self) -> bool {
        self.is_telling() || !self.unanswered().is_empty()
    }

    /// Returns true if the end of this process waits for the exchange.
    fn is_waited_for(&self) -> bool {
        let is_fresh = self.begun.elapsed() < SHORT_TIME;
        let mut unanswered = self.unanswered().into_iter();
        self.is_telling() || unanswered.any(|record| is_fresh || !record.is_disconnecting())
    }
}
