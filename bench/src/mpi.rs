//! Open MPI beside us, over TCP, or on our libibverbs: a rank in each network namespace.
//!
//! The program is `bench/mpi/allreduce.c`, built by `mpicc -O2 -o allreduce_mpi allreduce.c`.
//!
//! A rank talks with the daemon of its host over `lo`, so a wrapper that enters a namespace
//! around the rank alone is not enough: `mpirun` runs in the namespace of rank 0, and starts a
//! daemon in each other one through an agent that stands for `ssh`, `bench/mpi/enter.sh`.
//!
//! Open MPI does not choose the congestion control of its sockets; the kernel's default need not
//! be the stronger one. [`route_with`] makes it a property of the route, which every socket takes
//! over that goes that way (`ss -ti` shows it).
//!
//! ```
//! use std::path::Path;
//! use roce_bench::mpi::{self, Binding, RankHost, Transport};
//!
//! let rank_hosts = [
//!     RankHost { address: [10, 0, 0, 1].into(), namespace_pid: 4711 },
//!     RankHost { address: [10, 0, 0, 2].into(), namespace_pid: 4712 },
//! ];
//! let program = Path::new("allreduce_mpi");
//! let command = mpi::command(program, &rank_hosts, 2, Binding::Free, &Transport::Tcp);
//! assert_eq!(command.get_program(), "mpirun");
//! // Started in the namespace of process 4711, behind `route_with` in both.
//! ```

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Where a rank runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RankHost {
    /// Its host's address, which every other host reaches.
    pub address: Ipv4Addr,
    /// A process in its host's network namespace, which stays until all ranks have ended.
    pub namespace_pid: u32,
}

/// Which processors ranks may run on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Binding {
    /// All: the system moves them as it likes.
    Free,
    /// One each, in turn: of three ranks on two processors, the first and the last share one.
    InTurn,
}

impl Binding {
    /// The processor of a rank, of so many processors; `None`: any.
    ///
    /// ```
    /// use roce_bench::mpi::Binding;
    /// assert_eq!([0, 1, 2].map(|rank| Binding::InTurn.of(rank, 2)), [Some(0), Some(1), Some(0)]);
    /// assert_eq!(Binding::Free.of(1, 2), None);
    /// ```
    pub fn of(self, rank: usize, processors: usize) -> Option<usize> {
        (self == Self::InTurn).then(|| rank % processors.max(1))
    }
}

/// What carries the messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Transport {
    /// Open MPI's own TCP.
    Tcp,
    /// UCX with queue pairs of our libibverbs, RC and UD, and nothing else.
    Verbs {
        /// The command `roce`, which starts each rank.
        roce: PathBuf,
        /// The interface, in every host.
        ifname: String,
    },
}

/// The command that runs `program` with a rank in each rank_host, on a machine with `processors`; it
/// wants to be started in the namespace of the first rank_host. Append the program's own arguments.
///
/// It ends by itself after two minutes, whatever happens. Its standard output is rank 0's.
///
/// As it comes, but for what the comparison needs: one transport alone, no binding of its own (the
/// default binds ranks of several "hosts" to the same processor), and where there are more ranks
/// than processors they yield while they wait. Open MPI does that by itself when it knows; here it
/// takes each namespace for a machine, and a wait of microseconds would become one of
/// milliseconds.
pub fn command(
    program: &Path,
    rank_hosts: &[RankHost],
    processors: usize,
    binding: Binding,
    transport: &Transport,
) -> Command {
    let hosts: Vec<String> =
        rank_hosts.iter().map(|rank_host| rank_host.address.to_string()).collect();
    let namespaces: Vec<String> = rank_hosts
        .iter()
        .map(|rank_host| format!("{}=/proc/{}/ns/net", rank_host.address, rank_host.namespace_pid))
        .collect();
    let mut command = Command::new("mpirun");
    command.env("ROCE_BENCH_NAMESPACES", namespaces.join(" "));
    command.args(["--allow-run-as-root", "--timeout", "120", "--bind-to", "none"]);
    command.args(["-H", &hosts.join(","), "-n", &rank_hosts.len().to_string()]);
    command.args(["--mca", "plm_rsh_agent", AGENT, "--mca", "plm_rsh_no_tree_spawn", "1"]);
    match transport {
        Transport::Tcp => command.args(["--mca", "pml", "ob1", "--mca", "btl", "tcp,self"]),
        Transport::Verbs { .. } => command
            .args(["--mca", "pml", "ucx", "--mca", "osc", "ucx"])
            .args(["-x", "UCX_TLS=rc_verbs,ud_verbs,self", "-x", "UCX_NET_DEVICES=roce0:1"]),
    };
    if rank_hosts.len() > processors {
        command.args(["--mca", "mpi_yield_when_idle", "1"]);
    }
    if binding == Binding::InTurn {
        command.args([BIND, &processors.to_string()]);
    }
    if let Transport::Verbs { roce, ifname } = transport {
        command.arg(roce).args(["run", "--dev", &format!("roce0={ifname}"), "--"]);
    }
    command.arg(program);
    command
}

