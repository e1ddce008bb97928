//! AF_XDP on cards that qemu emulates: a guest with a virtio card and one with an e1000, this stack at both ends
//! of the tap, and a table of what `ib_write_bw` and `roce perf` say with each back end of the guest. Below it
//! stands what `roce devices` says there, and what comes of an MTU whose packets do not fit a page.
//!
//! As root, with the programs that users have:
//!
//! ```console
//! # cargo build --release -p roce -p roce-ibverbs -p roce-preload
//! # cargo run --release -p roce-interop --example xdp_cards
//! ```
//!
//! With `-- virtio` or `-- e1000` one kind of card. `ROCE_GUEST_KERNEL` names the suite of the guest's kernel. The
//! guest's processor is emulated, so only the rows compare: they show that packets arrive, by which mode of XDP,
//! and how the back ends differ there.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use roce_guest::{Card, Guest, GuestConfig, Image};
use roce_interop::World;
use roce_netns::process::{Launch, Output, Running};
use roce_netns::{Host, Link, VirtualNetwork};
use serde_json::Value;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// A card, the mode that XDP has there, and a property for qemu. The driver of a virtio card that cannot stop
/// merging packets runs no program.
const PLACES: [(Card, &str, &str); 3] = [
    (Card::Virtio, "xdp", ""),
    (Card::Virtio, "xdpgeneric", "virtio-net-device.ctrl_guest_offloads=off"),
    (Card::E1000, "xdpgeneric", ""),
];
const MTU: u32 = 1500;
/// Packets of it do not fit a page.
const LARGE_MTU: u32 = 4200;
const BACKENDS: [&str; 2] = ["af-packet", "af-xdp"];
const TAP: &str = "tap0";
const HOST: &str = "10.9.0.1";
const GUEST: &str = "10.9.0.2";
/// What a user starts, and what that needs.
const PROGRAMS: [&str; 3] = ["roce", "libibverbs.so", "libroce_preload.so"];

/// A measurement of `roce perf`, and what of its result is shown.
struct Measurement {
    arguments: &'static str,
    is_to_guest: bool,
    figure: &'static str,
    factor: f64,
}

const MEGABITS: f64 = 8.0 * 1.048_576;
const MEASUREMENTS: [Measurement; 4] = [
    measurement("write bw -s 65536 -D 4", false, "BW_average", MEGABITS),
    measurement("write bw -s 65536 -D 4", true, "BW_average", MEGABITS),
    measurement("write bw -s 8 -D 4", false, "MsgRate", 1e3),
    measurement("write lat -s 8 -n 2000", false, "t_typical", 1.0),
];

const fn measurement(
    arguments: &'static str,
    is_to_guest: bool,
    figure: &'static str,
    factor: f64,
) -> Measurement {
    Measurement { arguments, is_to_guest, figure, factor }
}

fn main() -> Result<()> {
    let folder = std::env::current_exe()?.ancestors().nth(2).map(Path::to_path_buf);
    let folder = folder.ok_or("the program's own folder")?;
    let image = World::image(folder.parent().ok_or("a target directory")?)?;
    println!(
        "Linux {} in the guest\n\
         | card | back end | `ip link` | `ib_write_bw` by `roce run` | from the guest, Mbit/s \
         | to the guest, Mbit/s | WRITEs of 8 bytes, thousand/s | half round trip, µs |\n\
         |---|---|---|---|---|---|---|---|",
        image.kernel_release()
    );
    let mut told = Vec::new();
    let only = std::env::args().nth(1);
    for (card, mode, property) in PLACES {
        if only.as_ref().is_some_and(|only| format!("{card:?}").to_lowercase() != *only) {
            continue;
        }
        let place = Place::new(&image, &folder, card, property)?;
        for backend in BACKENDS {
            let row = place.row(backend, mode)?;
            println!("| {card:?} {property} | {backend} | {row} |");
        }
        told.push(format!("{card:?} {property}, `roce devices`: {}", place.choice()?));
        told.push(format!("{card:?} {property}, MTU {LARGE_MTU}: {}", place.at_large_mtu()?));
        place.guest.power_off()?;
    }
    told.iter().for_each(|line| println!("{line}"));
    Ok(())
}

