//! Variables of the environment that configure the devices of a verbs program.

use std::path::{Path, PathBuf};

/// Names of devices and their interfaces, parsed by [`DeviceNames`](crate::DeviceNames).
pub const DEVICES: &str = "ROCE_DEVICES";

/// Faults that every device injects, parsed by [`FaultConfig`](crate::FaultConfig).
pub const FAULTS: &str = "ROCE_FAULTS";

/// Congestion control of every device, parsed by [`CongestionConfig`](crate::CongestionConfig).
pub const CC: &str = "ROCE_CC";

/// Rate of the links of all devices in bits per second: the value of
/// [`DeviceConfig::link_rate`](crate::DeviceConfig::link_rate).
pub const LINK_RATE: &str = "ROCE_LINK_RATE";

/// File in which all packets are recorded.
pub const PCAP: &str = "ROCE_PCAP";

/// Folder in which every process of a run publishes the counters of its devices, each in
/// [`counter_file`].
pub const COUNTERS: &str = "ROCE_COUNTERS";

/// Returns the file in the folder of [`COUNTERS`] in which this process publishes the counters of a
/// device: the value of [`DeviceConfig::counter_file`](crate::DeviceConfig::counter_file).
pub fn counter_file(device: &str) -> Option<PathBuf> {
    let folder = std::env::var_os(COUNTERS).filter(|folder| !folder.is_empty())?;
    Some(Path::new(&folder).join(format!("{device}.{}", std::process::id())))
}

/// Folder with the tree of files that programs read beside the library.
pub const VIEW: &str = "ROCE_VIEW";

/// Level of the log: error, warn, info, debug, trace or off.
pub const LOG: &str = "ROCE_LOG";
