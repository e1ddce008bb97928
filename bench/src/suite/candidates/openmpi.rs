//! Open MPI, over TCP or on our libibverbs: a small `MPI_Allreduce` program, a rank in each host.

use super::last_object;
use super::pick;
use super::roce::{Size, iterations};
use crate::mpi::{self, Binding, Transport};
use crate::report::{Figure, Figures};
use crate::suite::network::IFNAME;
use crate::suite::{Candidate, Launch, RunContext};

/// One operation of the first `ranks` hosts, a rank each, over TCP.
pub(crate) fn allreduce(
    name: &'static str,
    bytes: Size,
    ranks: Size,
    binding: Binding,
) -> Candidate {
    let needs = ["mpirun", "allreduce_mpi"];
    let label = match binding {
        Binding::Free => "Open MPI over TCP, cubic",
        Binding::InTurn => "Open MPI over TCP, cubic, bound",
    };
    Candidate::new(name, label, &needs, move |context| {
        run(context, bytes, ranks, binding, &Transport::Tcp)
    })
}

/// The same over UCX and queue pairs of our libibverbs.
pub(crate) fn allreduce_on_verbs(
    name: &'static str,
    bytes: Size,
    ranks: Size,
    binding: Binding,
) -> Candidate {
    let needs = ["mpirun", "allreduce_mpi", "roce"];
    let label = match binding {
        Binding::Free => "Open MPI over UCX on our libibverbs",
        Binding::InTurn => "Open MPI over UCX on our libibverbs, bound",
    };
    Candidate::new(name, label, &needs, move |context| {
        let roce = context.tools.ours("roce");
        let transport = Transport::Verbs { roce, ifname: IFNAME.to_owned() };
        run(context, bytes, ranks, binding, &transport)
    })
}

fn run(
    context: &RunContext<'_>,
    bytes: Size,
    ranks: Size,
    binding: Binding,
    transport: &Transport,
) -> Result<Figures, String> {
    let (bytes, ranks) = (bytes.of(context), ranks.of(context));
    let mut rank_hosts = context.network.rank_hosts(CONGESTION)?;
    rank_hosts.truncate(ranks as usize);
    let program = context.tools.ours("allreduce_mpi");
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let mut command = mpi::command(&program, &rank_hosts, processors, binding, transport);
    command.args(iterations(bytes, context));
    let launch = Launch::from(command);
    let printed = context.output(0, &launch)?;
    parse(&printed)
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
