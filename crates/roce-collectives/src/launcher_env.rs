//! The environment variables of launchers: rank, size, and the address of rank 0.

use std::fmt;

/// The rank of a process in a job, from the environment variables of its launcher.
///
/// ```
/// use roce_collectives::{LauncherEnv, Launcher};
///
/// let environment = [("RANK", "1"), ("WORLD_SIZE", "3"), ("MASTER_ADDR", "10.0.0.1")];
/// let look_up = |name: &str| {
///     environment.iter().find(|(known, _)| *known == name).map(|(_, value)| value.to_string())
/// };
/// let job = LauncherEnv::from_variables(look_up, 1)?.expect("torchrun's variables");
/// assert_eq!((job.launcher, job.rank, job.size), (Launcher::Torchrun, 1, 3));
/// assert_eq!(job.root()?, "10.0.0.1:29500");
/// # Ok::<(), roce_collectives::LauncherEnvError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LauncherEnv {
    /// The launcher whose variables were found.
    pub launcher: Launcher,
    /// The rank of this process.
    pub rank: u32,
    /// The number of ranks.
    pub size: u32,
    /// The number of this process on its host, if the launcher sets it.
    pub local_rank: Option<u32>,
    root: Option<String>,
}

/// A program that starts ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Launcher {
    /// `torchrun` and others that set `RANK`, `WORLD_SIZE`, `LOCAL_RANK`.
    Torchrun,
    /// Open MPI's `mpirun`: `OMPI_COMM_WORLD_*`.
    OpenMpi,
    /// MPICH's `mpiexec` and other PMI process managers: `PMI_RANK`, `PMI_SIZE`.
    Pmi,
    /// Slurm's `srun`: `SLURM_PROCID`, `SLURM_NTASKS`, `SLURM_LOCALID`.
    Slurm,
}

/// Missing or contradictory environment variables.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LauncherEnvError {
    /// A variable of the launcher is missing.
    #[error("{launcher} has set {present} but not {missing}; give --rank and --size, or set it")]
    Missing {
        /// The launcher.
        launcher: Launcher,
        /// The variable that is set.
        present: &'static str,
        /// The variable that is not set.
        missing: &'static str,
    },
    /// A variable does not hold a valid number.
    #[error("{variable}={value} is not a valid number; correct or unset it")]
    NotANumber {
        /// The variable.
        variable: &'static str,
        /// The value.
        value: String,
    },
    /// The rank is not below the size.
    #[error("{launcher} says rank {rank} of {size}, but ranks are 0 to size - 1")]
    NoSuchRank {
        /// The launcher.
        launcher: Launcher,
        /// The rank.
        rank: u32,
        /// The size.
        size: u32,
    },
    /// The address of rank 0 is unknown for ranks on several hosts.
    #[error(
        "{0} does not set the address of rank 0 for ranks on several hosts; give the root as HOST:PORT, an address of rank 0's host (or set MASTER_ADDR and MASTER_PORT)"
    )]
    NoRoot(Launcher),
}

/// The variables of a launcher.
struct VariableNames {
    launcher: Launcher,
    rank: &'static str,
    size: &'static str,
    local_rank: &'static [&'static str],
    local_size: &'static [&'static str],
    /// Variables that identify the job.
    job: &'static [&'static str],
}

/// In order of priority: a launcher inside a Slurm job takes precedence.
const LAUNCHERS: [VariableNames; 4] = [
    VariableNames {
        launcher: Launcher::Torchrun,
        rank: "RANK",
        size: "WORLD_SIZE",
        local_rank: &["LOCAL_RANK"],
        local_size: &["LOCAL_WORLD_SIZE"],
        job: &["TORCHELASTIC_RUN_ID"],
    },
    VariableNames {
        launcher: Launcher::OpenMpi,
        rank: "OMPI_COMM_WORLD_RANK",
        size: "OMPI_COMM_WORLD_SIZE",
        local_rank: &["OMPI_COMM_WORLD_LOCAL_RANK"],
        local_size: &["OMPI_COMM_WORLD_LOCAL_SIZE"],
        job: &["PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"],
    },
    VariableNames {
        launcher: Launcher::Pmi,
        rank: "PMI_RANK",
        size: "PMI_SIZE",
        local_rank: &["MPI_LOCALRANKID", "PMI_LOCAL_RANK"],
        local_size: &["MPI_LOCALNRANKS", "PMI_LOCAL_SIZE"],
        job: &["PMI_JOBID"],
    },
    VariableNames {
        launcher: Launcher::Slurm,
        rank: "SLURM_PROCID",
        size: "SLURM_NTASKS",
        local_rank: &["SLURM_LOCALID"],
        local_size: &[],
        job: &["SLURM_JOB_ID", "SLURM_JOBID"],
    },
];

