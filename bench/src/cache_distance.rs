//! The round trip of a cache line between two processors.
//!
//! A virtual machine's processors may share a cache at one time and be far from each other a second
//! later. What one processor writes and the other reads (a frame in a receive ring, data in a socket)
//! then takes several times as long, for every program alike. The bench probes the distance around
//! each run, so that runs are compared with runs at the same distance.
//!
//! ```
//! let distance = roce_bench::cache_distance::probe([0, 1]);
//! assert!(distance.is_none_or(|nanoseconds| nanoseconds > 0.0));
//! ```

use std::hint;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};

use crate::processor::pin_to_cpu;

/// Returns the nanoseconds in which a cache line goes from one processor to the other and back.
///
/// It is the fastest of several bursts: other programs can make a burst slower, and none faster than
/// the distance allows. `None` if one of the processors is missing, or if no burst ended in time since
/// other programs kept both from running together.
pub fn probe(cpus: [usize; 2]) -> Option<f64> {
    let [asking, answering] = cpus;
    if asking == answering {
        return None;
    }
    let line = Line(AtomicU32::new(ANSWERED));
    thread::scope(|scope| {
        scope.spawn(|| {
            let pinned = pin_to_cpu(answering).is_ok();
            answer(&line.0, pinned);
        });
        let asked = scope.spawn(|| {
            let best = pin_to_cpu(asking).ok().and_then(|()| ask(&line.0));
            line.0.store(ENDED, SeqCst);
            best
        });
        // A panic there is none.
        asked.join().unwrap_or(None)
    })
}

/// Returns true if this process may use both processors, and they are two.
pub fn can_probe(cpus: [usize; 2]) -> bool {
    let is_usable = |cpu| {
        thread::scope(|scope| scope.spawn(|| pin_to_cpu(cpu)).join().is_ok_and(|it| it.is_ok()))
    };
    cpus[0] != cpus[1] && cpus.into_iter().all(is_usable)
}

/// Alone on its cache line, and on the one that is fetched with it.
#[repr(align(128))]
struct Line(AtomicU32);

/// Takes the line whenever it has been asked for, until the end.
fn answer(line: &AtomicU32, pinned: bool) {
    if !pinned {
        line.store(ENDED, SeqCst);
    }
    loop {
        match line.load(SeqCst) {
            ASKED => {
                // The other end may have written the end meanwhile.
                let _ = line.compare_exchange(ASKED, ANSWERED, SeqCst, SeqCst);
            }
            ENDED => return,
            _ => hint::spin_loop(),
        }
    }
}

/// Returns the nanoseconds of a round trip in the fastest burst.
fn ask(line: &AtomicU32) -> Option<f64> {
    let deadline = Instant::now() + TIMEOUT;
    let mut best: Option<f64> = None;
    for _ in 0..BURSTS {
        let started = Instant::now();
        for _ in 0..ROUND_TRIPS {
            if line.compare_exchange(ANSWERED, ASKED, SeqCst, SeqCst).is_err() {
                return best;
            }
            let mut looks = 0_u32;
            while line.load(SeqCst) == ASKED {
                looks += 1;
                if looks.is_multiple_of(LOOKS_PER_CHECK) && Instant::now() > deadline {
                    return best;
                }
            }
        }
        let each = started.elapsed().as_secs_f64() * 1e9 / f64::from(ROUND_TRIPS);
        best = Some(best.map_or(each, |best| best.min(each)));
        if Instant::now() > deadline {
            break;
        }
    }
    best
}

const ANSWERED: u32 = 0;
const ASKED: u32 = 1;
const ENDED: u32 = 2;
/// Bursts of a probe, each short enough to fit between two interruptions.
const BURSTS: u32 = 40;
/// Round trips of a burst.
const ROUND_TRIPS: u32 = 100;
const LOOKS_PER_CHECK: u32 = 1 << 12;
/// Limit on a probe; without other load it takes a millisecond.
const TIMEOUT: Duration = Duration::from_millis(200);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_processors_have_a_distance_and_one_has_none() {
        let processors = thread::available_parallelism().map_or(1, usize::from);
        assert_eq!([can_probe([0, 0]), can_probe([0, 1 << 20])], [false, false]);
        assert_eq!(probe([0, 0]), None);
        assert_eq!(probe([0, 1 << 20]), None, "no such processor");
        assert_eq!(probe([1 << 20, 0]), None, "no such processor");
        if processors >= 2 && can_probe([0, 1]) {
            // Other tests may keep both processors busy for all of a probe.
            let found = (0..50).find_map(|_| probe([0, 1]));
            assert!(found.is_some_and(|it| (1.0..1e5).contains(&it)), "{found:?}");
        }
    }
}