/// A host of ours, and a guest on its tap with this stack.
struct Place {
    host: Host,
    guest: Guest,
    roce: PathBuf,
}

impl Place {
    fn new(image: &Image, folder: &Path, card: Card, property: &str) -> Result<Self> {
        let network = VirtualNetwork::new()?;
        let host = network.host("ours")?;
        network.tap(&host, TAP, Link { mtu: MTU })?;
        host.address(TAP, format!("{HOST}/24").parse()?)?;
        let boot_limit = Duration::from_secs(240);
        let config = GuestConfig { card, memory_mib: 1024, boot_limit, ..GuestConfig::new(TAP) };
        let guest = Guest::boot(image, &config, |mut command| {
            if !property.is_empty() {
                command.args(["-global", property]);
            }
            host.spawn(command)
        })?;
        if card == Card::E1000 {
            let module = fs::read(module(&image.directory().join("root"), "e1000.ko")?)?;
            guest.push("/tmp/e1000.ko", &module, 0o644)?;
            guest.run_ok("insmod /tmp/e1000.ko")?;
        }
        // rxe holds the port, without a device, too.
        guest.run_ok(&format!(
            "rmmod rdma_rxe 2>/dev/null; ip link set eth0 mtu {MTU} && ip link set eth0 up && \
             ip addr add {GUEST}/24 dev eth0 && ping -c 1 -W 5 {HOST}"
        ))?;
        for program in PROGRAMS {
            let stripped = image.directory().join(program);
            let mut strip = Command::new("strip");
            strip.arg("-o").arg(&stripped).arg(folder.join(program));
            if !strip.status()?.success() {
                return Err(format!("strip {program}").into());
            }
            guest.push(&format!("/tmp/{program}"), &fs::read(&stripped)?, 0o755)?;
        }
        Ok(Self { host, guest, roce: folder.join("roce") })
    }

    /// Measures with a back end in the guest; `mode` is that of XDP which is expected.
    fn row(&self, backend: &str, mode: &str) -> Result<String> {
        let shown = if backend == "af-xdp" { mode } else { "" };
        let mut row = shown.to_owned();
        let theirs = format!("/tmp/roce run --backend {backend} -- ib_write_bw -F -n 500 {HOST}");
        let server = self.start(&["run", "--", "ib_write_bw", "-F", "-n", "500"])?;
        let text = self.in_guest(&theirs, backend, shown)?;
        end(server)?;
        // Its figures need a clock rate, of which an emulated processor has none.
        if !text.lines().any(|line| line.trim_start().starts_with("65536 ")) {
            return Err(text.into());
        }
        row += " | done";
        for it in &MEASUREMENTS {
            let perf = format!("perf {}", it.arguments);
            let ours: Vec<&str> = perf.split(' ').collect();
            let json = if it.is_to_guest {
                let command = format!("/tmp/roce {perf} --backend {backend}");
                let mut server = self.guest.spawn(&command)?;
                server.close_stdin()?;
                self.guest.run_ok("for i in $(seq 100); do netstat -ltn | grep -q :18515 && break; usleep 50000; done")?;
                let client = self.start(&[&ours[..], &["--json", GUEST]].concat())?;
                let text = end(client)?;
                server.wait(LIMIT)?;
                text
            } else {
                let server = self.start(&ours)?;
                let text = self.in_guest(
                    &format!("/tmp/roce {perf} --backend {backend} --json {HOST}"),
                    backend,
                    shown,
                )?;
                end(server)?;
                text
            };
            let result: Value =
                serde_json::from_str(&json).map_err(|error| format!("{error}: {json}"))?;
            let figure = result["results"][0][it.figure].as_f64().ok_or(json)?;
            row += &format!(" | {:.1}", figure * it.factor);
        }
        Ok(row)
    }

