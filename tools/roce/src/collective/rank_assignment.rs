//! The rank of this process, the number of ranks, and the address of rank 0.

use clap::Args;
use roce_collectives::{Launcher, LauncherEnv, LauncherEnvError};

use crate::error::{CliError, Result};

/// Options of the rank; the launcher's environment sets the others.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Ranks")]
pub(crate) struct RankOptions {
    /// Rank of this process, 0 to size - 1 [default: the launcher's]
    #[arg(long, value_name = "R", requires = "size", conflicts_with = "local")]
    pub(crate) rank: Option<u32>,
    /// Number of ranks [default: the launcher's]
    #[arg(long, value_name = "N", requires = "rank", conflicts_with = "local")]
    pub(crate) size: Option<u32>,
    /// Address on which rank 0 listens [default: the launcher's, MASTER_ADDR:MASTER_PORT]
    #[arg(long, visible_alias = "root_address", value_name = "HOST:PORT")]
    #[arg(conflicts_with = "local", value_parser = host_and_port)]
    pub(crate) root_address: Option<String>,
}

/// The assignment of a rank to this process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RankAssignment {
    pub(crate) rank: u32,
    pub(crate) size: u32,
    pub(crate) root: String,
    /// The origin of the assignment.
    pub(crate) source: String,
    /// True for one process per host, which prints warnings.
    pub(crate) is_first_on_host: bool,
}

impl RankAssignment {
    /// Returns the assignment from the options, else from the launcher; `comm_id` is NCCL's address
    /// of rank 0.
    pub(crate) fn find(
        options: &RankOptions,
        comm_id: Option<&str>,
        launch: Result<Option<LauncherEnv>, LauncherEnvError>,
    ) -> Result<Self> {
        let told_root = options.root_address.as_deref().or(comm_id);
        if let (Some(rank), Some(size)) = (options.rank, options.size) {
            if rank >= size {
                return Err(CliError::new(format!(
                    "there is no rank {rank} of {size}: ranks are 0 to {}",
                    size.saturating_sub(1)
                )));
            }
            let root = match (told_root, launch.as_ref().ok().and_then(Option::as_ref)) {
                (Some(root), _) => root.to_owned(),
                (None, Some(launch)) if launch.root().is_ok() => launch.root()?.to_owned(),
                (None, _) if size == 1 => LOOPBACK_ROOT.to_owned(),
                (None, _) => return Err(CliError::new(NO_ROOT)),
            };
            let source = "--rank and --size".to_owned();
            return Ok(Self { rank, size, root, source, is_first_on_host: true });
        }
        let Some(launch) = launch? else { return Err(CliError::new(NO_RANK)) };
        let root = match told_root {
            Some(root) => root.to_owned(),
            None => {
                launch.root().map_err(|_| CliError::new(no_root_error(launch.launcher)))?.to_owned()
            }
        };
        Ok(Self {
            rank: launch.rank,
            size: launch.size,
            root,
            source: launch.launcher.to_string(),
            is_first_on_host: launch.local_rank.unwrap_or(0) == 0,
        })
    }
}

/// Parses `host:port`, with IPv6 addresses in brackets.
fn host_and_port(text: &str) -> Result<String, String> {
    let (host, port) = text.rsplit_once(':').ok_or("use HOST:PORT")?;
    let port_is_good = port.parse::<u16>().is_ok();
    if host.is_empty() || !port_is_good {
        return Err("use HOST:PORT, with IPv6 addresses in brackets".to_owned());
    }
    Ok(text.to_owned())
}

const LOOPBACK_ROOT: &str = "127.0.0.1:0";

const NO_ROOT: &str = "the address of rank 0 is missing: add --root-address HOST:PORT with an address of \
                       rank 0's host and a free port, the same for all ranks";

