//! `roce dissect` beside `tshark -r`: packets per second on the same capture, in page cache.
//!
//! The programs take turns, so that what else the machine does hits them alike; medians are
//! compared, by the clock and by processor time. `tshark` runs with its defaults, but for name
//! resolution and the protocols' preferences of this user, which could only slow it down.
#![forbid(unsafe_code)]

use std::fs::{self, File};
use std::io::{self, BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use clap::Parser;

/// Measure `roce dissect` beside `tshark -r`
#[derive(Debug, Parser)]
struct Arguments {
    /// The command to measure: build it with `cargo build --release`
    #[arg(long, default_value = "target/release/roce")]
    roce: PathBuf,
    /// At least so many packets, half of 1 KiB and half of 100 bytes or less
    #[arg(long, default_value_t = 1_000_000)]
    packets: u64,
    /// Rounds; the medians of all count
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Where the capture goes; it is made anew and removed
    #[arg(long, default_value = "target/dissect_vs_tshark.pcap")]
    capture: PathBuf,
}

/// What one run took.
#[derive(Clone, Copy, Debug)]
struct Took {
    wall: Duration,
    processor: Duration,
}

fn main() -> io::Result<()> {
    let arguments = Arguments::parse();
    let mut file = BufWriter::with_capacity(1 << 20, File::create(&arguments.capture)?);
    let packets = roce_bench::traffic::write_capture(&mut file, arguments.packets)?;
    file.into_inner()?.sync_all()?;
    let outcome = compare(&arguments, packets);
    fs::remove_file(&arguments.capture)?;
    outcome
}

fn compare(arguments: &Arguments, packets: u64) -> io::Result<()> {
    let len = read_once(&arguments.capture)?;
    println!("{packets} packets, {len} bytes, {} rounds in turn", arguments.rounds);
    let mut programs = [
        ("tshark", command("tshark", &["-n", "-r"], &arguments.capture)),
        ("lines", command(&arguments.roce, &["dissect"], &arguments.capture)),
        ("summary", command(&arguments.roce, &["dissect", "--summary"], &arguments.capture)),
    ];
    let mut all = [const { Vec::new() }; 3];
    for _ in 0..arguments.rounds {
        for ((_, program), took) in programs.iter_mut().zip(&mut all) {
            took.push(run(program)?);
        }
    }
    let wall = all.each_ref().map(|took| median(took, |took| took.wall));
    let processor = all.each_ref().map(|took| median(took, |took| took.processor));
    for (what, took) in [("by the clock", wall), ("by processor time", processor)] {
        println!("{what}:");
        for ((name, _), seconds) in programs.iter().zip(took) {
            let rate = packets as f64 / seconds;
            println!(
                "  {name:8} {seconds:8.3} s {rate:12.0} packets/s {:8.1} x",
                took[0] / seconds
            );
        }
    }
    println!("wanted: lines 15 x, summary 30 x");
    Ok(())
}

fn command(program: impl AsRef<std::ffi::OsStr>, options: &[&str], capture: &Path) -> Command {
    let mut command = Command::new(program);
    command.args(options).arg(capture).stdin(Stdio::null());
    command.stdout(Stdio::null()).stderr(Stdio::null());
    command
}

fn run(command: &mut Command) -> io::Result<Took> {
    let (began, before) = (Instant::now(), children_time()?);
    let status = command.status()?;
    if !status.success() {
        return Err(io::Error::other(format!("{command:?}: {status}")));
    }
    Ok(Took { wall: began.elapsed(), processor: children_time()? - before })
}

/// Processor time of all children that have ended.
fn children_time() -> io::Result<Duration> {
    let stat = fs::read_to_string("/proc/self/stat")?;
    // Behind the name, which may hold spaces: state is the first, and these the 14th and 15th.
    let behind_name = stat.rsplit_once(')').map_or("", |(_, behind)| behind);
    let ticks: u64 = behind_name
        .split_whitespace()
        .skip(13)
        .take(2)
        .filter_map(|field| field.parse::<u64>().ok())
        .sum();
    Ok(Duration::from_millis(ticks * MILLIS_PER_TICK))
}

/// Puts the file into the page cache.
fn read_once(path: &Path) -> io::Result<u64> {
    let mut buffer = vec![0; 1 << 20];
    let (mut file, mut len) = (File::open(path)?, 0);
    loop {
        match file.read(&mut buffer)? {
            0 => break,
            read => len += read as u64,
        }
    }
    io::stdout().flush()?;
    Ok(len)
}

fn median(all: &[Took], of: fn(&Took) -> Duration) -> f64 {
    let mut sorted: Vec<Duration> = all.iter().map(of).collect();
    sorted.sort();
    sorted[sorted.len() / 2].as_secs_f64().max(0.001)
}

/// What `/proc` counts in, on every Linux that Rust's standard library runs on.
const MILLIS_PER_TICK: u64 = 10;
