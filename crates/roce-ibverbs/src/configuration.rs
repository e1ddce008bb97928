//! The configuration of devices, from the environment.

use std::path::PathBuf;

use roce_verbs::{CongestionConfig, DeviceConfig, FaultConfig, Generation, environment};

use crate::device_list::ListedDevice;
use crate::message;

/// Returns the configuration of a device: back end, capture, faults, congestion control, link rate, shards and times
/// of connection management as the environment says, published counters and connections as the plan of the run
/// does.
///
/// # Errors
/// What is wrong with the environment, as text.
pub(crate) fn of(device: &ListedDevice) -> Result<DeviceConfig, String> {
    let plan = environment::run_plan().unwrap_or_else(|why| {
        message::say_once(&format_args!("{why}; devices open without it"));
        None
    });
    let faults = match environment::faults()? {
        Some(text) => {
            let faults: FaultConfig =
                text.parse().map_err(|error| format!("{}: {error}", environment::FAULTS))?;
            let (log, activity) = plan
                .map(|plan| (plan.fault_log.clone(), plan.activity.clone()))
                .unwrap_or_default();
            Some(FaultConfig { log, activity, ..faults })
        }
        None => None,
    };
    let congestion = match environment::var(environment::CC) {
        Some(text) => text.parse().map_err(|error| format!("{}: {error}", environment::CC))?,
        None => CongestionConfig::default(),
    };
    let link_rate = match environment::var(environment::LINK_RATE) {
        Some(text) => {
            let rate = text.parse().map_err(|_| {
                format!("{}: {text:?} is not a number of bits per second", environment::LINK_RATE)
            })?;
            Some(rate)
        }
        None => None,
    };
    let shards = environment::shards()?;
    // Asked for at each registration, which has no text for what is wrong with it.
    environment::registers_memfd()?;
    let capture = environment::var_os(environment::PCAP).map(PathBuf::from);
    Ok(DeviceConfig {
        backend: environment::backend()?,
        other_identifications: environment::other_identifications(),
        trusts_port_holder: environment::trusts_port_holder(),
        capture,
        socket_giver: environment::var_os(environment::SOCKETS).map(PathBuf::from),
        faults,
        faults_of_process: true,
        rail: plan.and_then(|plan| plan.rail_of(device.interface())),
        peers: environment::peers()?,
        capture_at_receiver: plan.is_some_and(|plan| plan.capture_at_receiver),
        counters_each_round: plan.is_some_and(|plan| plan.counters_each_round),
        congestion,
        connection_timing: environment::connection_timing()?,
        counter_file: plan.map(|plan| plan.counter_file(device.name())),
        connection_file: plan.map(|plan| plan.connection_file(device.name())),
        link_rate,
        shards,
        queue_rule: environment::queue_rule()?,
        may_be_down: true,
        ..DeviceConfig::default()
    })
}

extern "C" fn at_load() {
    environment::keep();
    roce_verbs::watch_main_thread();
    // Its handlers of `fork` are the first that are registered: they run last before a fork and first after it.
    // Those of the program may open and close devices, and no thread waits for the fork meanwhile.
    let _watched = Generation::current();
}

/// Run by the loader, before the program can change its environment.
#[cfg(not(test))]
#[used]
// SAFETY: a pointer to a function without parameters, as the section has them.
#[unsafe(link_section = ".init_array")]
static AT_LOAD: extern "C" fn() = at_load;
