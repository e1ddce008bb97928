//! Compares two builds of `roce` as the sender to rxe in the guest, which goes back N, where packets get
//! lost, late or doubled: `go_back_peer FOLDER OTHER [ROUNDS] [TARGET]`.
//!
//! A folder has `roce`, `libibverbs.so` and `libroce_preload.so`. The guest's `ib_write_bw` is the
//! server, and the one of this machine the client, by `roce run` of each build in turn, first and
//! second. The table has the medians of the rounds, in MiB/s, the time of the first build in times
//! of the second's, and the median of the packets that each sent.
#![forbid(unsafe_code)]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, io};

use roce_interop::{Testbed, World};

/// Why a comparison did not come about.
type Error = Box<dyn std::error::Error + Send + Sync>;

/// What packets suffer, in either direction, in words of `roce run`.
const FAULTS: [&str; 6] = [
    "--loss 0",
    "--delay 0.02 --max-delay 2ms",
    "--duplicate 0.02",
    "--reorder 0.02",
    "--loss 0.005",
    "--delay 0.02 --max-delay 2ms --duplicate 0.02 --reorder 0.02 --loss 0.005",
];
const PROGRAM: &str = "ib_write_bw -s 65536 -n 400 -t 32";

fn main() -> Result<(), Error> {
    let mut arguments = env::args_os().skip(1).map(PathBuf::from);
    let mut folder =
        || arguments.next().ok_or("usage: go_back_peer FOLDER OTHER [ROUNDS] [TARGET]");
    let builds = [folder()?, folder()?];
    let rounds = arguments.next().map_or(Ok(5), |it| it.to_string_lossy().parse::<u64>())?;
    let target = arguments.next().unwrap_or_else(|| "target".into());
    let image = World::image(&target)?;
    roce_netns::enter_user_namespace_if_needed()?;
    let world = World::boot(&image)?;
    world.set_path_mtu(4096)?;
    println!("{:>8} {:>8} {:>6} {:>8} {:>8}  faults", "MiB/s", "other", "time", "packets", "other");
    for faults in FAULTS {
        let mut transfers: [Vec<Transfer>; 2] = Default::default();
        for seed in 1..=rounds {
            for (build, transfers) in builds.iter().zip(&mut transfers) {
                transfers.push(transfer(&world, build, faults, seed)?);
            }
        }
        let median_of = |part: fn(&Transfer) -> f64| {
            transfers.each_ref().map(|of| median(of.iter().map(part).collect()))
        };
        let ([first, second], packets) = (median_of(|it| it.rate), median_of(|it| it.packets));
        let time = second / first;
        println!("{first:8.1} {second:8.1} {time:6.2} {:8} {:8}  {faults}", packets[0], packets[1]);
    }
    world.guest.power_off()?;
    Ok(())
}

/// What became of a run.
struct Transfer {
    /// MiB/s.
    rate: f64,
    /// Packets that the client sent.
    packets: f64,
}

fn transfer(world: &World, build: &Path, faults: &str, seed: u64) -> Result<Transfer, Error> {
    let mut server = world.guest.spawn(PROGRAM)?;
    world.guest.run_ok("until netstat -ltn | grep -q ':18515 '; do usleep 10000; done")?;
    let mut client = Command::new(build.join("roce"));
    client.args(["run", "--counters", "--dev", "roce0=tap0", "--seed", &seed.to_string()]);
    client.args(faults.split(' ')).arg("--").args(PROGRAM.split(' ')).arg("10.9.0.2");
    let output = world.host.run(|| client.output())?;
    server.wait(std::time::Duration::from_secs(60))?;
    let [text, counters] = [&output.stdout, &output.stderr].map(|it| String::from_utf8_lossy(it));
    // Bytes, iterations, the peak, the average, and messages a second.
    let rate = value(&text, 5, 3, "65536");
    let packets = value(&counters, 3, 2, "sent_pkts");
    rate.zip(packets)
        .map(|(rate, packets)| Transfer { rate, packets })
        .ok_or_else(|| io::Error::other(format!("{faults}, seed {seed}: {text}{counters}")).into())
}

/// Returns the number in a column of the line of `columns` words that has `name` among them.
fn value(text: &str, columns: usize, column: usize, name: &str) -> Option<f64> {
    text.lines().find_map(|line| {
        let words: Vec<_> = line.split_whitespace().collect();
        (words.len() == columns && words.contains(&name)).then(|| words[column].parse().ok())?
    })
}

fn median(mut of: Vec<f64>) -> f64 {
    of.sort_by(f64::total_cmp);
    of[of.len() / 2]
}
