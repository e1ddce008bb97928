//! One cell of the table.

use std::time::{Duration, Instant};

use roce_verbs::{Device, DeviceConfig};
use serde::Serialize;

use super::Control;
use super::load::{Load, Period, Receiver};
use super::network::{Failure, Network};
use super::outcome::{Outcome, Packets, percentile};

/// What connects the hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Fabric {
    /// `roce switch`, which drops what finds no room.
    Lossy,
    /// `roce switch`, which pauses the class of the data.
    Lossless,
    /// A bridge of the kernel: tbf shapes the ports of the receivers and drops, nftables mark what
    /// exceeds 95 % of the rate.
    Tbf,
}

impl Fabric {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Lossy, Self::Lossless, Self::Tbf];

    /// Returns its name in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Lossy => "lossy",
            Self::Lossless => "PFC",
            Self::Tbf => "tbf",
        }
    }

    /// Returns true if [`Scenario::simulate`] can run it.
    pub const fn is_simulated(self) -> bool {
        !matches!(self, Self::Tbf)
    }
}

/// Senders, receivers and what connects them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scenario {
    /// Hosts that write to one receiver.
    pub senders: usize,
    /// What limits them.
    pub control: Control,
    /// What connects them.
    pub fabric: Fabric,
    /// Bits per second of every link.
    pub rate: u64,
    /// Traffic class of the data, DSCP and ECN: 106 by default, which is class 3 with ECT(0).
    pub traffic_class: u8,
    /// Time before the measurement.
    pub warm_up: Duration,
    /// Time of the measurement.
    pub time: Duration,
}

impl Scenario {
    /// Bytes of a WRITE.
    pub const MESSAGE_BYTES: usize = 64 << 10;
    /// Unfinished WRITEs of a sender.
    pub const OUTSTANDING: usize = 2;
    /// Share of the link that the victim asks for.
    pub const VICTIM_SHARE: f64 = 0.25;
    /// MTU of the links in bytes: the path MTU is 1024.
    pub const LINK_MTU: u32 = 1500;
    /// From which queue to which packets are marked, in bytes, and the probability there.
    pub const MARKING: (u64, u64, f64) = (20 << 10, 80 << 10, 0.2);

    /// Creates a scenario of 200 Mbit/s, measured for three seconds.
    pub fn new(senders: usize, control: Control, fabric: Fabric) -> Self {
        let (warm_up, time) = (Duration::from_millis(700), Duration::from_secs(3));
        let (rate, traffic_class) = (200_000_000, 106);
        Self { senders, control, fabric, rate, traffic_class, warm_up, time }
    }

    /// Returns the bytes of the switch's buffer: 256 KiB, and more where the headroom of more senders
    /// needs it.
    pub fn buffer_bytes(&self) -> u64 {
        (256 << 10) + (self.senders as u64).saturating_sub(4) * (16 << 10)
    }

