//! `call_sequences`: executes sequences of calls on rxe in a guest and on our libraries, and prints their
//! differences. One that no row of the table allows ends it with 1, as a function does that nothing calls and that
//! has no reason there.
#![forbid(unsafe_code)]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Parser;
use roce_guest::{Image, Kernel};
use roce_interop::call_sequences::ends::{self, Combination};
use roce_interop::call_sequences::{
    self as sequences, Allowed, Batch, Ending, Found, Sequence, Summary,
};
use roce_interop::{Testbed, World, report};

/// Execute sequences of calls on the kernel's rdma_rxe in a guest and on this stack, and compare them.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask sequences")]
struct Arguments {
    /// Seed of the first sequence.
    #[arg(long, default_value_t = 0)]
    first: u64,
    /// Number of sequences.
    #[arg(long, default_value_t = 5000)]
    count: u64,
    /// Calls of each sequence.
    #[arg(long, default_value_t = 30)]
    calls: u32,
    /// Sequences that are executed at a time.
    #[arg(long, default_value_t = 12)]
    processes: u32,
    /// Sequences between two looks at the guest.
    #[arg(long, default_value_t = 200)]
    batch: u64,
    /// Print both sides of this seed, and compare it alone; may be given several times.
    #[arg(long)]
    show: Vec<u64>,
    /// Execute sequences with two ends instead: both on rxe, and one or both on this stack.
    #[arg(long)]
    ends: bool,
    /// With --ends, only combinations whose name contains this, such as "ours rxe".
    #[arg(long, default_value = "")]
    combination: String,
    /// Compare the files that programs read, too.
    #[arg(long)]
    files: bool,
    /// Suite of the Debian archive whose newest kernel the guest boots.
    #[arg(long)]
    kernel: Option<String>,
    /// Folder in which the guest is built or was.
    #[arg(long, default_value = "target")]
    target: PathBuf,
}

fn main() -> ExitCode {
    report::exit("call_sequences", run(&Arguments::parse()))
}

impl Arguments {
    /// Returns what is executed together, one after the other.
    fn batches(&self) -> Vec<Batch> {
        let batch = |first, count| {
            let Self { calls, processes, .. } = *self;
            Batch { first, count, calls, processes }
        };
        if !self.show.is_empty() {
            return self.show.iter().map(|seed| batch(*seed, 1)).collect();
        }
        let end = self.first + self.count;
        let starts = (self.first..end).step_by(self.batch.max(1) as usize);
        starts.map(|first| batch(first, self.batch.min(end - first))).collect()
    }
}

/// How often a sequence with a difference is executed again, alone. One that has none then depends on timing, of
/// which a busy machine has every kind: it is listed, and fails nothing.
const REPEATS: u32 = 2;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// Returns true if every difference, and every function that is not called, has its row.
fn run(arguments: &Arguments) -> Result<bool> {
    let kernel = Kernel::chosen(arguments.kernel.as_deref())?;
    let image = World::image_with(&arguments.target, roce_guest::Architecture::X86_64, &kernel)?;
    eprintln!("the guest boots Linux {}", image.kernel_release());
    roce_netns::enter_user_namespace_if_needed()?;
    let program = sequences::prepare(&image)?;
    let allowed = Allowed::read()?;
    let coverage = sequences::coverage::coverage(&image, &allowed)?;
    if arguments.ends {
        return run_ends(arguments, &image, &program, allowed);
    }
    let mut summary = Summary::default();
    let mut world = boot(&image)?;
    let files = if arguments.files || arguments.show.is_empty() {
        sequences::compare_files(&allowed, &world, &program)?
    } else {
        Vec::new()
    };
    for batch in arguments.batches() {
        let before = summary.found.len();
        let (rxe, ours) = on_both(&image, &program, &mut world, batch, &mut summary)?;
        if !arguments.show.is_empty() {
            show(&rxe, &ours);
        }
        summary.add(&allowed, &rxe, &ours);
        for found in summary.found.split_off(before) {
            let mut is_steady = true;
            for _ in 0..REPEATS {
                let alone = Batch { first: found.seed, count: 1, processes: 1, ..batch };
                let mut again = Summary::default();
                let (rxe, ours) = on_both(&image, &program, &mut world, alone, &mut again)?;
                again.add(&allowed, &rxe, &ours);
                // Where rxe hangs, nothing is known.
                is_steady &= again.compared == 0 || !again.found.is_empty();
            }
            let list = if is_steady { &mut summary.found } else { &mut summary.unsteady };
            list.push(found);
        }
        eprintln!("{}", line_of(&summary));
    }
    print(&summary, &allowed);
    println!("{} functions are called; not called:", coverage.called.len());
    for (function, reason) in &coverage.absent {
        println!("  {function}: {reason}");
    }
    for function in &coverage.unexplained {
        println!("  {function}: no reason in the table");
    }
    for difference in &files {
        println!("{difference}");
    }
    let _ended = world.guest.power_off(); // it may have crashed
    Ok(summary.found.is_empty() && files.is_empty() && coverage.unexplained.is_empty())
}

