//! Hosts around a switch with queues.

use std::fs;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use roce_netns::{Host, Link, Switch, VirtualNetwork};
use roce_switch::{
    CLASSES, EcnMarking, PfcConfig, PortCounters, SoftwareSwitch, SwitchConfig, SwitchReport,
    SwitchSettings,
};
use roce_verbs::ThreadPlacement;

use super::{Fabric, Scenario};

/// Class of the data: the upper three bits of its DSCP.
pub(super) const DATA_CLASS: usize = 3;
/// Bytes of a full packet on the wire, with preamble, FCS and gap: 1024 of payload, RETH.
const WIRE_BYTES: u64 = 1024 + 14 + 20 + 8 + 12 + 16 + 4 + 24;
/// Propagation delay of a link.
pub(super) const DELAY: Duration = Duration::from_micros(1);
/// Longest wait for a link.
const LINK_TIMEOUT: Duration = Duration::from_secs(5);
/// Time between two readings of tbf's queue.
const SAMPLE: Duration = Duration::from_millis(20);

/// What the system, a device or a tool refused, in words.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;

/// What happened in the queues.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Queues {
    pub(super) drops: u64,
    pub(super) pauses: u64,
    /// Bytes in the queue towards the receiver.
    pub(super) p50: u64,
    pub(super) p99: u64,
    /// Packets that were lost anywhere between the sockets of the hosts.
    pub(super) lost: u64,
    /// Packets that are still there.
    pub(super) left: u64,
}

/// Hosts 0 and 1 receive, the others send.
pub(super) struct Network {
    pub(super) hosts: Vec<Host>,
    middle: Middle,
}

enum Middle {
    Ours { stop: UnixStream, switch: JoinHandle<Result<SwitchReport, Failure>> },
    Kernel { bridge: Switch, stop: Arc<AtomicBool>, samples: JoinHandle<Result<Vec<u64>, Failure>> },
}

impl Network {
    pub(super) fn new(scenario: &Scenario) -> Result<Self, Failure> {
        let network = VirtualNetwork::new()?;
        let link = Link { mtu: Scenario::LINK_MTU };
        let hosts = (0..scenario.senders + 2)
            .map(|number| network.host(&format!("host {number}")))
            .collect::<Result<Vec<_>, _>>()?;
        let middle = match scenario.fabric {
            Fabric::Tbf => kernel(scenario, &network, &hosts, link)?,
            Fabric::Lossy | Fabric::Lossless => ours(scenario, &network, &hosts, link)?,
        };
        Ok(Self { hosts, middle })
    }

    /// Ends the samples of tbf's queue. Our switch takes samples only while frames pass or wait.
    pub(super) fn end_samples(&self) {
        if let Middle::Kernel { stop, .. } = &self.middle {
            stop.store(true, Ordering::Relaxed);
        }
    }

    /// Stops the switch.
    pub(super) fn stop(self) -> Result<Queues, Failure> {
        match self.middle {
            Middle::Ours { stop, switch } => {
                drop(stop);
                let report = switch.join().map_err(|_| "the switch panicked")??;
                let ports = &report.ports;
                let of_data = ports[0].classes.iter().find(|it| it.class == DATA_CLASS);
                let queue = of_data.map(|it| it.queue).unwrap_or_default();
                let mut sum = PortCounters::default();
                ports.iter().for_each(|port| sum += port.counters);
                let lost = sum.dropped_frames + sum.discarded_frames;
                Ok(Queues {
                    drops: ports
                        .iter()
                        .map(|it| it.counters.dropped_frames + it.host_dropped_frames)
                        .sum(),
                    pauses: ports.iter().map(|it| it.counters.xoff_sent).sum(),
                    p50: queue.p50,
                    p99: queue.p99,
                    lost: lost
                        + ports
                            .iter()
                            .map(|it| {
                                it.host_dropped_frames + it.unusable_frames + it.unsent_frames
                            })
                            .sum::<u64>(),
                    left: sum.rx_frames.saturating_sub(sum.tx_frames + lost),
                })
            }
            Middle::Kernel { bridge, stop, samples } => {
                stop.store(true, Ordering::Relaxed);
                let mut samples = samples.join().map_err(|_| "the sampler panicked")??;
                samples.sort_unstable();
                let at = |share: f64| {
                    let place = (samples.len() as f64 * share) as usize;
                    samples.get(place).copied().unwrap_or_default()
                };
                let [shared, other] =
                    ["port0", "port1"].map(|it| bridge.host().run(|| Tbf::of(it)));
                let (shared, other) = (shared?, other?);
                Ok(Queues {
                    drops: shared.drops,
                    pauses: 0,
                    p50: at(0.5),
                    p99: at(0.99),
                    lost: shared.drops + other.drops,
                    left: shared.packets + other.packets,
                })
            }
        }
    }
}

fn prepare(host: &Host, number: usize) -> Result<(), Failure> {
    host.run(|| roce_io::disable_transmit_offload("eth0"))?;
    let address = format!("10.1.0.{}/24", number + 1);
    host.address("eth0", address.parse().map_err(|_| format!("{address} is none"))?)?;
    let deadline = Instant::now() + LINK_TIMEOUT;
    loop {
        let interfaces = host.run(roce_io::interfaces)?;
        if interfaces.iter().any(|it| it.name == "eth0" && it.flags.running) {
            return Ok(());
        }
        if Instant::now() >= deadline {
            return Err(Failure::from(format!("the link of {host} does not come up")));
        }
        thread::sleep(Duration::from_millis(2));
    }
}

