//! The state of a device besides its engine.

use std::sync::atomic::AtomicU32;
use std::sync::{Arc, Mutex};

use roce_io::{CaptureFile, FaultScript, PortReservation};

use crate::backend::Backend;
use crate::device_config::DeviceConfig;
use crate::trace::TraceObserver;
use crate::verb_faults::VerbFaults;

/// The state of a device besides its engine.
#[derive(Debug)]
pub(crate) struct DeviceState {
    pub(crate) config: DeviceConfig,
    pub(crate) capture: Option<CaptureFile>,
    pub(crate) script: Option<FaultScript>,
    pub(crate) verb_faults: Option<VerbFaults>,
    pub(crate) next_handle: AtomicU32,
    pub(crate) observer: TraceObserver,
    pub(crate) backend: Backend,
    /// Why it is not the one that was named.
    pub(crate) backend_refusal: Option<String>,
    /// `None` where UDP sockets have the port.
    pub(crate) port_holder: Option<Arc<Mutex<PortReservation>>>,
}
