//! Gloo, over TCP or on our libibverbs: a small program on its library, two ranks in two hosts.

use std::env;
use std::fs;
use std::path::PathBuf;
use std::process;
use std::sync::atomic::{AtomicU32, Ordering};

use super::roce::{Size, iterations};
use super::{last_object, pick};
use crate::report::{Figure, Figures};
use crate::suite::network::IFNAME;
use crate::suite::{Candidate, Launch, RunContext, Running};

/// One operation of two ranks over TCP.
pub(crate) fn allreduce(name: &'static str, bytes: Size) -> Candidate {
    Candidate::new(name, "Gloo over TCP, cubic", &[PROGRAM], move |context| {
        let program = Launch::new(context.tools.ours(PROGRAM));
        run(context, bytes, &program.args(["--transport", "tcp", "--device", IFNAME]))
    })
}

/// The same over queue pairs of our libibverbs.
pub(crate) fn allreduce_on_verbs(name: &'static str, bytes: Size) -> Candidate {
    let needs = ["roce", PROGRAM];
    Candidate::new(name, "Gloo over ibverbs on our library", &needs, move |context| {
        let program = context.tools.ours(PROGRAM);
        let launch = context.on_our_device(&program.to_string_lossy());
        run(context, bytes, &launch.args(["--transport", "ibverbs", "--device", "roce0"]))
    })
}

fn run(context: &RunContext<'_>, bytes: Size, program: &Launch) -> Result<Figures, String> {
    // The routes name the congestion control of all sockets.
    context.network.rank_hosts(CONGESTION)?;
    let store = Store::make()?;
    let rank = |number: usize| {
        let launch = program.clone().args(["--rank", &number.to_string(), "--size", "2"]);
        let launch = launch.arg("--store").arg(&store.folder);
        launch.args(iterations(bytes.of(context), context)).on_cpu(number)
    };
    let running = [0, 1].map(|number| context.start(number, &rank(number)));
    let running: Vec<Running> = running.into_iter().collect::<Result<_, String>>()?;
    let printed = running.into_iter().map(|rank| context.finish(rank));
    let printed = printed.collect::<Result<Vec<String>, String>>()?;
    parse(printed.first().map_or("", String::as_str))
}

/// A folder by which the ranks find each other.
struct Store {
    folder: PathBuf,
}

impl Store {
    fn make() -> Result<Self, String> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let folder = env::temp_dir().join(format!("roce-bench-gloo-{}-{number}", process::id()));
        fs::create_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        Ok(Self { folder })
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        // What is left of it lies in the system's folder for such files.
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn parse(text: &str) -> Result<Figures, String> {
    let object = last_object(text)?;
    match object["wrong"].as_u64() {
        Some(0) => pick(&object, &[("us", Figure::MicrosMean), ("busbw_gbs", Figure::BusGbytes)]),
        Some(wrong) => Err(format!("Gloo: {wrong} elements were wrong")),
        None => Err("Gloo: nothing was checked".to_owned()),
    }
}

const PROGRAM: &str = "allreduce_gloo";
/// As of Open MPI.
const CONGESTION: &str = "cubic";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sum_that_is_wrong_or_was_not_checked_is_a_failure() {
        let good = r#"{"bytes":4096,"us":81.3,"busbw_gbs":0.05,"ranks":2,"wrong":0}"#;
        let figures = parse(good).unwrap();
        assert_eq!((figures[&Figure::MicrosMean], figures[&Figure::BusGbytes]), (81.3, 0.05));
        let bad = good.replace("\"wrong\":0", "\"wrong\":7");
        assert_eq!(parse(&bad).unwrap_err(), "Gloo: 7 elements were wrong");
        assert!(parse("{\"us\":1,\"busbw_gbs\":1}").unwrap_err().contains("nothing was checked"));
    }

    #[test]
    fn each_run_has_a_store_of_its_own_which_goes_with_it() {
        let [one, other] = [Store::make().unwrap(), Store::make().unwrap()];
        assert_ne!(one.folder, other.folder);
        let folder = one.folder.clone();
        assert!(folder.is_dir());
        drop(one);
        assert!(!folder.exists() && other.folder.is_dir());
    }
}
