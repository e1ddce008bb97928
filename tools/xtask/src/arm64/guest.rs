//! `cargo xtask arm64 --guest`: what is released for arm64, and Debian's programs on it, in an emulated machine with
//! Debian's kernel.

mod ends;
mod report;
mod unit_tests;

use std::time::{Duration, Instant};

use roce_guest::{Architecture, Guest, GuestConfig, Image, Kernel};
use roce_netns::process::Launch;
use roce_netns::{Host, Link, VirtualNetwork};

use self::ends::{End, Side};
use self::report::Report;
use crate::dist::{self, Installed};
use crate::{Result, host, interop, workspace};

/// The guest, and a host of this machine on its cable.
#[derive(Debug)]
struct World {
    guest: Guest,
    host: Host,
    /// The program of this machine's architecture.
    roce: String,
}

/// Builds, boots the guest, and does all checks.
///
/// # Errors
/// If something cannot be built or booted, or a check fails.
pub(super) fn run() -> Result<()> {
    host::install_missing(host::PINGPONG_PROGRAMS)?;
    host::install_guest_tools(Architecture::Arm64)?;
    host::check_tap_access()?;
    let kernel = Kernel::from_environment();
    let directory = workspace::target().join(kernel.directory(Architecture::Arm64));
    let image = Image::prepare_with(&directory, Architecture::Arm64, &kernel)?;
    let tests = unit_tests::build()?;
    let [own, arm64] = dist::installations_with_arm64()?;

    roce_netns::enter_user_namespace_if_needed()?;
    let started = Instant::now();
    let world = World::boot(&image, &own)?;
    let seconds = started.elapsed().as_secs_f32();
    println!("booted Linux {} for arm64 ({seconds:.1} s)", image.kernel_release());
    let mut report = Report::default();
    world.install(&arm64)?;
    unit_tests::run(&world.guest, &tests, &mut report)?;
    world.collectives_and_perftest(&mut report);
    world.pingpong(&mut report, "roce run", GUEST_ON_LIBRARY)?;
    world.guest.run_ok("insmod /lib/modules/$(grep rdma_rxe /lib/modules/order)")?;
    world.guest.set_network(MTU, GUEST_ADDRESSES)?; // makes rxe0
    world.pingpong(&mut report, "rdma_rxe", GUEST_ON_RXE)?;
    world.guest.power_off()?;
    report.check("cells of the matrix against rdma_rxe on arm64", cells);
    report.verdict()
}

impl World {
    /// Boots the guest on a tap of a host of its own.
    fn boot(image: &Image, own: &Installed) -> Result<Self> {
        let network = VirtualNetwork::new()?;
        let host = network.host("beside the guest")?;
        network.tap(&host, TAP, Link { mtu: MTU })?;
        host.address(TAP, format!("{HOST_ADDRESS}/24").parse()?)?;
        let config = GuestConfig {
            memory_mib: 1024,
            boot_limit: Duration::from_secs(300),
            command_limit: LIMIT,
            ..GuestConfig::new(TAP)
        };
        let guest = Guest::boot(image, &config, |command| host.spawn(command))?;
        guest.set_network(MTU, GUEST_ADDRESSES)?;
        // Until rxe's turn comes, packets have one receiver. Without a link the module still holds the UDP port.
        guest.run_ok("rdma link delete rxe0 && rmmod rdma_rxe")?;
        Ok(Self { guest, host, roce: own.program.display().to_string() })
    }

    /// Copies an installation to the guest, where a package would put it.
    fn install(&self, installed: &Installed) -> Result<()> {
        self.guest.run_ok("mkdir -p /usr/bin /usr/lib/roce")?;
        let program = (&installed.program, "/usr/bin");
        let libraries = installed.libraries.iter().map(|library| (library, "/usr/lib/roce"));
        for (file, folder) in std::iter::once(program).chain(libraries) {
            let name = file.file_name().unwrap_or_default().display();
            self.guest.push(&format!("{folder}/{name}"), &std::fs::read(file)?, 0o755)?;
        }
        Ok(())
    }

    /// Runs a command in the guest, which must succeed, and returns its first line with a text.
    fn line_of(&self, command: &str, text: &str) -> Result<String> {
        let output = self.guest.run_ok(command)?;
        let line = output.lines().find(|line| line.contains(text));
        Ok(line.ok_or_else(|| format!("no line has {text:?}:\n{output}"))?.to_owned())
    }

