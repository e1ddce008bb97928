//! Threads of one process that send to themselves, over one shard of a device or two.
//!
//! ```text
//! # shards --rounds 9
//! message           unit     1 thread, 1 shard  1 thread, 2 shards  ratio  2 threads, 1 shard  2 threads, 2 shards  ratio
//! 8 B one by one    M/s                   3.20                3.19   1.00                2.00                 5.80   2.90
//! ```
//!
//! Each thread has a completion queue, and a queue pair that is connected with another one of it.
//! With two shards each thread so has a shard of its own; a thread that is alone opens the first
//! one only. All cells have a device each, open from the beginning, and are measured in turn in
//! each round. The figures are medians over the rounds; a ratio is that of two shards to one, and a
//! median over the rounds too, since the machine may be slower in one round than in the next.

use std::collections::BTreeMap;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use clap::Parser;
use roce_netns::{Host, IpNet, Link, VirtualNetwork};
use roce_verbs::{
    AccessFlags, CompletionQueue, CompletionStatus, ConnectOptions, Device, DeviceConfig,
    MemoryRegion, QueuePair, RemoteAddr, SendOperation, SendWr,
};
use serde_json::{Value, json};

use crate::connect_qps::refused;
use crate::program::Failure;

/// Rates of threads that send to themselves, over one shard of a device or two. Prints a table, and the
/// figures as JSON.
#[derive(Clone, Debug, Parser)]
#[command(name = "shards", about)]
pub struct Options {
    /// Rounds, in each of which every cell of the table is measured once.
    #[arg(long, default_value_t = 9, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: u32,
    /// Milliseconds of each measurement.
    #[arg(long, default_value_t = 300, value_parser = clap::value_parser!(u64).range(10..=10_000))]
    pub millis: u64,
}

/// What is sent.
#[derive(Clone, Copy, Debug)]
struct Message {
    name: &'static str,
    len: usize,
    /// Requests of a post.
    list: usize,
    /// Most requests that are not complete.
    window: usize,
}

const MESSAGES: [Message; 3] = [
    Message { name: "8 B one by one", len: 8, list: 1, window: 256 },
    Message { name: "8 B in lists of 64", len: 8, list: 64, window: 256 },
    Message { name: "64 KiB", len: 64 << 10, list: 1, window: 16 },
];

/// Requests of which one is signaled, where each post is of one.
const SIGNALED: usize = 64;

impl Message {
    fn unit(self) -> &'static str {
        if self.len == 8 { "M/s" } else { "Gbit/s" }
    }

    fn figure(self, messages: u64, seconds: f64) -> f64 {
        let rate = messages as f64 / seconds;
        if self.len == 8 { rate / 1e6 } else { rate * self.len as f64 * 8.0 / 1e9 }
    }

    /// Requests between two that are signaled.
    fn run(self) -> usize {
        if self.len == 8 { SIGNALED } else { 1 }
    }
}

/// Threads and shards.
const CELLS: [(usize, usize); 4] = [(1, 1), (1, 2), (2, 1), (2, 2)];

/// What one thread uses.
struct Lane {
    queue: CompletionQueue,
    here: QueuePair,
    _there: QueuePair,
    memory: MemoryRegion,
}

impl Lane {
    fn on(device: &Device) -> Result<Self, roce_verbs::Error> {
        let pd = device.alloc_pd()?;
        let queue = device.create_cq(4096, None)?;
        let pair = || pd.queue_pair(&queue, &queue).max_send_wr(512).max_inline(64).build();
        let (here, there) = (pair()?, pair()?);
        let options = ConnectOptions::default();
        here.connect(&there.dest(None)?, &options)?;
        there.connect(&here.dest(None)?, &options)?;
        let memory =
            pd.register(128 << 10, AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_WRITE)?;
        Ok(Self { queue, here, _there: there, memory })
    }

    /// Sends until `is_over`, and returns the number of messages that are complete by then.
    fn send(&self, message: Message, is_over: &AtomicBool) -> Result<u64, Failure> {
        let Message { len, list, window, .. } = message;
        let addr = self.memory.address() + (64 << 10);
        let write = SendOperation::write(RemoteAddr { addr, rkey: self.memory.rkey() });
        let long = self.memory.sge(..len).map_err(refused)?;
        let run = message.run();
        let (mut posted, mut complete) = (0, 0);
        let take = |max, complete: &mut usize| {
            let mut status = CompletionStatus::Success;
            self.queue.poll_with(max, |completion| {
                // The requests behind the one that fails are flushed.
                if status == CompletionStatus::Success {
                    status = completion.status;
                }
                *complete += run;
            });
            match status {
                CompletionStatus::Success => Ok(()),
                failed => Err(Failure::told(format!("a WRITE has failed: {failed:?}"))),
            }
        };
        while !is_over.load(Ordering::Relaxed) {
            while posted - complete + list <= window {
                let request = |number: usize| {
                    let id = number as u64;
                    let work = match len {
                        8 => SendWr::inline(id, write, &[7; 8]),
                        _ => SendWr::new(id, write, [long]),
                    };
                    if (number + 1).is_multiple_of(run) { work.signaled() } else { work }
                };
                self.here.post_send((posted..posted + list).map(request)).map_err(refused)?;
                posted += list;
            }
            take(64, &mut complete)?;
        }
        let counted = complete as u64;
        // The next measurement begins with nothing under way.
        while posted - complete >= run {
            take(64, &mut complete)?;
        }
        Ok(counted)
    }
}