/// torchrun's default port.
const DEFAULT_PORT: u16 = 29500;
/// Ports for jobs on one host, below the ephemeral ports.
const JOB_PORTS: std::ops::Range<u32> = 20480..30720;

impl LauncherEnv {
    /// Reads this process's environment; `None` if no launcher started it.
    ///
    /// # Errors
    /// [`LauncherEnvError`] for missing or contradictory variables.
    pub fn from_environment() -> Result<Option<Self>, LauncherEnvError> {
        let look_up = |name: &str| std::env::var(name).ok();
        Self::from_variables(look_up, std::os::unix::process::parent_id())
    }

    /// Reads any environment. `parent` is the parent process's id: ranks on one host share it, so
    /// it identifies the job if no variable does.
    ///
    /// # Errors
    /// As [`from_environment`](Self::from_environment).
    pub fn from_variables(
        look_up: impl Fn(&str) -> Option<String>,
        parent: u32,
    ) -> Result<Option<Self>, LauncherEnvError> {
        let look_up = |name: &str| look_up(name).filter(|value| !value.is_empty());
        let Some(names) = LAUNCHERS.iter().find(|names| look_up(names.rank).is_some()) else {
            return Ok(None);
        };
        let VariableNames { launcher, rank, size, .. } = *names;
        let missing = LauncherEnvError::Missing { launcher, present: rank, missing: size };
        let rank = number(&look_up, rank)?.unwrap_or_default();
        let size = number(&look_up, size)?.ok_or(missing)?;
        if rank >= size {
            return Err(LauncherEnvError::NoSuchRank { launcher, rank, size });
        }
        let local_rank = first_number(&look_up, names.local_rank)?;
        let root = root(names, size, &look_up, parent)?;
        Ok(Some(Self { launcher, rank, size, local_rank, root }))
    }

    /// Returns the address of rank 0: `host:port`.
    ///
    /// # Errors
    /// [`LauncherEnvError::NoRoot`] if ranks are on several hosts and no variable holds the
    /// address.
    pub fn root(&self) -> Result<&str, LauncherEnvError> {
        self.root.as_deref().ok_or(LauncherEnvError::NoRoot(self.launcher))
    }
}

type LookUp<'a> = &'a dyn Fn(&str) -> Option<String>;

/// Returns the address of rank 0, if the environment determines it.
fn root(
    names: &VariableNames,
    size: u32,
    look_up: LookUp<'_>,
    parent: u32,
) -> Result<Option<String>, LauncherEnvError> {
    let port = number(look_up, "MASTER_PORT")?;
    let port = match port.map(u16::try_from) {
        None => None,
        Some(Ok(port)) if port > 0 => Some(port),
        Some(_) => {
            let value = look_up("MASTER_PORT").unwrap_or_default();
            return Err(LauncherEnvError::NotANumber { variable: "MASTER_PORT", value });
        }
    };
    if let Some(host) = look_up("MASTER_ADDR") {
        let port = port.unwrap_or(DEFAULT_PORT);
        // torchrun's agent listens on that port itself in this case; use the next one.
        let taken = look_up("TORCHELASTIC_USE_AGENT_STORE").as_deref() == Some("True");
        let port = match (taken, port) {
            (false, port) => port,
            (true, u16::MAX) => port - 1,
            (true, port) => port + 1,
        };
        return Ok(Some(join(&host, port)));
    }
    let job = names.job.iter().find_map(|name| look_up(name));
    let job = job.unwrap_or_else(|| parent.to_string());
    let step = look_up("SLURM_STEP_ID").filter(|_| names.launcher == Launcher::Slurm);
    let port = port.unwrap_or_else(|| port_of(&format!("{job}.{}", step.unwrap_or_default())));
    if size == 1 || is_on_one_host(names, size, look_up)? {
        return Ok(Some(join("127.0.0.1", port)));
    }
    if names.launcher != Launcher::Slurm {
        return Ok(None);
    }
    // The first task is on the first node of the step.
    let nodes = look_up("SLURM_STEP_NODELIST").or_else(|| look_up("SLURM_JOB_NODELIST"));
    let first = nodes.and_then(|nodes| first_node(&nodes));
    Ok(first.or_else(|| look_up("SLURM_LAUNCH_NODE_IPADDR")).map(|host| join(&host, port)))
}

fn is_on_one_host(
    names: &VariableNames,
    size: u32,
    look_up: LookUp<'_>,
) -> Result<bool, LauncherEnvError> {
    if names.launcher == Launcher::Slurm {
        let nodes = first_number(look_up, &["SLURM_STEP_NUM_NODES", "SLURM_NNODES"])?;
        return Ok(nodes == Some(1));
    }
    Ok(first_number(look_up, names.local_size)? == Some(size))
}

