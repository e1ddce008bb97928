//! Variables of the environment that configure the devices of a verbs program.
//!
//! A program may clear its environment before it opens a device. So a library that is loaded into programs
//! [keeps](keep) the variables as they are then.

use std::collections::BTreeMap;
use std::env;
use std::ffi::{OsStr, OsString};
use std::io;
use std::path::Path;
use std::sync::OnceLock;

use roce_io::OtherIdentifications;

use crate::backend::Backend;
use crate::connection_timing::Timing;
use crate::device_config::{PeersInRun, QueueRule};
use crate::run::run_plan::RunPlan;
use crate::shard_set::MAX_SHARDS;

/// The variables of this library when it was loaded.
static KEPT: OnceLock<BTreeMap<OsString, OsString>> = OnceLock::new();

/// Keeps the variables of this library, all of which begin with `ROCE_`, and the [plan](run_plan) as they are now,
/// whatever the program does with its environment afterwards. One that is not set now may be set later. Meant for the
/// constructor of a shared library, before any thread exists; later calls do nothing.
pub fn keep() {
    KEPT.get_or_init(|| {
        let is_ours = |(name, _): &(OsString, _)| name.as_encoded_bytes().starts_with(b"ROCE_");
        env::vars_os().filter(is_ours).collect()
    });
    // The folder may be hidden later, as by `chroot`. What is wrong is told when a device is opened.
    let _kept = run_plan();
}

/// Returns the value of a variable as it was [kept](keep), or else as it is now.
pub fn var_os(name: &str) -> Option<OsString> {
    let kept = KEPT.get().and_then(|kept| kept.get(OsStr::new(name)).cloned());
    kept.or_else(|| env::var_os(name))
}

/// As [`var_os`], for a value that is text; `None` for any other.
pub fn var(name: &str) -> Option<String> {
    var_os(name)?.into_string().ok()
}

/// Names of devices and their interfaces, parsed by [`DeviceNames`](crate::DeviceNames).
pub const DEVICES: &str = "ROCE_DEVICES";

/// Faults that every device injects, parsed by [`FaultConfig`](crate::FaultConfig).
pub const FAULTS: &str = "ROCE_FAULTS";

/// Longest value of a variable in bytes. The kernel's limit for one is 128 KiB.
const MAX_VALUE_LEN: usize = 100 << 10;

/// Returns the value of [`FAULTS`] for a text. One that is too long is written to a file, and the value is `@` with
/// its path.
///
/// # Errors
/// Those of writing the file.
pub fn faults_value(text: String, file: &Path) -> io::Result<OsString> {
    if text.len() <= MAX_VALUE_LEN {
        return Ok(text.into());
    }
    std::fs::write(file, text)?;
    let mut value = OsString::from("@");
    value.push(file);
    Ok(value)
}

/// Returns the text that the variable [`FAULTS`] stands for; `None` if it is not set.
///
/// # Errors
/// Which file cannot be read.
pub fn faults() -> Result<Option<String>, String> {
    let Some(value) = var(FAULTS) else { return Ok(None) };
    let Some(file) = value.strip_prefix('@') else { return Ok(Some(value)) };
    let text = std::fs::read_to_string(file);
    text.map(Some).map_err(|error| format!("{FAULTS}: {file}: {error}"))
}

/// Peers that inject the same faults and record in the same capture: `none`, `host` or `all`, for
/// [`PeersInRun`].
pub const PEERS: &str = "ROCE_PEERS";

/// Returns true if a variable is set to `1`.
pub fn is_on(variable: &str) -> bool {
    var_os(variable).is_some_and(|value| value == "1")
}

/// Returns what the variable [`PEERS`] says; none if it is not set.
///
/// # Errors
/// What is wrong with its value.
pub fn peers() -> Result<PeersInRun, String> {
    match var(PEERS).as_deref() {
        None | Some("none") => Ok(PeersInRun::None),
        Some("host") => Ok(PeersInRun::ThisHost),
        Some("all") => Ok(PeersInRun::All),
        Some(other) => Err(format!("{PEERS}: {other:?} is not none, host or all")),
    }
}

/// Congestion control of every device, parsed by [`CongestionConfig`](crate::CongestionConfig).
pub const CC: &str = "ROCE_CC";

/// Rate of the links of all devices in bits per second: the value of
/// [`DeviceConfig::link_rate`](crate::DeviceConfig::link_rate).
pub const LINK_RATE: &str = "ROCE_LINK_RATE";

/// How every device sends and receives packets, parsed by [`Backend`].
pub const BACKEND: &str = "ROCE_BACKEND";

/// Returns what the variable [`BACKEND`] says; [`Backend::Auto`] if it is not set.
///
/// # Errors
/// What is wrong with its value.
pub fn backend() -> Result<Backend, String> {
    match var_os(BACKEND) {
        None => Ok(Backend::Auto),
        Some(value) => {
            value.to_string_lossy().parse().map_err(|error| format!("{BACKEND}: {error}"))
        }
    }
}

/// Set to `1`, UDP sockets drop IPv4 packets of unexpected identifications: the value of
/// [`DeviceConfig::other_identifications`](crate::DeviceConfig::other_identifications).
pub const STRICT_ICRC: &str = "ROCE_STRICT_ICRC";

