//! The output of `NCCL_DEBUG`: the chosen path.

use std::fs::File;
use std::io::{self, Write};

use roce_collectives::Group;
use roce_verbs::{Backend, Device};

use super::nccl_env::{Level, NcclEnv};
use super::rank_assignment::RankAssignment;
use crate::error::{CliError, Result};

/// The log of a rank.
#[derive(Debug)]
pub(crate) struct Info {
    level: Level,
    lead: String,
    file: Option<File>,
}

impl Info {
    /// Creates the log of one rank, with its file if requested.
    pub(crate) fn new(nccl_env: &NcclEnv, rank: u32) -> Result<Self> {
        let (host, pid) = (host_name(), std::process::id());
        let file = match nccl_env.debug_file.as_deref().filter(|_| nccl_env.debug > Level::Silent) {
            Some(template) => {
                let path = template.replace("%h", &host).replace("%p", &pid.to_string());
                let file = File::create(&path);
                Some(file.map_err(|error| CliError::context(format!("writing {path}"), error))?)
            }
            None => None,
        };
        let lead = format!("{host}:{pid}:{} [{rank}] ROCE", nix::unistd::gettid());
        Ok(Self { level: nccl_env.debug, lead, file })
    }

    /// Logs a warning at any level.
    pub(crate) fn warn(&self, text: &str) {
        self.write(&format!("{} WARN {text}", self.lead));
    }

    /// Logs the version, except at level silent.
    pub(crate) fn version(&self) {
        if self.level >= Level::Version {
            self.write(&format!("roce version {}", env!("CARGO_PKG_VERSION")));
        }
    }

    fn info(&self, text: &str) {
        if self.level >= Level::Info {
            self.write(&format!("{} INFO {text}", self.lead));
        }
    }

    fn write(&self, line: &str) {
        // In one write: several ranks may share a terminal.
        let line = format!("{line}\n");
        // Errors are ignored: standard error may be closed.
        let _ = match &self.file {
            Some(file) => (&*file).write_all(line.as_bytes()),
            None => io::stderr().write_all(line.as_bytes()),
        };
    }

    /// Logs the configuration before joining.
    pub(crate) fn before(&self, assignment: &RankAssignment, interfaces: &[String], why: &str) {
        self.info(&format!(
            "rank {} of {}, set by {}; rank 0 listens on {}",
            assignment.rank, assignment.size, assignment.source, assignment.root
        ));
        self.info(&format!("interfaces: {} ({why})", interfaces.join(", ")));
        let variables = std::env::vars_os().map(|(name, value)| {
            (name.to_string_lossy().into_owned(), value.to_string_lossy().into_owned())
        });
        for (name, value) in variables.filter(|(name, _)| name.starts_with("NCCL_")) {
            self.info(&format!("{name} is set to {value}"));
        }
    }

    /// Logs the configuration after joining.
    pub(crate) fn after(&self, group: &Group, gid_index: Option<u8>, qps: u32) {
        if self.level < Level::Info {
            return;
        }
        let geometry = group.geometry();
        let config = geometry.config();
        for device in group.devices() {
            self.info(&format!("rail {}", describe(device, gid_index)));
        }
        let rails = group.interfaces().len().max(1);
        let spread = if config.split { "every piece over all" } else { "pieces in turn" };
        self.info(&format!(
            "lanes: {} to each neighbour ({rails} interface(s) x {qps} queue pair(s)), {spread}",
            config.lanes
        ));
        let size = group.size();
        let ring: Vec<String> = (0..size.min(16)).map(|rank| rank.to_string()).collect();
        let more = if size > 16 { " -> ..." } else { "" };
        self.info(&format!(
            "algorithm Ring, protocol Simple: {}{more} -> 0; neighbours {} and {}",
            ring.join(" -> "),
            geometry.previous(),
            geometry.next()
        ));
        self.info(&format!(
            "small-message algorithm up to {} bytes, above in chunks and pieces of up to {} bytes; \
             {} slots per lane, {} bytes registered",
            config.small_message_max,
            config.slot_bytes,
            config.slots,
            group.registered_bytes()
        ));
    }
}

/// Returns the description of an interface in the list of devices and the log.
pub(crate) fn describe(device: &Device, gid_index: Option<u8>) -> String {
    let name = device.interface();
    let index = gid_index.or_else(|| device.default_gid_index().ok().flatten());
    let table = device.gid_table().unwrap_or_default();
    let gid = table.iter().find(|row| Some(row.index) == index);
    let gid = gid.map_or("?".to_owned(), |row| format!("{} {}", row.index, row.gid));
    let mtu = device.port().ok().and_then(|port| port.active_mtu);
    let mtu = mtu.map_or("?".to_owned(), |mtu| mtu.bytes().to_string());
    let backend = match device.backend() {
        Backend::AfPacket => String::new(),
        other => format!(" by {other}"),
    };
    format!("[{name}] GID {gid} MTU {mtu}{backend}")
}

/// Returns this host's name.
pub(crate) fn host_name() -> String {
    let name = nix::unistd::gethostname().unwrap_or_default();
    name.to_string_lossy().split('.').next().unwrap_or_default().to_owned()
}
