//! What `roce run` tells the library in the processes of a run.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// What a rank's processes find in the rank's folder, which the variable
/// [`ROCE_RUN`](crate::run::environment::RUN) names.
///
/// The folder lives as long as a process of the run does.
///
/// # Examples
///
/// ```
/// use roce_verbs::RunPlan;
///
/// let folder = std::env::temp_dir().join(format!("plan-{}", std::process::id()));
/// std::fs::create_dir_all(&folder)?;
/// let rails = vec!["eth0".to_owned(), "eth1".to_owned()];
/// let plan = RunPlan { counters_each_round: true, rails, ..RunPlan::in_folder(&folder) };
/// plan.write()?;
/// assert_eq!(RunPlan::read(&folder)?, plan);
/// assert_eq!(plan.rail_of("eth1"), Some(1));
/// # std::fs::remove_dir_all(folder)?;
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunPlan {
    /// The folder of the rank.
    pub folder: PathBuf,
    /// File that exists, to which events of scripted faults are appended: the value of
    /// [`FaultConfig::log`](crate::FaultConfig::log).
    pub fault_log: Option<PathBuf>,
    /// File that exists, to which completions and packets are noted: the value of
    /// [`FaultConfig::activity`](crate::FaultConfig::activity).
    pub activity: Option<PathBuf>,
    /// Interfaces of the rails, in their order: the place of a device's is the value of
    /// [`DeviceConfig::rail`](crate::DeviceConfig::rail).
    pub rails: Vec<String>,
    /// [`DeviceConfig::capture_at_receiver`](crate::DeviceConfig::capture_at_receiver).
    pub capture_at_receiver: bool,
    /// [`DeviceConfig::counters_each_round`](crate::DeviceConfig::counters_each_round).
    pub counters_each_round: bool,
}

/// Name of the plan in the folder: lines of a name, an equals sign and a value.
const FILE: &str = "plan";
const FAULT_LOG: &[u8] = b"fault-log=";
const ACTIVITY: &[u8] = b"activity=";
const RAIL: &[u8] = b"rail=";
const CAPTURE_AT_RECEIVER: &[u8] = b"capture-at-receiver=1";
const COUNTERS_EACH_ROUND: &[u8] = b"counters-each-round=1";

impl RunPlan {
    /// Returns a plan of a folder that asks for nothing.
    pub fn in_folder(folder: &Path) -> Self {
        Self { folder: folder.to_owned(), ..Self::default() }
    }

    /// Writes the plan into its folder.
    ///
    /// # Errors
    /// The operating system's, and `InvalidInput` for a path of several lines.
    pub fn write(&self) -> io::Result<()> {
        let mut text = Vec::new();
        for (path, name) in [(&self.fault_log, FAULT_LOG), (&self.activity, ACTIVITY)] {
            let Some(path) = path else { continue };
            let path = path.as_os_str().as_bytes();
            if path.contains(&b'\n') {
                return Err(io::ErrorKind::InvalidInput.into());
            }
            text.extend([name, path, b"\n"].concat());
        }
        for rail in &self.rails {
            text.extend([RAIL, rail.as_bytes(), b"\n"].concat());
        }
        for (is_on, line) in [
            (self.capture_at_receiver, CAPTURE_AT_RECEIVER),
            (self.counters_each_round, COUNTERS_EACH_ROUND),
        ] {
            if is_on {
                text.extend([line, b"\n"].concat());
            }
        }
        fs::write(self.folder.join(FILE), text)
    }

    /// Reads the plan of a folder. Lines that this version does not know mean nothing.
    ///
    /// # Errors
    /// The operating system's.
    pub fn read(folder: &Path) -> io::Result<Self> {
        let mut plan = Self::in_folder(folder);
        for line in fs::read(folder.join(FILE))?.split(|byte| *byte == b'\n') {
            if let Some(path) = line.strip_prefix(FAULT_LOG) {
                plan.fault_log = Some(OsStr::from_bytes(path).into());
            }
            if let Some(path) = line.strip_prefix(ACTIVITY) {
                plan.activity = Some(OsStr::from_bytes(path).into());
            }
            if let Some(interface) = line.strip_prefix(RAIL) {
                plan.rails.push(String::from_utf8_lossy(interface).into_owned());
            }
            plan.capture_at_receiver |= line == CAPTURE_AT_RECEIVER;
            plan.counters_each_round |= line == COUNTERS_EACH_ROUND;
        }
        Ok(plan)
    }

    /// Returns the rail of an interface.
    pub fn rail_of(&self, interface: &str) -> Option<u32> {
        let place = self.rails.iter().position(|rail| rail == interface)?;
        u32::try_from(place).ok()
    }

    /// Returns the folder in which processes publish the counters of their devices.
    pub fn counters(&self) -> PathBuf {
        self.folder.join("counters")
    }

    /// Returns the file in which this process publishes the counters of a device: the value of
    /// [`DeviceConfig::counter_file`](crate::DeviceConfig::counter_file).
    pub fn counter_file(&self, device: &str) -> PathBuf {
        file_of_process(self.counters(), device)
    }

    /// Returns the folder in which processes write down the connections of their devices:
    /// [`Orphans`](crate::cm::Orphans) tells the peers of a process that has died.
    pub fn connections(&self) -> PathBuf {
        self.folder.join("connections")
    }

    /// Returns the file in which this process writes down the connections of a device: the value of
    /// [`DeviceConfig::connection_file`](crate::DeviceConfig::connection_file).
    pub fn connection_file(&self, device: &str) -> PathBuf {
        file_of_process(self.connections(), device)
    }
}

fn file_of_process(folder: PathBuf, device: &str) -> PathBuf {
    folder.join(format!("{device}.{}", std::process::id()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_of_a_later_version_is_read_as_far_as_it_is_known() {
        let folder = std::env::temp_dir().join(format!("roce-plan-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join(FILE), "new=5\nfault-log=/a b\ncounters-each-round=0\n").unwrap();
        let plan = RunPlan::read(&folder).unwrap();
        let expected = RunPlan { fault_log: Some("/a b".into()), ..RunPlan::in_folder(&folder) };
        assert_eq!(plan, expected);
        let log = Some("/a\nb".into());
        assert!(RunPlan { fault_log: log, ..expected }.write().is_err());
        fs::remove_dir_all(&folder).unwrap();
        assert!(RunPlan::read(&folder).is_err());
    }
}