/// Returns what the variable [`STRICT_ICRC`] says.
pub fn other_identifications() -> OtherIdentifications {
    match is_on(STRICT_ICRC) {
        true => OtherIdentifications::Refuse,
        false => OtherIdentifications::Accept,
    }
}

/// Set to `1`, packet sockets leave UDP port 4791 to any user that has it: the value of
/// [`DeviceConfig::trusts_port_holder`](crate::DeviceConfig::trusts_port_holder).
pub const SHARE_PORT: &str = "ROCE_SHARE_PORT";

/// Returns what the variable [`SHARE_PORT`] says.
pub fn trusts_port_holder() -> bool {
    is_on(SHARE_PORT)
}

/// Most shards of every device: the value of [`DeviceConfig::shards`](crate::DeviceConfig::shards).
pub const SHARDS: &str = "ROCE_SHARDS";

/// Returns what the variable [`SHARDS`] says; 1 if it is not set.
///
/// # Errors
/// What is wrong with its value.
pub fn shards() -> Result<usize, String> {
    let Some(value) = var_os(SHARDS) else { return Ok(1) };
    let number = value.to_str().and_then(|text| text.parse().ok());
    number.filter(|number| (1..=MAX_SHARDS).contains(number)).ok_or_else(|| {
        format!("{SHARDS}: {value:?} is not a number of shards; set it to 1 to {MAX_SHARDS}, or unset it")
    })
}

/// Until when posted requests take places in work queues: `rxe` is [`QueueRule::Done`], `polled`
/// [`QueueRule::Polled`].
pub const QUEUES: &str = "ROCE_QUEUES";

/// Returns what the variable [`QUEUES`] says: the value of
/// [`DeviceConfig::queue_rule`](crate::DeviceConfig::queue_rule).
///
/// # Errors
/// What is wrong with its value.
pub fn queue_rule() -> Result<QueueRule, String> {
    match var_os(QUEUES) {
        None => Ok(QueueRule::Polled),
        Some(value) if value == "polled" => Ok(QueueRule::Polled),
        Some(value) if value == "rxe" => Ok(QueueRule::Done),
        Some(value) => {
            Err(format!("{QUEUES}: {value:?} is no rule; set it to rxe or polled, or unset it"))
        }
    }
}

/// Set to `memfd`, memory files may be registered as DMA buffers.
pub const DMABUF: &str = "ROCE_DMABUF";

/// Returns true if the variable [`DMABUF`] lets programs register memory files (memfd) by `ibv_reg_dmabuf_mr`, which
/// the kernel refuses: a machine without a DMA buffer has no other descriptor to test a program with.
///
/// # Errors
/// What is wrong with its value.
pub fn registers_memfd() -> Result<bool, String> {
    match var_os(DMABUF) {
        None => Ok(false),
        Some(value) if value == "memfd" => Ok(true),
        Some(value) => {
            Err(format!("{DMABUF}: {value:?} is not memfd; set it to that, or unset it"))
        }
    }
}

/// How long connection management waits for peers, parsed by [`Timing`].
pub const CM: &str = "ROCE_CM";

/// Returns what the variable [`CM`] says: the value of
/// [`DeviceConfig::connection_timing`](crate::DeviceConfig::connection_timing), as rdma_cm has it if the variable
/// is not set.
///
/// # Errors
/// What is wrong with its value.
pub fn connection_timing() -> Result<Timing, String> {
    match var_os(CM) {
        None => Ok(Timing::default()),
        Some(value) => value.to_string_lossy().parse().map_err(|error| format!("{CM}: {error}")),
    }
}

/// File to which all packets are added.
pub const PCAP: &str = "ROCE_PCAP";

/// Unix socket at which `roce run` gives packet sockets to processes of its run: the value of
/// [`DeviceConfig::socket_giver`](crate::DeviceConfig::socket_giver).
pub const SOCKETS: &str = "ROCE_SOCKETS";

/// Folder of a rank of `roce run`, which has its [`RunPlan`].
pub const RUN: &str = "ROCE_RUN";

/// The plan of this process's run as it was when the library was loaded.
static PLAN: OnceLock<Result<Option<RunPlan>, String>> = OnceLock::new();

/// Returns the plan of the run that this process belongs to, if there is one. It is read once.
///
/// # Errors
/// Why it cannot be read: the folder may be gone, if the environment is that of a run which has ended.
pub fn run_plan() -> Result<Option<&'static RunPlan>, &'static str> {
    let read = || {
        let Some(folder) = var_os(RUN).filter(|folder| !folder.is_empty()) else { return Ok(None) };
        let folder = Path::new(&folder);
        let failed = |error| format!("{RUN}: no plan of a run in {}: {error}", folder.display());
        RunPlan::read(folder).map(Some).map_err(failed)
    };
    PLAN.get_or_init(read).as_ref().map(Option::as_ref).map_err(String::as_str)
}

/// Level of the log: error, warn, info, debug, trace or off.
pub const LOG: &str = "ROCE_LOG";
