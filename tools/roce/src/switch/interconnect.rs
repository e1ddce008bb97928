//! What connects the hosts of a private network.

use std::fs;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use roce_netns::process::{Launch, Output, Running};
use roce_netns::{Host, Link, Switch, VirtualNetwork, port_name};

use super::options::SwitchOptions;
use crate::error::{CliError, Result};
use crate::this_program;

/// A connection between hosts, which exists as long as this value.
#[derive(Debug)]
pub(crate) enum Interconnect {
    /// A bridge of the kernel.
    Bridge { switch: Switch },
    /// `roce switch`.
    Process { process: SwitchProcess },
}

impl Interconnect {
    /// Connects each host by an interface of the given name. `number` distinguishes the reports of
    /// several switches.
    pub(crate) fn connect(
        network: &VirtualNetwork,
        ends: &[(&Host, &str)],
        link: Link,
        options: &SwitchOptions,
        number: u32,
    ) -> Result<Self> {
        match &options.switch {
            None => Ok(Self::Bridge { switch: network.bridge(ends, link)? }),
            Some(spec) => {
                let report = options.switch_report.clone().map(|path| numbered(path, number));
                let spec = spec.to_string();
                let process = SwitchProcess::start(network, ends, link, &spec, report)?;
                Ok(Self::Process { process })
            }
        }
    }

    /// Returns where the ports are: port N has the link of the host that was the Nth to be connected, from 0.
    pub(crate) fn host(&self) -> &Host {
        match self {
            Self::Bridge { switch } => switch.host(),
            Self::Process { process } => &process.host,
        }
    }
}

/// A running `roce switch`. Dropping it ends the process, which then writes its report.
#[derive(Debug)]
pub(crate) struct SwitchProcess {
    // Before the host: it ends first.
    _running: Running,
    host: Host,
}

impl SwitchProcess {
    fn start(
        network: &VirtualNetwork,
        ends: &[(&Host, &str)],
        link: Link,
        spec: &str,
        report: Option<PathBuf>,
    ) -> Result<Self> {
        let host = network.host("switch")?;
        // The kernel would send packets of its own. It fails where /proc/sys is read-only.
        let _ = host.run(|| fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1"));
        let mut command = this_program::without_arguments();
        command.args(["switch", "--between-hosts", "--spec", spec]);
        for (number, (end, ifname)) in (0..).zip(ends) {
            network.port((&host, number), (end, ifname), link)?;
            end.run(|| roce_io::disable_transmit_offload(ifname)).map_err(|error| {
                CliError::context(format!("switching off the offload of {ifname} in {end}"), error)
            })?;
            command.args(["--port", &port_name(number)]);
        }
        if let Some(path) = report {
            command.arg("--report").arg(std::path::absolute(path)?);
        }
        for (end, ifname) in ends {
            wait_for_carrier(end, ifname)?;
        }
        // A report takes the time that it takes.
        let launch = Launch::from(command).stderr(Output::Inherit).grace(Duration::MAX);
        let running = launch.start_in(&host)?;
        match running.read_line(Duration::MAX)? {
            Some(line) if line == READY => Ok(Self { _running: running, host }),
            // It has printed the reason.
            _ => Err(CliError::new("the switch did not start")),
        }
    }
}

/// Waits until the kernel reports that the link of an interface is up, some time after both its ends
/// were set up.
fn wait_for_carrier(host: &Host, ifname: &str) -> Result {
    let deadline = Instant::now() + CARRIER_TIMEOUT;
    loop {
        let interfaces = host.run(roce_io::interfaces)?;
        let is_up = interfaces.iter().any(|it| it.name == ifname && it.flags.running);
        if is_up || Instant::now() >= deadline {
            return Ok(());
        }
        thread::sleep(Duration::from_millis(1));
    }
}

/// Time that a link may take; the kernel needs at most a second.
const CARRIER_TIMEOUT: Duration = Duration::from_secs(3);

/// Returns the file of one of several reports.
fn numbered(path: PathBuf, number: u32) -> PathBuf {
    match number {
        0 => path,
        _ => {
            let mut name = path.into_os_string();
            name.push(format!(".{number}"));
            name.into()
        }
    }
}

/// What the process prints once it forwards frames.
pub(crate) const READY: &str = "ready to forward";
