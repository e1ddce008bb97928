//! The unmodified pingpong programs of rdma-core in the guest against `roce pingpong` here.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::fault::{Fault, expect};
use crate::listening::listens;
use crate::params::WaitMode;
use crate::world::{GUEST_ADDRESS, INTERFACE, OUR_ADDRESS, World, program};

/// Which of the two serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Server {
    /// `roce pingpong`.
    Ours,
    /// rdma-core's program.
    Theirs,
}

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
    let (their_output, our_output) = match server {
        Server::Ours => {
            let mut ours = start_ours(world, service, options, None)?;
            let text = wait_until_it_listens(&mut ours)?;
            let theirs = world.guest.run_ok(&format!("{theirs} {OUR_ADDRESS}"))?;
            (theirs, text + &end(ours)?)
        }
        Server::Theirs => {
            let mut server = world.guest.spawn(&theirs)?;
            let listening =
                format!("until netstat -ltn | grep -q ':{PORT} '; do usleep 10000; done");
            world.guest.run_ok(&listening)?;
            let ours = start_ours(world, service, options, Some(GUEST_ADDRESS))?;
            let ours = end(ours)?;
            let theirs = server.wait(LIMIT)?;
            expect(theirs.status.is_success(), || format!("{program}: {}", theirs.stderr))?;
            (theirs.stdout, ours)
        }
    };
    let summary = service.summary();
    for (name, output) in [(program.as_str(), their_output), ("roce pingpong", our_output)] {
        expect(output.contains(summary), || format!("{name} printed no {summary:?}: {output}"))?;
    }
    Ok(())
}

fn start_ours(
    world: &World,
    service: Service,
    options: &str,
    server: Option<&str>,
) -> Result<Child, Fault> {
    let mut command = Command::new(program("roce")?);
    command
        .args(["pingpong", "-d", INTERFACE, "--service", service.name()])
        .args(options.split_whitespace())
        .args(server);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    world.host.spawn(command).map_err(Fault::ours("start roce pingpong"))
}

/// Reads up to the line on the local address, which a server prints before it listens; the
/// client in the guest starts after more than that takes.
fn wait_until_it_listens(child: &mut Child) -> Result<String, Fault> {
    let pid = child.id();
    let deadline = Instant::now() + LIMIT;
    // The table of this process's own network namespace, where it may listen.
    while !listens(pid, PORT) {
        expect(Instant::now() < deadline, || "roce pingpong does not listen".to_owned())?;
        if let Some(status) = child.try_wait().map_err(Fault::ours("wait for roce pingpong"))? {
            let mut text = String::new();
            for stream in [
                child.stderr.take().map(|stream| Box::new(stream) as Box<dyn std::io::Read>),
                child.stdout.take().map(|stream| Box::new(stream) as Box<dyn std::io::Read>),
            ] {
                let lines = stream.map(|stream| BufReader::new(stream).lines());
                text.extend(lines.into_iter().flatten().map_while(Result::ok));
            }
            return Err(Fault::Wrong(format!("roce pingpong: {status}: {text}")));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(String::new())
}

/// Waits for our program's end and returns what it printed.
fn end(mut child: Child) -> Result<String, Fault> {
    let deadline = Instant::now() + LIMIT;
    while child.try_wait().map_err(Fault::ours("wait for roce pingpong"))?.is_none() {
        if Instant::now() > deadline {
            let _ = child.kill(); // it may end just now
            let _ = child.wait();
            return Err(Fault::Silent { end: "roce pingpong", limit: LIMIT });
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let output = child.wait_with_output().map_err(Fault::ours("read roce pingpong's output"))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    expect(output.status.success(), || {
        let stderr = String::from_utf8_lossy(&output.stderr);
        format!("roce pingpong: {}: {text}{stderr}", output.status)
    })?;
    Ok(text)
}

/// Where both listen.
const PORT: u16 = 18515;
const LIMIT: Duration = Duration::from_secs(30);