const NO_RANK: &str = "\
the rank of this process is missing; use one of these:
  --local 3                                all ranks on this host, in a private network
  --rank R --size N --root-address H:P     each rank started by hand
  mpirun -n 3 roce ..., srun, torchrun     a launcher that sets variables";

fn no_root_error(launcher: Launcher) -> String {
    format!(
        "{launcher} does not set the address of rank 0 for several hosts; add --root-address HOST:PORT \
         with an address of rank 0's host (or set MASTER_ADDR and MASTER_PORT)"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn launched(variables: &[(&str, &str)]) -> Result<Option<LauncherEnv>, LauncherEnvError> {
        let look_up = |name: &str| {
            variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).into())
        };
        LauncherEnv::from_variables(look_up, 1)
    }

    const TORCHRUN: &[(&str, &str)] = &[
        ("RANK", "5"),
        ("WORLD_SIZE", "8"),
        ("LOCAL_RANK", "1"),
        ("MASTER_ADDR", "10.0.0.1"),
        ("MASTER_PORT", "1234"),
    ];

    fn text(outcome: Result<RankAssignment>) -> String {
        match outcome {
            Err(CliError::Message(text)) => text,
            other => format!("{other:?}"),
        }
    }

    #[test]
    fn options_take_precedence_over_the_launcher() {
        let assignment =
            RankAssignment::find(&RankOptions::default(), None, launched(TORCHRUN)).unwrap();
        assert_eq!(
            (assignment.rank, assignment.size, assignment.root.as_str()),
            (5, 8, "10.0.0.1:1234")
        );
        assert!(!assignment.is_first_on_host);
        let options = RankOptions { root_address: Some("h:1".into()), ..Default::default() };
        assert_eq!(RankAssignment::find(&options, None, launched(TORCHRUN)).unwrap().root, "h:1");
        let assignment =
            RankAssignment::find(&RankOptions::default(), Some("c:2"), launched(TORCHRUN)).unwrap();
        assert_eq!(assignment.root, "c:2");
        let options = RankOptions { rank: Some(0), size: Some(2), root_address: None };
        let assignment = RankAssignment::find(&options, None, launched(TORCHRUN)).unwrap();
        assert_eq!(
            (assignment.rank, assignment.size, assignment.root.as_str()),
            (0, 2, "10.0.0.1:1234")
        );
    }

    #[test]
    fn missing_values_are_named() {
        let nothing = RankOptions::default();
        assert!(text(RankAssignment::find(&nothing, None, Ok(None))).contains("--local 3"));
        let options = RankOptions { rank: Some(1), size: Some(2), root_address: None };
        assert!(text(RankAssignment::find(&options, None, Ok(None))).contains("--root-address"));
        let options = RankOptions { rank: Some(2), size: Some(2), root_address: None };
        assert!(text(RankAssignment::find(&options, None, Ok(None))).contains("no rank 2 of 2"));
        let spread = [
            ("OMPI_COMM_WORLD_RANK", "0"),
            ("OMPI_COMM_WORLD_SIZE", "3"),
            ("OMPI_COMM_WORLD_LOCAL_SIZE", "2"),
        ];
        let said = text(RankAssignment::find(&nothing, None, launched(&spread)));
        assert!(said.starts_with("Open MPI does not set"), "{said}");
    }

    #[test]
    fn a_single_rank_needs_no_address() {
        let options = RankOptions { rank: Some(0), size: Some(1), root_address: None };
        assert_eq!(RankAssignment::find(&options, None, Ok(None)).unwrap().root, LOOPBACK_ROOT);
    }

    #[test]
    fn a_root_address_has_a_host_and_a_port() {
        for good in ["10.0.0.1:29500", "[fd00::1]:1", "node1:0"] {
            assert!(host_and_port(good).is_ok(), "{good}");
        }
        for bad in ["10.0.0.1", ":5", "h:", "h:70000", "h:x"] {
            assert!(host_and_port(bad).is_err(), "{bad}");
        }
    }
}
