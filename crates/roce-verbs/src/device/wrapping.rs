//! What a configuration puts around the devices of an engine: captures and faults.

use std::io;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use roce_io::{
    CaptureFile, FaultConfig, FaultInjector, FaultScript, FrameDevice, LoopDevice, MemoryConfig,
    PcapWriter,
};

use crate::device_config::DeviceConfig;
use crate::process::fork::PerProcess;

/// Opens a capture; an error names the file.
pub(super) fn open_capture(path: &Path) -> io::Result<CaptureFile> {
    CaptureFile::append(path)
        .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))
}

/// What a configuration puts around the devices of an engine.
pub(super) struct Wrapping<'a> {
    pub(super) config: &'a DeviceConfig,
    pub(super) capture: Option<&'a CaptureFile>,
    pub(super) script: Option<FaultScript>,
}

impl Wrapping<'_> {
    /// Returns a device for the packets between queue pairs of the engine, if anything is around it.
    pub(super) fn loopback(&self, interface: &str) -> Option<Box<dyn FrameDevice>> {
        if self.capture.is_none() && self.script.is_none() {
            return None;
        }
        let config = MemoryConfig { mtu: u16::MAX.into(), ..MemoryConfig::default() };
        let name = format!("{interface} loopback");
        // What stays in the device is on no rail.
        Some(self.wrap_on(None, Box::new(LoopDevice::new(&config)), &name, true))
    }

    /// Wraps a device. The capture is inside the faults, which tell it what they do: it shows each
    /// packet as it is behind them, and with the reason those that are lost. With `of_sent` the peers do
    /// the same to what is received.
    pub(super) fn wrap(
        &self,
        device: Box<dyn FrameDevice>,
        name: &str,
        of_sent: bool,
    ) -> Box<dyn FrameDevice> {
        self.wrap_on(self.config.rail, device, name, of_sent)
    }

    fn wrap_on(
        &self,
        rail: Option<u32>,
        mut device: Box<dyn FrameDevice>,
        name: &str,
        of_sent: bool,
    ) -> Box<dyn FrameDevice> {
        if let Some(file) = self.capture {
            device = Box::new(match (of_sent, self.config.capture_at_receiver) {
                (true, true) => PcapWriter::of_received(device, file, name),
                (true, false) => PcapWriter::of_sent(device, file, name),
                // The injector around it records what it receives, with the faults.
                (false, _) if self.script.is_some() => PcapWriter::of_sent(device, file, name),
                (false, _) => PcapWriter::new(device, file, name),
            });
        }
        if let Some((faults, script)) = self.config.faults.as_ref().zip(self.script.as_ref()) {
            let injector = FaultInjector::with_script(device, faults, script.clone()).on_rail(rail);
            device = Box::new(if of_sent { injector.of_sent() } else { injector });
        }
        device
    }
}

/// The scripts that go on over all devices of this process.
static FAULT_SCRIPTS: PerProcess<Mutex<Vec<(FaultConfig, FaultScript)>>> = PerProcess::new();

/// Returns the script of a device's faults: a new one, or that of the process.
pub(super) fn fault_script(faults: &FaultConfig, config: &DeviceConfig) -> FaultScript {
    if !config.faults_of_process {
        return FaultScript::new(faults);
    }
    let mut scripts = FAULT_SCRIPTS.get().lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, script)) = scripts.iter().find(|(known, _)| known == faults) {
        return script.clone();
    }
    let script = FaultScript::new(faults);
    scripts.push((faults.clone(), script.clone()));
    script
}
