//! Queue pairs that are connected and have nothing to do: what they cost.
//!
//! ```text
//! server# idle_qps --listen --interface eth0
//! client# idle_qps --to 10.0.0.1 --interface eth0 --queue-pairs 1000 --seconds 2
//! {"processor_percent":0.0,"queue_pairs":1000,"resident_bytes":23642112}
//! ```

use std::fs;
use std::io;
use std::thread;
use std::time::{Duration, Instant};

use clap::Parser;
use roce_verbs::{Device, DeviceConfig, QueuePair};
use serde_json::{Value, json};

use crate::connect_qps;
use crate::control_channel::ControlChannel;
use crate::program::{EndOptions, Failure};

/// What connected queue pairs cost that have nothing to do: memory and processor time.
#[derive(Clone, Debug, Parser)]
#[command(name = "idle_qps", about)]
pub struct Options {
    /// Which end this is.
    #[command(flatten)]
    pub end: EndOptions,
    /// The interface to use.
    #[arg(long)]
    pub interface: String,
    /// How many queue pairs to connect; the client's word counts.
    #[arg(long, default_value_t = 1)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_QPS)))]
    pub queue_pairs: u32,
}

/// Runs one end and returns what there is to report: the client's cost.
///
/// # Errors
/// The other end is missing or goes, or the interface cannot carry RoCE.
pub fn run(options: &Options) -> Result<Value, Failure> {
    let device =
        Device::open(&options.interface, DeviceConfig::default()).map_err(connect_qps::refused)?;
    let Some(server) = options.end.server() else {
        let mut control = ControlChannel::listen(options.end.port)?;
        let number = control.receive::<u32>()?.clamp(1, MAX_QPS);
        let _queue_pairs = connect(&device, number, &mut control)?;
        // As long as the client measures; what it says in the end does not matter.
        let _: u32 = control.receive()?;
        return Ok(json!({ "queue_pairs": number }));
    };
    let mut control = ControlChannel::connect(server, options.end.port)?;
    control.send(&options.queue_pairs)?;
    let _queue_pairs = connect(&device, options.queue_pairs, &mut control)?;
    // A device that spins a while before it sleeps is not idle before.
    thread::sleep(SETTLE_TIME);
    let (before, began) = (processor_seconds()?, Instant::now());
    thread::sleep(Duration::from_secs_f64(options.end.seconds));
    let share = (processor_seconds()? - before) / began.elapsed().as_secs_f64();
    let namespace_pid = resident_bytes()?;
    control.send(&0)?;
    Ok(json!({
        "processor_percent": 100.0 * share,
        "queue_pairs": options.queue_pairs,
        "resident_bytes": namespace_pid,
    }))
}

/// Makes queue pairs with queues one deep, and connects each to its twin at the other end.
fn connect(
    device: &Device,
    number: u32,
    control: &mut ControlChannel,
) -> Result<Vec<QueuePair>, Failure> {
    let pd = device.alloc_pd().map_err(connect_qps::refused)?;
    let queue = device.create_cq(2, None).map_err(connect_qps::refused)?;
    let make = || {
        let builder = pd.queue_pair(&queue, &queue).max_send_wr(1).max_recv_wr(1);
        builder.max_send_sge(1).max_recv_sge(1).build()
    };
    let made: Vec<QueuePair> =
        (0..number).map(|_| make()).collect::<Result<_, _>>().map_err(connect_qps::refused)?;
    connect_qps::connect(&made, control)?;
    Ok(made)
}

/// Processor time of this process so far, all threads.
fn processor_seconds() -> Result<f64, Failure> {
    let mut seconds = 0.0;
    let tasks = fs::read_dir("/proc/self/task").map_err(Failure::doing("list threads"))?;
    for task in tasks.flatten() {
        let path = task.path().join("schedstat");
        // Nanoseconds on a processor, nanoseconds waiting for one, turns.
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            // It has ended since it was listed.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => continue,
            Err(error) => return Err(Failure::doing(format!("read {}", path.display()))(error)),
        };
        let nanoseconds = text.split_whitespace().next().and_then(|text| text.parse::<f64>().ok());
        seconds += nanoseconds.unwrap_or(0.0) / 1e9;
    }
    Ok(seconds)
}

/// Memory of this process that is in use.
fn resident_bytes() -> Result<u64, Failure> {
    let path = "/proc/self/status";
    let text = fs::read_to_string(path).map_err(Failure::doing(format!("read {path}")))?;
    resident_in(&text).ok_or_else(|| Failure::told(format!("{path} has no VmRSS")))
}

fn resident_in(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    Some(line.trim().trim_end_matches("kB").trim().parse::<u64>().ok()? * 1024)
}

/// Queue pairs of one run.
const MAX_QPS: u32 = 100_000;
const SETTLE_TIME: Duration = Duration::from_millis(200);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_resident_set_is_in_bytes() {
        assert_eq!(resident_in("Name:\tx\nVmRSS:\t   23088 kB\n"), Some(23088 * 1024));
        assert_eq!(resident_in("Name:\tx\n"), None);
    }

    #[test]
    fn threads_that_end_while_they_are_counted_are_left_out() {
        let counted = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !counted.load(std::sync::atomic::Ordering::Relaxed) {
                    std::thread::spawn(|| ()).join().unwrap();
                }
            });
            let seconds: Result<Vec<f64>, _> = (0..300).map(|_| processor_seconds()).collect();
            counted.store(true, std::sync::atomic::Ordering::Relaxed);
            assert!(seconds.unwrap().iter().all(|&seconds| seconds > 0.0));
        });
    }

    #[test]
    fn this_process_has_some_memory_and_some_time() {
        assert!(resident_bytes().unwrap() > 100_000);
        assert!(processor_seconds().unwrap() >= 0.0);
    }
}