    fn collectives_and_perftest(&self, report: &mut Report) {
        report.check("roce --version", || self.line_of("roce --version", "roce "));
        let command = "roce allreduce --local 3 -b 4 -e 1M -f 16 -n 5";
        report.check(command, || self.line_of(command, "Out of bounds values : 0 OK"));
        let command = "roce run --local 2 -- ib_write_bw";
        // A line of the table begins with the rank, the size and the number of iterations.
        report.check(command, || {
            let output = self.guest.run_ok(command)?;
            let row = output.lines().find(|line| {
                let numbers = line.split_whitespace().filter(|word| word.parse::<f64>().is_ok());
                numbers.count() >= 5
            });
            Ok(row.ok_or_else(|| format!("no row of figures:\n{output}"))?.to_owned())
        });
    }

    /// Runs Debian's `ibv_rc_pingpong` of the guest against that of this machine, in both directions.
    fn pingpong(&self, report: &mut Report, what: &str, in_guest: &str) -> Result<()> {
        let on_host =
            format!("{} run --dev roce0={TAP} -- ibv_rc_pingpong -d roce0 -g 1", self.roce);
        let guest = Side { name: "arm64", prefix: in_guest, address: GUEST_ADDRESS };
        let host = Side { name: "x86-64", prefix: &on_host, address: HOST_ADDRESS };
        for (server, client) in [(guest, host), (host, guest)] {
            let name = format!(
                "ibv_rc_pingpong -c: client {} to server {}; arm64 on {what}",
                client.name, server.name
            );
            report.check(&name, || {
                let served = self.start(server, &format!("exec {} -c", server.prefix))?;
                self.wait_for_listener(server)?;
                let line = format!("exec {} -c {}", client.prefix, server.address);
                let client = self.start(client, &line)?;
                let said = client.succeed(LIMIT)?;
                let served = served.succeed(LIMIT)?;
                // The program says so, and ends with 0.
                for text in [&said, &served] {
                    if text.contains("invalid data") {
                        return Err(text.clone().into());
                    }
                }
                let rate = said.lines().find(|line| line.contains("bytes in"));
                Ok(rate.ok_or_else(|| format!("no rate:\n{said}"))?.to_owned())
            });
        }
        Ok(())
    }

    fn start(&self, side: Side<'_>, line: &str) -> Result<End> {
        if side.address == GUEST_ADDRESS {
            return Ok(End::InGuest(self.guest.spawn(line)?));
        }
        let launch = Launch::new("sh").args(["-c", line]).grace(Duration::ZERO);
        Ok(End::Here(launch.start_in(&self.host)?))
    }

    /// Waits until a side's server listens for its client.
    fn wait_for_listener(&self, side: Side<'_>) -> Result<()> {
        // 4853 is the program's port, 18515, and 0A means that a socket listens.
        const LINE: &str = "for try in $(seq 600); do \
                            grep -q ':4853 [0:]* 0A' /proc/net/tcp /proc/net/tcp6 && exit 0; \
                            sleep 0.1; done; echo no process listens on port 18515 >&2; exit 1";
        self.start(side, LINE)?.succeed(LIMIT).map(drop)
    }
}

/// Runs some cells of the matrix against rxe of the guest, each with its own check of all bytes.
fn cells() -> Result<String> {
    let output = interop::matrix().args(["--architecture", "arm64"]).args(CELLS).output()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    match text.lines().rev().find(|line| line.contains("cases")) {
        Some(line) if output.status.success() => Ok(line.to_owned()),
        _ => Err(format!("{text}{}", String::from_utf8_lossy(&output.stderr)).into()),
    }
}

const GUEST_ON_LIBRARY: &str = "roce run --dev roce0=eth0 -- ibv_rc_pingpong -d roce0 -g 1";
const GUEST_ON_RXE: &str = "ibv_rc_pingpong -d rxe0 -g 1";
/// Operations over IPv4 with the smaller path MTU.
const CELLS: [&str; 4] = ["--only", "operations /", "--only", "V4 1024"];

const TAP: &str = "tap0";
const MTU: u32 = 4200;
const HOST_ADDRESS: &str = "10.9.0.1";
const GUEST_ADDRESS: &str = "10.9.0.2";
const GUEST_ADDRESSES: &[&str] = &["10.9.0.2/24"];

/// Maximum time of a command; a test of a crate takes minutes on an emulated processor.
const LIMIT: Duration = Duration::from_secs(600);
