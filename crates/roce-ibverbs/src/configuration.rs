//! The configuration of devices, from the environment.

use std::fs::{File, OpenOptions};
use std::path::{Path, PathBuf};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use nix::fcntl::{Flock, FlockArg};
use roce_verbs::{CongestionConfig, DeviceConfig, FaultConfig, environment};

use crate::device_list::ListedDevice;
use crate::message;

/// Returns the configuration of a device: capture, faults, congestion control, link rate and published counters as the
/// environment says.
///
/// # Errors
/// What is wrong with the environment, as text.
pub(crate) fn of(device: &ListedDevice) -> Result<DeviceConfig, String> {
    let faults = match std::env::var(environment::FAULTS) {
        Ok(text) => {
            let faults: FaultConfig =
                text.parse().map_err(|error| format!("{}: {error}", environment::FAULTS))?;
            Some(faults)
        }
        Err(_) => None,
    };
    let congestion = match std::env::var(environment::CC) {
        Ok(text) => text.parse().map_err(|error| format!("{}: {error}", environment::CC))?,
        Err(_) => CongestionConfig::default(),
    };
    let link_rate = match std::env::var(environment::LINK_RATE) {
        Ok(text) => {
            let rate = text.parse().map_err(|_| {
                format!("{}: {text:?} is not a number of bits per second", environment::LINK_RATE)
            })?;
            Some(rate)
        }
        Err(_) => None,
    };
    let capture = std::env::var_os(environment::PCAP).map(|path| capture_of(device, path.into()));
    let counter_file = environment::counter_file(device.name());
    Ok(DeviceConfig {
        capture,
        faults,
        congestion,
        counter_file,
        link_rate,
        ..DeviceConfig::default()
    })
}

/// A capture file that this process writes.
#[derive(Debug)]
struct Claim {
    process: u32,
    device: String,
    path: PathBuf,
    /// Keeps other processes from writing to the same file.
    _lock: Option<Flock<File>>,
    before: *const Claim,
}

/// The claim that was made last. Never freed: a child after `fork` inherits the list and its locks,
/// and makes claims of its own.
static CLAIMS: AtomicPtr<Claim> = AtomicPtr::new(ptr::null_mut());

/// Returns the capture file of a device of this process: `path` itself, unless another process or
/// device writes to it, and then one with the number of the process and the device in its name.
fn capture_of(device: &ListedDevice, path: PathBuf) -> PathBuf {
    let process = std::process::id();
    let mut at = CLAIMS.load(Ordering::Acquire).cast_const();
    // SAFETY: null, or a leaked box that is never changed.
    while let Some(claim) = unsafe { at.as_ref() } {
        if claim.process == process && claim.device == device.name() {
            return claim.path.clone();
        }
        at = claim.before;
    }
    let lock = lock(&path);
    let path = match lock {
        Some(_) => path,
        None => beside(&path, process, device.name()),
    };
    let device = device.name().to_owned();
    let claim = Claim { process, device, path: path.clone(), _lock: lock, before: ptr::null() };
    let claim = Box::leak(Box::new(claim));
    let mut before = CLAIMS.load(Ordering::Acquire);
    loop {
        claim.before = before;
        match CLAIMS.compare_exchange(before, claim, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => return path,
            Err(now) => before = now,
        }
    }
}

/// Locks a file until the process ends, unless another one has it.
fn lock(path: &Path) -> Option<Flock<File>> {
    let file = match OpenOptions::new().create(true).append(true).open(path) {
        Ok(file) => file,
        Err(error) => {
            message::say_once(&format_args!("{}: {}: {error}", environment::PCAP, path.display()));
            return None;
        }
    };
    Flock::lock(file, FlockArg::LockExclusiveNonblock).ok()
}

/// Returns a path with the process and the device in the name of the file.
fn beside(path: &Path, process: u32, device: &str) -> PathBuf {
    let text =
        |part: Option<&std::ffi::OsStr>| part.unwrap_or_default().to_string_lossy().into_owned();
    let (stem, extension) = (text(path.file_stem()), text(path.extension()));
    let dot = if extension.is_empty() { "" } else { "." };
    path.with_file_name(format!("{stem}-{process}-{device}{dot}{extension}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_capture_is_named_by_process_and_device() {
        let name = |path| beside(Path::new(path), 17, "roce0");
        assert_eq!(name("/tmp/all.pcapng"), Path::new("/tmp/all-17-roce0.pcapng"));
        assert_eq!(name("all"), Path::new("all-17-roce0"));
    }
}