fn number(look_up: LookUp<'_>, variable: &'static str) -> Result<Option<u32>, LauncherEnvError> {
    let Some(value) = look_up(variable) else { return Ok(None) };
    match value.trim().parse() {
        Ok(number) => Ok(Some(number)),
        Err(_) => Err(LauncherEnvError::NotANumber { variable, value }),
    }
}

fn first_number(
    look_up: LookUp<'_>,
    variables: &[&'static str],
) -> Result<Option<u32>, LauncherEnvError> {
    let found = variables.iter().find(|name| look_up(name).is_some());
    found.map_or(Ok(None), |name| number(look_up, name))
}

/// Returns `host:port`, with IPv6 addresses in brackets.
fn join(host: &str, port: u16) -> String {
    if host.parse::<std::net::Ipv6Addr>().is_ok() {
        format!("[{host}]:{port}")
    } else {
        format!("{host}:{port}")
    }
}

/// Returns a port derived from a job's name (FNV-1a).
fn port_of(job: &str) -> u16 {
    let hash = job
        .bytes()
        .fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    (JOB_PORTS.start + hash % (JOB_PORTS.end - JOB_PORTS.start)) as u16
}

/// Returns the first host of a Slurm list such as `gpu[003-010,12],login1`.
fn first_node(list: &str) -> Option<String> {
    let end = list.find([',', '[']).unwrap_or(list.len());
    let head = &list[..end];
    let first = match list[end..].strip_prefix('[') {
        None => head.to_owned(),
        Some(numbers) => {
            let number: String = numbers.chars().take_while(char::is_ascii_digit).collect();
            let after = list[end..].split_once(']')?.1;
            let tail: String = after.chars().take_while(|c| *c != ',').collect();
            // Names with several ranges are not supported.
            if number.is_empty() || tail.contains('[') {
                return None;
            }
            format!("{head}{number}{tail}")
        }
    };
    (!first.is_empty()).then_some(first)
}

impl fmt::Display for Launcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Torchrun => "torchrun",
            Self::OpenMpi => "Open MPI",
            Self::Pmi => "PMI",
            Self::Slurm => "Slurm",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn launcher_env(variables: &[(&str, &str)]) -> Result<Option<LauncherEnv>, LauncherEnvError> {
        let look_up = |name: &str| {
            variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).into())
        };
        LauncherEnv::from_variables(look_up, 4711)
    }

    fn place(variables: &[(&str, &str)]) -> (Launcher, u32, u32, Option<u32>) {
        let found = launcher_env(variables).unwrap().unwrap();
        (found.launcher, found.rank, found.size, found.local_rank)
    }

    fn root(variables: &[(&str, &str)]) -> Result<String, LauncherEnvError> {
        Ok(launcher_env(variables).unwrap().unwrap().root()?.to_owned())
    }

    #[test]
    fn each_launcher_is_recognised_and_the_innermost_takes_precedence() {
        assert_eq!(launcher_env(&[("HOME", "/root")]), Ok(None));
        let slurm = [("SLURM_PROCID", "5"), ("SLURM_NTASKS", "8"), ("SLURM_LOCALID", "1")];
        assert_eq!(place(&slurm), (Launcher::Slurm, 5, 8, Some(1)));
        let pmi = [("PMI_RANK", "1"), ("PMI_SIZE", "2"), ("MPI_LOCALRANKID", "0")];
        assert_eq!(place(&[&slurm[..], &pmi].concat()), (Launcher::Pmi, 1, 2, Some(0)));
        let open_mpi = [
            ("OMPI_COMM_WORLD_RANK", "2"),
            ("OMPI_COMM_WORLD_SIZE", "3"),
            ("OMPI_COMM_WORLD_LOCAL_RANK", "2"),
        ];
        let both = [&slurm[..], &pmi, &open_mpi].concat();
        assert_eq!(place(&both), (Launcher::OpenMpi, 2, 3, Some(2)));
        let torchrun = [("RANK", "0"), ("WORLD_SIZE", "4"), ("LOCAL_RANK", "0")];
        let all = [&both[..], &torchrun].concat();
        assert_eq!(place(&all), (Launcher::Torchrun, 0, 4, Some(0)));
    }

    #[test]
    fn the_master_address_applies_to_every_launcher() {
        let pmi = [("PMI_RANK", "1"), ("PMI_SIZE", "2"), ("MASTER_ADDR", "node1")];
        assert_eq!(root(&pmi).unwrap(), "node1:29500");
        let with_port = [&pmi[..], &[("MASTER_PORT", "1234")]].concat();
        assert_eq!(root(&with_port).unwrap(), "node1:1234");
        let v6 = [("RANK", "0"), ("WORLD_SIZE", "1"), ("MASTER_ADDR", "fd00::1")];
        assert_eq!(root(&v6).unwrap(), "[fd00::1]:29500");
    }

    #[test]
    fn the_port_after_that_of_the_torchrun_agent_is_used() {
        let agent = [
            ("RANK", "0"),
            ("WORLD_SIZE", "2"),
            ("MASTER_ADDR", "localhost"),
            ("MASTER_PORT", "29400"),
            ("TORCHELASTIC_USE_AGENT_STORE", "True"),
        ];
        assert_eq!(root(&agent).unwrap(), "localhost:29401");
    }

    #[test]
    fn ranks_on_one_host_derive_the_port_from_the_job() {
        let local = |job: &'static str| {
            let variables = [
                ("OMPI_COMM_WORLD_RANK", "0"),
                ("OMPI_COMM_WORLD_SIZE", "3"),
                ("OMPI_COMM_WORLD_LOCAL_SIZE", "3"),
                ("PMIX_NAMESPACE", job),
            ];
            root(&variables).unwrap()
        };
        assert!(local("a").starts_with("127.0.0.1:"));
        assert_eq!(local("a"), local("a"));
        assert_ne!(local("a"), local("b"));
        let port: u32 = local("a").rsplit_once(':').unwrap().1.parse().unwrap();
        assert!(JOB_PORTS.contains(&port));
        let hydra = [("PMI_RANK", "1"), ("PMI_SIZE", "2"), ("MPI_LOCALNRANKS", "2")];
        assert!(root(&hydra).unwrap().starts_with("127.0.0.1:"), "the parent tells jobs apart");
    }

    #[test]
    fn ranks_on_several_hosts_need_an_address_of_rank_0() {
        let spread = [
            ("OMPI_COMM_WORLD_RANK", "0"),
            ("OMPI_COMM_WORLD_SIZE", "3"),
            ("OMPI_COMM_WORLD_LOCAL_SIZE", "2"),
        ];
        let refused = root(&spread).unwrap_err();
        assert_eq!(refused, LauncherEnvError::NoRoot(Launcher::OpenMpi));
        assert!(refused.to_string().contains("HOST:PORT"));
    }

    #[test]
    fn slurm_ranks_use_the_first_node_of_their_step() {
        let slurm = |more: &[(&'static str, &'static str)]| {
            let base = [("SLURM_PROCID", "1"), ("SLURM_NTASKS", "4"), ("SLURM_JOB_ID", "77")];
            root(&[&base[..], more].concat())
                .map(|root| root.rsplit_once(':').unwrap().0.to_owned())
        };
        assert_eq!(slurm(&[("SLURM_NNODES", "1")]).unwrap(), "127.0.0.1");
        let nodes = [("SLURM_NNODES", "2"), ("SLURM_STEP_NODELIST", "gpu[003-010,12],login1")];
        assert_eq!(slurm(&nodes).unwrap(), "gpu003");
        let launcher_env = [("SLURM_NNODES", "2"), ("SLURM_LAUNCH_NODE_IPADDR", "10.0.0.9")];
        assert_eq!(slurm(&launcher_env).unwrap(), "10.0.0.9");
        assert_eq!(slurm(&[("SLURM_NNODES", "2")]), Err(LauncherEnvError::NoRoot(Launcher::Slurm)));
    }

    #[test]
    fn the_first_host_of_a_list_is_found_or_refused() {
        assert_eq!(first_node("a,b").as_deref(), Some("a"));
        assert_eq!(first_node("a[9-11]-ib,b").as_deref(), Some("a9-ib"));
        assert_eq!(first_node("solo").as_deref(), Some("solo"));
        for strange in ["", "a[", "a[]", "r[1-2]n[1-4]", "[,"] {
            assert_eq!(first_node(strange), None, "{strange}");
        }
    }

    #[test]
    fn invalid_variables_are_named() {
        let said = |variables: &[(&str, &str)]| launcher_env(variables).unwrap_err().to_string();
        assert!(said(&[("RANK", "x"), ("WORLD_SIZE", "2")]).starts_with("RANK=x is not"));
        assert!(said(&[("RANK", "1")]).contains("set RANK but not WORLD_SIZE"));
        assert!(said(&[("RANK", "2"), ("WORLD_SIZE", "2")]).contains("rank 2 of 2"));
        let port = [("RANK", "0"), ("WORLD_SIZE", "2"), ("MASTER_PORT", "70000")];
        assert!(said(&port).starts_with("MASTER_PORT=70000"));
    }
}