/// The command that gives the route to an interface's own network a congestion control: run it
/// in the host that has `address`, of `prefix` bits, on that interface.
///
/// ```
/// use roce_bench::mpi::route_with;
///
/// let command = route_with("cubic", "eth0", [10, 0, 0, 2].into(), 24);
/// let arguments: Vec<_> = command.get_args().map(|word| word.to_string_lossy()).collect();
/// assert_eq!(
///     arguments.join(" "),
///     "route change 10.0.0.0/24 dev eth0 proto kernel scope link src 10.0.0.2 congctl cubic"
/// );
/// ```
pub fn route_with(congestion: &str, interface: &str, address: Ipv4Addr, prefix: u32) -> Command {
    let mask = u32::MAX.checked_shl(32 - prefix.min(32)).unwrap_or(0);
    let network = Ipv4Addr::from(u32::from(address) & mask);
    let mut command = Command::new("ip");
    command.args(["route", "change", &format!("{network}/{prefix}"), "dev", interface]);
    command.args(["proto", "kernel", "scope", "link", "src", &address.to_string()]);
    command.args(["congctl", congestion]);
    command
}

/// mpirun cuts it at spaces: the tree must not lie under a path that has any.
const AGENT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/mpi/enter.sh");
const BIND: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/mpi/bind.sh");

#[cfg(test)]
mod tests {
    use super::*;

    fn words(ranks: u32, processors: usize, binding: Binding, transport: &Transport) -> String {
        let rank_host = |rank: u32| RankHost {
            address: Ipv4Addr::from(0x0a00_0001 + rank),
            namespace_pid: 100 + rank,
        };
        let rank_hosts: Vec<RankHost> = (0..ranks).map(rank_host).collect();
        let command = command(Path::new("program"), &rank_hosts, processors, binding, transport);
        let words: Vec<_> = command.get_args().map(|word| word.to_string_lossy()).collect();
        words.join(" ")
    }

    #[test]
    fn ranks_yield_where_they_outnumber_the_processors_and_only_there() {
        let words = |ranks| words(ranks, 2, Binding::Free, &Transport::Tcp);
        assert!(words(3).contains("--mca mpi_yield_when_idle 1"));
        assert!(!words(2).contains("yield"));
        assert!(words(3).contains("-H 10.0.0.1,10.0.0.2,10.0.0.3 -n 3"));
    }

    #[test]
    fn ranks_that_are_bound_are_started_through_the_script_that_binds() {
        assert!(words(3, 2, Binding::InTurn, &Transport::Tcp).ends_with("/mpi/bind.sh 2 program"));
        assert!(!words(3, 2, Binding::Free, &Transport::Tcp).contains("bind.sh"));
    }

    #[test]
    fn ranks_on_our_library_have_no_other_transport_and_are_started_by_roce_run() {
        let verbs = Transport::Verbs { roce: "bin/roce".into(), ifname: "eth0".into() };
        let words = words(2, 2, Binding::Free, &verbs);
        assert!(words.contains("--mca pml ucx") && !words.contains("tcp"));
        assert!(words.contains("UCX_TLS=rc_verbs,ud_verbs,self"));
        assert!(words.ends_with("bin/roce run --dev roce0=eth0 -- program"));
    }

    #[test]
    fn the_scripts_exist() {
        for script in [AGENT, BIND] {
            assert!(Path::new(script).exists(), "{script}");
        }
    }

    #[test]
    fn any_prefix_makes_a_network() {
        for (prefix, network) in [(0, "0.0.0.0/0"), (8, "10.0.0.0/8"), (32, "10.1.2.3/32")] {
            let command = route_with("bbr", "eth0", [10, 1, 2, 3].into(), prefix);
            assert_eq!(command.get_args().nth(2).unwrap(), network);
        }
    }
}