/// A cell of the table: a device, and what each of the threads uses.
struct Cell {
    lanes: Vec<Lane>,
    /// The network goes with them.
    _hosts: [Host; 2],
}

impl Cell {
    fn new(network: &VirtualNetwork, threads: usize, shards: usize) -> Result<Self, Failure> {
        let told = |error: &dyn std::fmt::Display| Failure::told(error.to_string());
        let name = format!("t{threads}s{shards}");
        let host = network.host(&name).map_err(|error| told(&error))?;
        let other = network.host(&format!("{name}-peer")).map_err(|error| told(&error))?;
        let link = Link { mtu: 4200 };
        network.veth((&host, "eth0"), (&other, "eth0"), link).map_err(|error| told(&error))?;
        let address: IpNet = "10.1.0.1/24".parse().map_err(|error| told(&error))?;
        host.address("eth0", address).map_err(|error| told(&error))?;
        let config = DeviceConfig { shards, ..DeviceConfig::default() };
        let device = host.run(|| Device::open("eth0", config)).map_err(refused)?;
        let lanes: Result<_, _> = (0..threads).map(|_| Lane::on(&device)).collect();
        Ok(Self { lanes: lanes.map_err(refused)?, _hosts: [host, other] })
    }

    /// Returns the rate of all threads together.
    fn measure(&self, message: Message, time: Duration) -> Result<f64, Failure> {
        let is_over = AtomicBool::new(false);
        let start = Barrier::new(self.lanes.len() + 1);
        thread::scope(|scope| {
            let threads: Vec<_> = self
                .lanes
                .iter()
                .map(|lane| {
                    let (start, is_over) = (&start, &is_over);
                    scope.spawn(move || {
                        start.wait();
                        lane.send(message, is_over)
                    })
                })
                .collect();
            start.wait();
            let began = Instant::now();
            thread::sleep(time);
            is_over.store(true, Ordering::Relaxed);
            let seconds = began.elapsed().as_secs_f64();
            let mut messages = 0;
            for thread in threads {
                let sent = thread.join().map_err(|_| Failure::told("a thread has panicked"))?;
                messages += sent?;
            }
            Ok(message.figure(messages, seconds))
        })
    }
}

/// Measures all cells in turn, prints the table, and returns the figures.
///
/// # Errors
/// Without the right to make namespaces, or when a request fails.
pub fn run(options: &Options) -> Result<Value, Failure> {
    let network = VirtualNetwork::new().map_err(|error| Failure::told(error.to_string()))?;
    let cells: Result<Vec<_>, _> =
        CELLS.iter().map(|(threads, shards)| Cell::new(&network, *threads, *shards)).collect();
    let cells = cells?;
    let time = Duration::from_millis(options.millis);
    let mut figures: BTreeMap<(usize, usize), Vec<f64>> = BTreeMap::new();
    for _ in 0..options.rounds {
        for (row, message) in MESSAGES.into_iter().enumerate() {
            for (column, cell) in cells.iter().enumerate() {
                figures.entry((row, column)).or_default().push(cell.measure(message, time)?);
            }
        }
    }
    println!(
        "{:<20}{:<8}{:>19}{:>20}{:>7}{:>20}{:>21}{:>7}",
        "message",
        "unit",
        "1 thread, 1 shard",
        "1 thread, 2 shards",
        "ratio",
        "2 threads, 1 shard",
        "2 threads, 2 shards",
        "ratio"
    );
    let mut report = serde_json::Map::new();
    for (row, message) in MESSAGES.into_iter().enumerate() {
        let column = |number| &figures[&(row, number)];
        let ratio = |one: usize, two: usize| {
            let ratios = column(two).iter().zip(column(one)).map(|(two, one)| two / one);
            median(ratios.collect())
        };
        let [a, b, c, d] = [0, 1, 2, 3].map(|number| median(column(number).clone()));
        let (alone, both) = (ratio(0, 1), ratio(2, 3));
        println!(
            "{:<20}{:<8}{a:>19.2}{b:>20.2}{alone:>7.2}{c:>20.2}{d:>21.2}{both:>7.2}",
            message.name,
            message.unit()
        );
        let cells = json!({ "unit": message.unit(), "t1s1": a, "t1s2": b, "t2s1": c, "t2s2": d,
            "ratio_of_one_thread": alone, "ratio_of_two_threads": both });
        report.insert(message.name.to_owned(), cells);
    }
    Ok(Value::Object(report))
}

/// Returns the median; that of an even number is the mean of the two in the middle.
fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    let middle = figures.len() / 2;
    match figures.len() {
        0 => 0.0,
        len if len.is_multiple_of(2) => f64::midpoint(figures[middle - 1], figures[middle]),
        _ => figures[middle],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_an_even_number_is_between_the_two_in_the_middle() {
        assert_eq!(median(vec![3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(vec![4.0, 1.0, 2.0, 100.0]), 3.0);
    }

    #[test]
    fn a_window_holds_whole_runs_of_signaled_requests() {
        for message in MESSAGES {
            assert!(message.window.is_multiple_of(message.run()), "{message:?}");
            assert!(message.run().is_multiple_of(message.list) || message.list == 1);
        }
    }
}