/// Returns true if every difference of sequences with two ends has its row.
fn run_ends(
    arguments: &Arguments,
    image: &Image,
    program: &Path,
    mut allowed: Allowed,
) -> Result<bool> {
    let is_chosen = |it: &Combination| it.name.contains(&arguments.combination);
    let chosen = ends::COMBINATIONS.into_iter().filter(is_chosen);
    let mut summaries: Vec<_> = chosen.map(|it| (it, Summary::default())).collect();
    let places = ends::Places::boot(image)?;
    let see = |combination: Combination, reference: &ends::Printed, seen: &ends::Printed| {
        for (end, (rxe, ours)) in ["a", "b"].iter().zip(reference.iter().zip(seen)) {
            if !arguments.show.is_empty() {
                println!("end {end} of {}", combination.name);
                show(rxe, ours);
            }
        }
    };
    for batch in arguments.batches() {
        places.compare(program, batch, &mut allowed, &mut summaries, see)?;
        for (combination, summary) in &summaries {
            eprintln!("{}: {}", combination.name, line_of(summary));
            let seeds = batch.first..batch.first + batch.count;
            for found in summary.found.iter().filter(|it| seeds.contains(&it.seed)) {
                eprintln!("  seed {}: {}", found.seed, found.difference);
            }
        }
    }
    for (combination, summary) in &summaries {
        println!("{}: {}", combination.name, line_of(summary));
        print(summary, &allowed);
    }
    places.power_off();
    Ok(summaries.iter().all(|(_, it)| it.found.is_empty()))
}

fn line_of(summary: &Summary) -> String {
    let Summary { compared, calls, cut, found, unsteady, crashes, .. } = summary;
    let (found, unsteady, crashes) = (found.len(), unsteady.len(), crashes.len());
    format!(
        "{compared} compared, {calls} calls, {cut} cut, {found} different, {unsteady} not each time, \
         {crashes} crashes"
    )
}

/// Boots a guest whose link has the MTU of our private hosts.
fn boot(image: &Image) -> Result<World> {
    let booted = || {
        let world = World::boot(image)?;
        world.set_path_mtu(4096)?;
        Ok(world)
    };
    // On a busy machine it may take too long, which would end hours of work.
    booted().or_else(|error: roce_interop::Fault| {
        eprintln!("the guest did not boot, so once more: {error}");
        Ok(booted()?)
    })
}

/// Executes a batch in the guest and on ours at the same time: both wait more than they compute.
fn on_both(
    image: &Image,
    program: &Path,
    world: &mut World,
    batch: Batch,
    summary: &mut Summary,
) -> Result<(Vec<Sequence>, Vec<Sequence>)> {
    std::thread::scope(|scope| {
        let ours = scope.spawn(|| sequences::on_ours(program, batch));
        let rxe = on_rxe(image, program, world, batch, summary);
        let ours = ours.join().map_err(|_| "the thread of our side panicked")?;
        Ok((rxe?, ours?))
    })
}

/// Executes a batch in the guest; boots another one behind a sequence that ended or stopped it.
fn on_rxe(
    image: &Image,
    program: &Path,
    world: &mut World,
    batch: Batch,
    summary: &mut Summary,
) -> Result<Vec<Sequence>> {
    let end = batch.first + batch.count;
    let mut done: BTreeMap<u64, Sequence> = BTreeMap::new();
    let mut left_out: BTreeSet<u64> = BTreeSet::new();
    // Alone, behind a crash, so that the next one shows which sequence it was.
    let mut alone = 0;
    loop {
        let is_open = |seed: &u64| !done.contains_key(seed) && !left_out.contains(seed);
        let Some(first) = (batch.first..end).find(is_open) else { break };
        let mut count = (first..end).take_while(is_open).count() as u64;
        let mut processes = batch.processes;
        if alone > 0 {
            (count, processes) = (count.min(alone), 1);
            alone -= count;
        }
        let part = Batch { first, count, processes, ..batch };
        let (sequences, error) = sequences::on_rxe(world, program, part)?;
        for sequence in sequences.into_iter().filter(|it| it.ending != Ending::Cut) {
            done.insert(sequence.seed, sequence);
        }
        let Some(error) = error else { continue };
        if processes == 1 {
            let at = (first..first + count).find(|seed| !done.contains_key(seed)).unwrap_or(first);
            summary.crashes.push((at, error.to_string()));
            left_out.insert(at);
        }
        alone = 2 * u64::from(batch.processes);
        *world = boot(image)?;
    }
    Ok(done.into_values().collect())
}

fn show(rxe: &[Sequence], ours: &[Sequence]) {
    for (name, sequences) in [("rxe", rxe), ("ours", ours)] {
        for sequence in sequences {
            println!("{name:5} = {}", sequence.seed);
        }
        for step in sequences.iter().flat_map(|it| &it.steps) {
            println!("{name:5} {}", step.line);
            for line in &step.effect_lines {
                println!("{name:5}     {line}");
            }
        }
    }
}

/// Prints the differences by kind, and the rows.
fn print(summary: &Summary, allowed: &Allowed) {
    print_kinds(&summary.found);
    if !summary.unsteady.is_empty() {
        println!("not each time:");
        print_kinds(&summary.unsteady);
    }
    for (seed, how) in &summary.crashes {
        println!("rxe crashes at {seed}: {how}");
    }
    for (row, used) in allowed.rows.iter().zip(&summary.used) {
        println!("allowed {used:6} times: {} {}: {}", row.call, row.field, row.reason);
    }
}

/// Prints differences by kind, the commonest first.
fn print_kinds(found: &[Found]) {
    let mut kinds: BTreeMap<String, Vec<&Found>> = BTreeMap::new();
    for found in found {
        let it = &found.difference;
        let kind = format!("{} {}: {:.200} | {:.200}", it.call, it.field, it.rxe, it.ours);
        kinds.entry(kind).or_default().push(found);
    }
    let mut kinds: Vec<_> = kinds.into_iter().collect();
    kinds.sort_by_key(|(_, found)| std::cmp::Reverse(found.len()));
    for (kind, found) in kinds {
        println!("{:5} {kind}", found.len());
        println!("      seed {}: {}", found[0].seed, found[0].difference.line);
        let others: Vec<_> = found[1..].iter().map(|it| it.seed.to_string()).collect();
        if !others.is_empty() {
            println!("      and seeds {}", others.join(", "));
        }
    }
}
