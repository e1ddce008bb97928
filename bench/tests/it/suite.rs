//! Benchmarks on real networks (tier 1): turns of candidates, and those that fail.

use roce_test_macros::tier1;
use std::net::TcpStream;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use roce_bench::report::{BenchmarkResult, Comparison, Figure, Verdict};
use roce_bench::suite::{
    Benchmark, Candidate, Launch, LossOf, Network, RunConfig, Tools, Topology, finish,
    run_benchmark, run_pair, start,
};
use roce_netns::process::children_of;

const CONFIG: RunConfig = RunConfig { rounds: 3, seconds: 0.1, quick: true, realtime: false };

/// Runs a benchmark of programs that are not ours, without further rounds.
fn run(benchmark: &Benchmark) -> BenchmarkResult {
    let tools = Tools::find(Path::new("/nowhere"));
    run_benchmark(benchmark, &tools, CONFIG, &mut Duration::default(), &mut |_| {})
}

fn benchmark(topology: Topology, candidates: Vec<Candidate>) -> Benchmark {
    let (title, axis, notes) = ("a benchmark".to_owned(), None, Vec::new());
    let comparisons = vec![Comparison::beside("good", Figure::Gbits, "bad").at_least(1.0)];
    Benchmark { name: "benchmark", title, topology, axis, candidates, comparisons, notes }
}

#[tier1]
fn contestants_take_turns_and_one_that_fails_does_not_stop_the_others() {
    let turns = Arc::new(Mutex::new(String::new()));
    let note = |letter: char| {
        let turns = Arc::clone(&turns);
        move || turns.lock().unwrap().push(letter)
    };
    let (good, bad) = (note('A'), note('B'));
    let candidates = vec![
        Candidate::new("good", "good", &[], move |_| {
            good();
            Ok([(Figure::Gbits, 1.0)].into())
        }),
        Candidate::new("bad", "bad", &[], move |_| {
            bad();
            Err("no luck".to_owned())
        }),
        Candidate::new("absent", "absent", &["roce"], |_| panic!("it is not there")),
    ];
    let benchmark = benchmark(Topology::Cable { mtu: 1500 }, candidates);
    let result = run(&benchmark);
    // A candidate that has failed twice runs no more.
    assert_eq!(*turns.lock().unwrap(), "ABABA");
    assert_eq!(result.candidate("good").unwrap().count(), (3, 0));
    assert_eq!(result.candidate("bad").unwrap().count(), (2, 2));
    let absent = result.candidate("absent").unwrap();
    assert_eq!(absent.missing.as_deref(), Some("roce is not built"));
    let verdict = benchmark.comparisons[0].evaluate(&result).verdict;
    assert_eq!(verdict, Verdict::NotMeasured("bad failed".to_owned()));
}

#[tier1]
fn every_run_has_the_distance_of_the_processors_around_it() {
    let failing = |name| Candidate::new(name, name, &[], |_| Err("no luck".to_owned()));
    let good = Candidate::new("good", "good", &[], |_| Ok([(Figure::Gbits, 1.0)].into()));
    let benchmark = benchmark(Topology::Cable { mtu: 1500 }, vec![good, failing("bad")]);
    let result = run(&benchmark);
    let runs = result.candidates.iter().flat_map(|candidate| &candidate.points[0].runs);
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    for run in runs {
        assert_eq!(run.cache.is_some(), processors >= 2, "{run:?}");
        let probes = run.cache.into_iter().flat_map(|cache| [cache.before, cache.after]).flatten();
        assert!(probes.into_iter().all(|probe| probe > 0.0), "{run:?}");
    }
}

#[tier1]
fn a_program_that_does_not_end_is_ended() {
    let network = Network::make(Topology::Cable { mtu: 1500 }).unwrap();
    let started = Instant::now();
    let running = start(network.host(0), &Launch::new("sleep").arg("100")).unwrap();
    let id = running.id();
    let why = finish(running, Duration::from_millis(50)).unwrap_err();
    assert_eq!(why, "sleep did not end within 0 s");
    assert!(started.elapsed() < Duration::from_secs(50));
    assert!(!Path::new(&format!("/proc/{id}")).exists());
}

#[tier1]
fn a_server_that_fails_is_quoted_before_its_client_starts() {
    let network = Network::make(Topology::Cable { mtu: 1500 }).unwrap();
    let server = Launch::new("sh").args(["-c", "echo no such device >&2; exit 3"]);
    let client = Launch::new("sh").args(["-c", "echo must not run; exit 4"]);
    let ends = ((network.host(1), &server), (network.host(0), &client));
    let why = run_pair(ends.0, 7, ends.1, Duration::from_secs(5)).unwrap_err();
    assert_eq!(why, "sh: no such device (exit status: 3)");
}

#[tier1]
fn a_wire_loses_what_it_is_told_to_lose() {
    let tools = Tools::find(Path::new("/nowhere"));
    for (of, one_in, arrives) in [
        (LossOf::Frames, 1, false),
        (LossOf::Packets, 1, false),
        (LossOf::Frames, u32::MAX, true),
        (LossOf::Packets, u32::MAX, true),
    ] {
        let topology = Topology::Lossy { mtu: 1500, one_in, of };
        assert_eq!(tools.lacks(topology.needs()), None);
        let network = Network::make(topology).unwrap();
        let listener = network.host(1).run(|| std::net::TcpListener::bind("10.99.0.2:7").unwrap());
        let address = listener.local_addr().unwrap();
        let timeout = Duration::from_millis(500);
        let connected = network.host(0).run(|| TcpStream::connect_timeout(&address, timeout));
        assert_eq!(connected.is_ok(), arrives, "{of:?} {one_in}: {connected:?}");
    }
}

/// How many children of this process are busy loops.
fn busy_loops() -> usize {
    let is_busy_loop = |process: &u32| {
        let command = std::fs::read_to_string(format!("/proc/{process}/cmdline"));
        command.is_ok_and(|command| command.contains("while :; do :; done"))
    };
    children_of(std::process::id()).iter().filter(|child| is_busy_loop(child)).count()
}

#[tier1]
fn busy_loops_run_as_long_as_their_contestant_and_end_with_it_also_if_it_fails() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let notes = Arc::clone(&seen);
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let bad = Candidate::new("bad", "bad", &[], move |_| {
        // On a busy machine the last of them may not have begun its program yet, and a process that
        // is about to change its program has no command line: a second look may find fewer.
        let until = Instant::now() + Duration::from_secs(10);
        let loops = loop {
            let loops = busy_loops();
            if loops >= 2 * processors || Instant::now() >= until {
                break loops;
            }
            std::thread::yield_now();
        };
        notes.lock().unwrap().push(loops);
        Err("no luck".to_owned())
    });
    let benchmark = benchmark(Topology::Cable { mtu: 1500 }, vec![bad.beside_busy_loops(1.0)]);
    run(&benchmark);
    assert_eq!(*seen.lock().unwrap(), [2 * processors; 2]);
    assert_eq!(busy_loops(), 0);
}