    /// Returns the back end that `auto` is in the guest, and why.
    fn choice(&self) -> Result<String> {
        let devices = self.guest.run_ok("/tmp/roce devices")?;
        let line = devices.lines().find(|line| line.starts_with("Packets travel by "));
        Ok(line.ok_or("no line on the back end")?.to_owned())
    }

    /// Writes messages from the guest by AF_XDP with an MTU whose packets do not fit a page, and returns what it
    /// said on standard error.
    fn at_large_mtu(&self) -> Result<String> {
        self.host.set_mtu(TAP, LARGE_MTU)?;
        // Some drivers reset the card.
        self.guest.run_ok(&format!(
            "ip link set eth0 mtu {LARGE_MTU} && \
             for i in $(seq 30); do ping -c 1 -W 1 {HOST} && exit 0; done; exit 1"
        ))?;
        let perf = "perf write bw -s 65536 -n 500";
        let server = self.start(&perf.split(' ').collect::<Vec<_>>())?;
        let output = self.guest.run(&format!("/tmp/roce {perf} --backend af-xdp {HOST}"))?;
        end(server)?;
        if !output.status.is_success() {
            return Err(format!("{}{}", output.stdout, output.stderr).into());
        }
        let said = output.stderr.trim();
        Ok(if said.is_empty() { "by AF_XDP" } else { said }.to_owned())
    }

    /// Runs a client in the guest, whose interface has an XDP program of this mode meanwhile, or none.
    fn in_guest(&self, command: &str, backend: &str, mode: &str) -> Result<String> {
        let mut client = self.guest.spawn(command)?;
        client.close_stdin()?;
        let (mut seen, deadline) = (String::new(), Instant::now() + LIMIT);
        let output = loop {
            let now = self.xdp_mode()?;
            if !now.is_empty() {
                seen = now;
            }
            if let Some(output) = client.try_wait()? {
                break output;
            }
            if Instant::now() > deadline {
                return Err(format!("{command}: no end: {}", client.stderr()).into());
            }
            thread::sleep(Duration::from_millis(50));
        };
        if !output.status.is_success() {
            return Err(format!("{command}: {}{}", output.stdout, output.stderr).into());
        }
        if seen != mode {
            return Err(
                format!("{backend}: {seen:?} in place of {mode:?}: {}", output.stderr).into()
            );
        }
        match self.xdp_mode()? {
            left if left.is_empty() => Ok(output.stdout),
            left => Err(format!("{left} is left behind").into()),
        }
    }

    /// Returns what `ip link` says of XDP in the guest.
    fn xdp_mode(&self) -> Result<String> {
        let link = self.guest.run_ok("ip link show eth0")?;
        let found = link.split_whitespace().find(|word| word.starts_with("xdp"));
        Ok(found.unwrap_or_default().to_owned())
    }

    /// Starts `roce` at our end.
    fn start(&self, arguments: &[&str]) -> Result<Running> {
        let launch = Launch::new(&self.roce).args(arguments).stderr(Output::Inherit);
        let running = launch.grace(Duration::ZERO).start_in(&self.host)?;
        if !arguments.contains(&GUEST) {
            // A server, which the guest's client may not miss.
            thread::sleep(Duration::from_millis(700));
        }
        Ok(running)
    }
}

const LIMIT: Duration = Duration::from_secs(60);

/// Waits for the end of a process, and returns what it has printed.
fn end(process: Running) -> Result<String> {
    Ok(process.wait(LIMIT)?.stdout)
}

/// Finds a kernel module below a folder.
fn module(root: &Path, name: &str) -> Result<PathBuf> {
    let mut folders: Vec<_> = ["lib/modules", "usr/lib/modules"].map(|it| root.join(it)).into();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).into_iter().flatten() {
            let entry = entry?;
            if entry.file_name() == name {
                return Ok(entry.path());
            }
            if entry.file_type()?.is_dir() {
                folders.push(entry.path());
            }
        }
    }
    Err(format!("no {name} below {}", root.display()).into())
}
