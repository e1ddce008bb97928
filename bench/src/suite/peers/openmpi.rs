//! Open MPI over TCP: a small `MPI_Allreduce` program, a rank in each host.

use super::last_object;
use super::pick;
use super::roce::{Size, iterations};
use crate::mpi::{self, Binding};
use crate::report::{Figure, Figures};
use crate::suite::{Contestant, Launch};

/// One operation of the first `ranks` hosts, a rank each.
pub(crate) fn allreduce(
    name: &'static str,
    bytes: Size,
    ranks: Size,
    binding: Binding,
) -> Contestant {
    let needs = ["mpirun", "allreduce_mpi"];
    let label = match binding {
        Binding::Free => "Open MPI over TCP, cubic",
        Binding::InTurn => "Open MPI over TCP, cubic, bound",
    };
    Contestant::new(name, label, &needs, move |stage| {
        let (bytes, ranks) = (bytes.of(stage), ranks.of(stage));
        let mut seats = stage.network.seats(CONGESTION)?;
        seats.truncate(ranks as usize);
        let program = stage.tools.ours("allreduce_mpi");
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let mut command = mpi::command(&program, &seats, processors, binding);
        command.args(iterations(bytes, stage));
        let launch = Launch::from_command(&command);
        let printed = stage.start(0, &launch)?.finish(stage.patience())?;
        parse(&printed)
    })
}

/// The stronger one here; the kernel's default may be another.
const CONGESTION: &str = "cubic";

fn parse(text: &str) -> Result<Figures, String> {
    let object = last_object(text)?;
    match object["wrong"].as_u64() {
        Some(0) => {}
        Some(wrong) => return Err(format!("Open MPI: {wrong} elements were wrong")),
        None => return Err("Open MPI: nothing was checked".to_owned()),
    }
    pick(&object, &[("us", Figure::MicrosMean), ("busbw_gbs", Figure::BusGbytes)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sum_that_is_wrong_or_was_not_checked_is_a_failure() {
        let good = r#"{"bytes":4,"us":21.3,"algbw_gbs":0.1,"busbw_gbs":0.2,"ranks":2,"wrong":0}"#;
        let figures = parse(good).unwrap();
        assert_eq!((figures[&Figure::MicrosMean], figures[&Figure::BusGbytes]), (21.3, 0.2));
        let bad = good.replace("\"wrong\":0", "\"wrong\":7");
        assert_eq!(parse(&bad).unwrap_err(), "Open MPI: 7 elements were wrong");
        assert!(parse("{\"us\":1,\"busbw_gbs\":1}").unwrap_err().contains("nothing was checked"));
    }
}
