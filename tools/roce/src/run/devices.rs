//! The devices of a run.

use std::time::{Duration, Instant};

use roce_verbs::{DeviceNames, NamedDevice, PortState};

use crate::error::{CliError, Result};

/// Returns the devices of these names, or all.
pub(crate) fn named(named: &[String]) -> Result<Vec<NamedDevice>> {
    let names: DeviceNames = named.join(",").parse()?;
    let devices = NamedDevice::list(&names)?;
    let is_listed =
        |wanted: &str| devices.iter().any(|device| device.info.interface.name == wanted);
    if let Some(missing) = names.interfaces().find(|interface| !is_listed(interface)) {
        return Err(CliError::new(format!(
            "there is no Ethernet interface {missing}; `roce devices` lists those that can carry RoCE"
        )));
    }
    if devices.is_empty() {
        return Err(CliError::new(
            "this network namespace has no Ethernet interface, so there is no device; add one (see \
             `roce devices`), or add --local 2 for a private network",
        ));
    }
    Ok(devices)
}

/// Returns the devices of a private host as soon as their links are up: the kernel reports that some
/// time after both ends of a link were set up.
pub(super) fn with_carrier(named: &[String]) -> Result<Vec<NamedDevice>> {
    let deadline = Instant::now() + CARRIER_TIMEOUT;
    loop {
        let devices = self::named(named)?;
        let is_up = |device: &NamedDevice| device.info.port.state == PortState::Active;
        if devices.iter().all(is_up) || Instant::now() >= deadline {
            return Ok(devices);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Time that the links of a private host may take; the kernel needs at most a second.
const CARRIER_TIMEOUT: Duration = Duration::from_secs(3);
