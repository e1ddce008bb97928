//! The unmodified pingpong programs of rdma-core in the guest against `roce pingpong` here.

use std::process::Command;
use std::time::Duration;

use crate::fault::{Fault, expect};
use crate::pair;
pub use crate::pair::Server;
use crate::params::WaitMode;
use crate::world::{INTERFACE, World, program as program_file};

/// The service, each with a program of its own in rdma-core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Service {
    /// `ibv_rc_pingpong`.
    Rc,
    /// `ibv_uc_pingpong`.
    Uc,
    /// `ibv_ud_pingpong`.
    Ud,
    /// `ibv_srq_pingpong`.
    Srq,
}

impl Service {
    /// Every service.
    pub const ALL: [Self; 4] = [Self::Rc, Self::Uc, Self::Ud, Self::Srq];

    /// Returns the value of `roce pingpong --service`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Rc => "rc",
            Self::Uc => "uc",
            Self::Ud => "ud",
            Self::Srq => "srq",
        }
    }

    /// Returns the options of both ends: the default size of datagrams differs between versions of
    /// rdma-core.
    const fn options(self) -> &'static str {
        match self {
            Self::Rc | Self::Uc | Self::Srq => "",
            Self::Ud => " -s 2048",
        }
    }

    /// Returns what both ends print at their ends.
    const fn summary(self) -> &'static str {
        match self {
            Self::Rc | Self::Uc | Self::Srq => "8192000 bytes in",
            Self::Ud => "4096000 bytes in",
        }
    }
}

/// Runs the pair, and expects both to end well and to count the same bytes.
///
/// # Errors
/// When it is not so.
pub fn run(
    world: &World,
    service: Service,
    server: Server,
    wait_mode: WaitMode,
) -> Result<(), Fault> {
    let events = if wait_mode == WaitMode::Events { " -e" } else { "" };
    let options = &format!("{}{events}", service.options());
    let program = format!("ibv_{}_pingpong", service.name());
    let theirs = format!("{program} -g 1{options}");
    let roce = program_file("roce")?;
    let ours = |address: Option<&str>| {
        let mut command = Command::new(&roce);
        command.args(["pingpong", "-d", INTERFACE, "--service", service.name()]);
        command.args(options.split_whitespace()).args(address);
        command
    };
    let [ours, theirs] = pair::run(world, server, ours, &theirs, LIMIT)?;
    let summary = service.summary();
    for (name, end) in [("roce pingpong", ours), (program.as_str(), theirs)] {
        expect(end.is_success, || format!("{name} failed: {}", end.text))?;
        let text = end.text;
        expect(text.contains(summary), || format!("{name} printed no {summary:?}: {text}"))?;
    }
    Ok(())
}

const LIMIT: Duration = Duration::from_secs(30);
