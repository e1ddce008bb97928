//! Open MPI over TCP: a small `MPI_Allreduce` program, a rank in each host.

use super::last_object;
use super::pick;
use super::roce::{Size, iterations};
use crate::report::Figure;
use crate::suite::{Contestant, Launch};

/// One operation of the first `ranks` hosts, a rank each.
pub(crate) fn allreduce(name: &'static str, bytes: Size, ranks: Size) -> Contestant {
    let needs = ["mpirun", "allreduce_mpi"];
    Contestant::new(name, "Open MPI over TCP", &needs, move |stage| {
        let (bytes, ranks) = (bytes.of(stage), ranks.of(stage));
        let residents = stage.network.residents()?;
        let program = stage.tools.ours("allreduce_mpi");
        let pids: Vec<String> = residents.iter().take(ranks as usize).map(u32::to_string).collect();
        let enter = "set -- $RESIDENTS \"$@\"; shift $OMPI_COMM_WORLD_RANK; \
                     exec nsenter --net=/proc/$1/ns/net -- $PROGRAM";
        let words = [program.display().to_string()].into_iter().chain(iterations(bytes, stage));
        let launch = Launch::new("mpirun")
            .env("RESIDENTS", pids.join(" "))
            .env("PROGRAM", words.collect::<Vec<_>>().join(" "))
            .args(["--allow-run-as-root", "--oversubscribe", "-n", &ranks.to_string()])
            .args(["--mca", "pml", "ob1", "--mca", "btl", "tcp,self", "--bind-to", "none"])
            .args(["sh", "-c", enter]);
        let printed = stage.start(0, &launch)?.finish(stage.patience())?;
        let figures = [("us", Figure::MicrosMean), ("busbw_gbs", Figure::BusGbytes)];
        pick(&last_object(&printed)?, &figures)
    })
}