/// Returns the buffer, marks and pauses of our switch.
pub(super) fn switch_of(scenario: &Scenario) -> SwitchConfig {
    let (kmin, kmax, pmax) = Scenario::MARKING;
    let frame = u64::from(Scenario::LINK_MTU) + 14;
    let pfc = PfcConfig::for_link(DATA_CLASS, scenario.rate, DELAY, frame);
    SwitchConfig {
        buffer_bytes: scenario.buffer_bytes(),
        marking: [Some(EcnMarking { kmin, kmax, pmax }); CLASSES],
        pfc: (scenario.fabric == Fabric::Lossless).then_some(pfc),
        ..SwitchSettings::default().queues
    }
}

/// Connects the hosts by our switch.
fn ours(
    scenario: &Scenario,
    network: &VirtualNetwork,
    hosts: &[Host],
    link: Link,
) -> Result<Middle, Failure> {
    let settings = SwitchSettings {
        bits_per_sec: scenario.rate,
        delay: DELAY,
        queues: switch_of(scenario),
        ..SwitchSettings::default()
    };
    let centre = network.host("switch")?;
    // The kernel would send packets of its own. It fails where /proc/sys is read-only.
    let _ = centre.run(|| fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1"));
    let mut ports = Vec::new();
    for (number, host) in hosts.iter().enumerate() {
        let port = format!("port{number}");
        network.veth((&centre, &port), (host, "eth0"), link)?;
        prepare(host, number)?;
        ports.push(port);
    }
    let mut switch = centre.run(|| SoftwareSwitch::open(&settings, &ports))?;
    let (stop, stopped) = UnixStream::pair()?;
    let switch = thread::spawn(move || {
        // A switch that gets no processor stands still. Where that is not permitted, it competes.
        let _ = ThreadPlacement { realtime: true, ..ThreadPlacement::default() }.apply();
        switch.run_until_readable(stopped.as_fd())?;
        // Its interfaces exist until here.
        drop(centre);
        Ok(switch.report())
    });
    Ok(Middle::Ours { stop, switch })
}

/// Connects the hosts by a bridge with shaped and marked ports towards the receivers.
fn kernel(
    scenario: &Scenario,
    network: &VirtualNetwork,
    hosts: &[Host],
    link: Link,
) -> Result<Middle, Failure> {
    let ends: Vec<_> = hosts.iter().map(|host| (host, "eth0")).collect();
    let bridge = network.bridge(&ends, link)?;
    for (number, host) in hosts.iter().enumerate() {
        prepare(host, number)?;
    }
    let (rate, buffer) = (scenario.rate, scenario.buffer_bytes());
    let marked_above = rate / 8 * 95 / 100 / WIRE_BYTES;
    bridge.host().run(|| -> Result<(), Failure> {
        for port in ["port0", "port1"] {
            let rate = format!("{rate}bit");
            let limit = format!("{buffer}b");
            let shape =
                ["dev", port, "root", "tbf", "rate", &rate, "burst", "5kb", "limit", &limit];
            run("tc", &[&["qdisc", "add"][..], &shape].concat())?;
        }
        run("nft", &["add table bridge marks"])?;
        run("nft", &["add chain bridge marks out { type filter hook forward priority 0; }"])?;
        let rule = format!(
            "add rule bridge marks out oifname port0 ip ecn ect0 limit rate over \
             {marked_above}/second burst 16 packets ip ecn set ce"
        );
        run("nft", &[&rule]).map(|_| ())
    })?;
    let stop = Arc::new(AtomicBool::new(false));
    let (host, stopped) = (bridge.host().clone(), Arc::clone(&stop));
    let samples = thread::spawn(move || {
        host.run(|| {
            let mut samples = Vec::new();
            while !stopped.load(Ordering::Relaxed) {
                samples.push(Tbf::of("port0")?.backlog);
                thread::sleep(SAMPLE);
            }
            Ok(samples)
        })
    });
    Ok(Middle::Kernel { bridge, stop, samples })
}

/// The state of a tbf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Tbf {
    backlog: u64,
    packets: u64,
    drops: u64,
}

impl Tbf {
    fn of(port: &str) -> Result<Self, Failure> {
        let text = run("tc", &["-s", "-j", "qdisc", "show", "dev", port])?;
        Self::parse(&text).ok_or_else(|| Failure::from(format!("tc prints no tbf: {text}")))
    }

    fn parse(text: &str) -> Option<Self> {
        let all: serde_json::Value = serde_json::from_str(text).ok()?;
        let tbf = all.as_array()?.iter().find(|it| it["kind"] == "tbf")?;
        Some(Self {
            backlog: tbf["backlog"].as_u64()?,
            packets: tbf["qlen"].as_u64()?,
            drops: tbf["drops"].as_u64()?,
        })
    }
}

/// Runs a tool and returns its output.
fn run(program: &str, arguments: &[&str]) -> Result<String, Failure> {
    let output = Command::new(program).args(arguments).output().map_err(|error| {
        Failure::from(format!("{program}: {error}; tc is in the package iproute2, nft in nftables"))
    })?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let words = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(Failure::from(format!("{program} {}: {words}", arguments.join(" "))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_queue_of_a_tbf_is_read_from_tcs_json() {
        let text = r#"[{"kind":"tbf","handle":"8001:","root":true,"options":{"rate":25000000},
            "bytes":90,"packets":1,"drops":17,"overlimits":3,"backlog":123456,"qlen":110}]"#;
        assert_eq!(Tbf::parse(text), Some(Tbf { backlog: 123_456, packets: 110, drops: 17 }));
        assert_eq!(Tbf::parse("[]"), None);
    }
}