    /// Runs it. It takes as long as it measures, and some tenths of a second more.
    ///
    /// # Errors
    /// What the system or a device refuses; the tools that are missing for [`Fabric::Tbf`].
    pub fn run(&self) -> Result<Outcome, Failure> {
        let network = Network::new(self)?;
        let open = |host: usize| -> Result<Device, Failure> {
            let config = DeviceConfig {
                congestion: self.control.config(),
                link_rate: Some(self.rate),
                spin: Duration::ZERO,
                ..DeviceConfig::default()
            };
            Ok(network.hosts[host].run(|| Device::open("eth0", config))?)
        };
        let receivers = [Receiver::new(open(0)?)?, Receiver::new(open(1)?)?];
        let devices = (0..self.senders).map(|n| open(2 + n)).collect::<Result<Vec<_>, _>>()?;
        let mut loads = Vec::new();
        for device in &devices {
            loads.push(Load::connect(device, &receivers[0], self.traffic_class)?);
        }
        let mut victim_load = Load::connect(&devices[0], &receivers[1], self.traffic_class)?;
        let began = Instant::now();
        let period = Period { from: began + self.warm_up, to: began + self.warm_up + self.time };
        let bits = Self::MESSAGE_BYTES as f64 * 8.0;
        let interval = Duration::from_secs_f64(bits / (self.rate as f64 * Self::VICTIM_SHARE));
        let (ended, victim) = std::thread::scope(|scope| {
            let victim = scope.spawn(|| victim_load.run_paced(period, interval));
            let loads: Vec<_> =
                loads.iter_mut().map(|load| scope.spawn(|| load.run(period))).collect();
            let ended: Vec<_> = loads.into_iter().map(|it| it.join()).collect();
            (ended, victim.join())
        });
        let panicked = |_| "a sender panicked";
        let ended = ended
            .into_iter()
            .map(|it| it.map_err(panicked)?)
            .collect::<Result<Vec<_>, Failure>>()?;
        let victim = victim.map_err(panicked)??;
        let of_senders = |name| devices.iter().map(|it| it.counter(name)).sum::<Result<u64, _>>();
        let (resent, marks) = (
            of_senders("resent_pkts")?,
            receivers[0].device.counter("np_ecn_marked_roce_packets")?,
        );
        let (sent, cnps) = (of_senders("sent_pkts")?, receivers[0].device.counter("np_cnp_sent")?);
        network.end_samples();
        loads.iter_mut().chain([&mut victim_load]).try_for_each(Load::finish)?;
        let hosts = receivers.iter().map(|it| &it.device).chain(&devices);
        let packets = packets_at_rest(&hosts.collect::<Vec<_>>())?;
        let queues = network.stop()?;
        let seconds = self.time.as_secs_f64();
        let rates: Vec<f64> =
            ended.iter().map(|it| it.bytes as f64 * 8.0 / seconds / 1e6).collect();
        let mut latencies: Vec<Duration> =
            ended.iter().flat_map(|it| &it.latencies).copied().collect();
        latencies.sort_unstable();
        let millis = |share| percentile(&latencies, share).as_secs_f64() * 1e3;
        Ok(Outcome {
            goodput: rates.iter().sum(),
            fairness: fairness(&rates),
            latency_p50: millis(0.5),
            latency_p99: millis(0.99),
            resent: 100.0 * resent as f64 / sent.max(1) as f64,
            marks: marks as f64,
            cnps: cnps as f64,
            drops: queues.drops as f64,
            pauses: queues.pauses as f64,
            queue_p50: queues.p50 as f64 / 1e3,
            queue_p99: queues.p99 as f64 / 1e3,
            victim: victim.bytes as f64 * 8.0 / seconds / 1e6,
            failed: (ended.iter().map(|it| it.failed).sum::<u64>() + victim.failed) as f64,
            packets: Packets {
                dropped: packets.dropped + queues.lost as f64,
                queued: queues.left as f64,
                ..packets
            },
        })
    }
}

/// Waits until hosts neither send nor receive, for a bounded time. Returns the packets that they have
/// sent and received, and those that their sockets dropped.
fn packets_at_rest(hosts: &[&Device]) -> Result<Packets, Failure> {
    let of_all = |name| hosts.iter().map(|it| it.counter(name)).sum::<Result<u64, _>>();
    let count = || -> Result<Packets, Failure> {
        let dropped = of_all("socket_rcvd_dropped")? + of_all("socket_rcvd_unusable")?;
        let (sent, delivered) = (of_all("sent_pkts")? as f64, of_all("rcvd_pkts")? as f64);
        Ok(Packets { sent, delivered, dropped: dropped as f64, queued: 0.0 })
    };
    let deadline = Instant::now() + MAX_REST;
    let mut last = count()?;
    loop {
        std::thread::sleep(REST);
        let now = count()?;
        if now == last || Instant::now() >= deadline {
            return Ok(now);
        }
        last = now;
    }
}

/// Time without a packet after which none is under way: longer than the longest queue takes, and than
/// an ACK is delayed.
const REST: Duration = Duration::from_millis(200);
/// Longest wait for that.
const MAX_REST: Duration = Duration::from_secs(5);

/// Returns Jain's index of the rates: 1 if all are equal, 1/N if one has all.
pub(super) fn fairness(rates: &[f64]) -> f64 {
    let (sum, squares): (f64, f64) =
        rates.iter().fold((0.0, 0.0), |(sum, squares), rate| (sum + rate, squares + rate * rate));
    if squares > 0.0 { sum * sum / (rates.len() as f64 * squares) } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_rates_are_fair_and_one_sender_of_four_is_a_quarter() {
        assert_eq!(fairness(&[3.0, 3.0, 3.0, 3.0]), 1.0);
        assert_eq!(fairness(&[8.0, 0.0, 0.0, 0.0]), 0.25);
        assert_eq!(fairness(&[0.0, 0.0]), 0.0);
    }
}
