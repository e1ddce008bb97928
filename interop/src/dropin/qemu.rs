//! QEMU's live migration over `rdma:`: a guest moves to the other host while it runs.
//!
//! The guest writes a pattern into its memory, checks it again and again, and prints a line for each pass.
//! What it has printed on both hosts is one unbroken text, so that no pass is missing and none was
//! repeated, and each pass at the destination has checked all pages.

mod monitor;

use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use self::monitor::{Monitor, PAUSE};
use super::device_counter::device_counter;
use super::folder::Folder;
use super::local::PrivateHosts;
use crate::fault::{Fault, expect, expect_equal};
use crate::matrix::Case;
use crate::process;
use crate::world::program;

/// The time that a guest has for what it does next, and QEMU for a migration.
const LIMIT: Duration = Duration::from_secs(60);
/// The time until both QEMUs have ended.
const END_LIMIT: Duration = Duration::from_secs(30);
/// Bytes of the guest's pattern: `PAGES` of `guest.S`.
const PATTERN: u64 = 32 << 20;

/// What each host runs; its arguments are a folder that both share, rank and own address. The guest's
/// processor is emulated, as fast on every machine: that of a faster one changes memory faster than an
/// emulated network carries it.
const LINE: &str = "echo $2 > $0/address$1; \
    if [ $1 = 0 ]; then incoming='-incoming defer'; fi; \
    exec qemu-system-x86_64 -accel tcg,thread=single -m 64 -nodefaults -display none -machine pc \
    -kernel $0/guest -serial file:$0/serial$1 -qmp unix:$0/qmp$1,server=on,wait=off $incoming";

/// Returns the cases.
pub fn cases(is_quick: bool) -> Vec<Case<PrivateHosts>> {
    let case = |row: &str, pins_all: bool| {
        Case::new("QEMU", row, "ours ↔ ours", 1024, move |_| run(pins_all))
    };
    let mut cases = vec![case("live migration over rdma:, rdma-pin-all", true)];
    if !is_quick {
        // Registers each MiB at both ends when it is first sent.
        cases.push(case("live migration over rdma:", false));
    }
    cases
}

fn run(pins_all: bool) -> Result<(), Fault> {
    let folder = Folder::new("qemu")?;
    build_guest(folder.path())?;
    let mut command = Command::new(program("roce")?);
    command.args(["run", "--local", "2", "--counters", "--", "sh", "-c", LINE]);
    command.arg(folder.path()).args(["{rank}", "{address}"]);
    let hosts = process::start(None, command)?;
    let migrated = migrate(folder.path(), pins_all);
    // Both were told to end, unless something went wrong: then the text says what.
    let limit = if migrated.is_ok() { END_LIMIT } else { Duration::ZERO };
    let ended = match (migrated, process::wait(hosts, limit)) {
        (Ok(()), ended) => ended?,
        (Err(fault), Ok(ended)) => return Err(Fault::Wrong(format!("{fault}: {}", ended.text()))),
        (Err(fault), Err(end)) => return Err(Fault::Wrong(format!("{fault}; {end}"))),
    };
    let text = &ended.text();
    expect(ended.status.success(), || format!("{}: {text}", ended.status))?;
    let sent = device_counter(text, "[1]", "device_sent_bytes");
    expect(sent >= Some(PATTERN), || format!("{sent:?} bytes left our device of {PATTERN}: {text}"))
}

/// Assembles the guest, which uses no library: a compiler for 64 bits has all that it needs.
fn build_guest(folder: &Path) -> Result<(), Fault> {
    let write = |name: &str, text: &str| {
        fs::write(folder.join(name), text).map_err(Fault::ours("write the guest"))
    };
    write("guest.S", include_str!("qemu/guest.S"))?;
    write("guest.ld", include_str!("qemu/guest.ld"))?;
    let mut compiler = Command::new("cc");
    compiler.args(["-m32", "-nostdlib", "-static", "-no-pie", "-Wl,--build-id=none", "-Wl,-T"]);
    compiler.arg(folder.join("guest.ld")).arg("-o").arg(folder.join("guest"));
    let output = compiler.arg(folder.join("guest.S")).output();
    let output = output.map_err(Fault::ours("start cc"))?;
    expect(output.status.success(), || String::from_utf8_lossy(&output.stderr).into_owned())
}

/// Moves the guest from host 1 to host 0, and then ends both.
fn migrate(folder: &Path, pins_all: bool) -> Result<(), Fault> {
    let mut destination = Monitor::connect(&folder.join("qmp0"))?;
    let mut source = Monitor::connect(&folder.join("qmp1"))?;
    let capabilities =
        json!({ "capabilities": [{ "capability": "rdma-pin-all", "state": pins_all }] });
    for monitor in [&mut destination, &mut source] {
        monitor.execute("migrate-set-capabilities", &capabilities)?;
    }
    // Faster than the link.
    source.execute("migrate-set-parameters", &json!({ "max-bandwidth": 10_000_000_000_u64 }))?;
    let address = fs::read_to_string(folder.join("address0"));
    let address = address.map_err(Fault::ours("read the address of host 0"))?;
    let uri = json!({ "uri": format!("rdma:{}:4444", address.trim()) });
    destination.execute("migrate-incoming", &uri)?;
    wait_until("the guest has checked its memory", || Ok(passes(folder, 1) >= 1))?;
    source.execute("migrate", &uri)?;
    let mut migration = Value::Null;
    wait_until("the migration has ended", || {
        migration = source.execute("query-migrate", &json!({}))?;
        Ok(matches!(migration["status"].as_str(), Some("completed" | "failed" | "cancelled")))
    })?;
    expect(migration["status"] == "completed", || migration.to_string())?;
    // The first pass there began at the source; the others check what arrived.
    wait_until("the guest has checked its memory at the destination", || {
        Ok(passes(folder, 0) >= 3)
    })?;
    for (monitor, status) in [(&mut source, "postmigrate"), (&mut destination, "running")] {
        let reply = monitor.execute("query-status", &json!({}))?;
        expect_equal("the state of a guest", &reply["status"], &json!(status))?;
        monitor.execute("quit", &json!({}))?;
    }
    check_text(&(printed(folder, 1) + &printed(folder, 0)))
}

/// Returns what the guest has printed on a host.
fn printed(folder: &Path, rank: u8) -> String {
    // QEMU may not have made the file yet.
    fs::read_to_string(folder.join(format!("serial{rank}"))).unwrap_or_default()
}

/// Returns how many passes have ended on a host.
fn passes(folder: &Path, rank: u8) -> usize {
    printed(folder, rank).matches(" ok\n").count()
}

/// Fails unless a text is what a guest prints whose memory stays intact; its last line may be unfinished.
fn check_text(text: &str) -> Result<(), Fault> {
    let mut lines: Vec<&str> = text.split('\n').collect();
    lines.pop();
    expect(!lines.is_empty(), || "the guest printed no line".into())?;
    for (pass, line) in lines.into_iter().enumerate() {
        let intact = if pass == 0 { "filled".to_owned() } else { format!("pass {pass:08x} ok") };
        expect_equal(format_args!("line {pass} of the guest"), line, &intact)?;
    }
    Ok(())
}

/// Waits until something is so.
fn wait_until(what: &str, mut is_so: impl FnMut() -> Result<bool, Fault>) -> Result<(), Fault> {
    let deadline = Instant::now() + LIMIT;
    while !is_so()? {
        expect(Instant::now() < deadline, || format!("not within {LIMIT:?}: {what}"))?;
        thread::sleep(PAUSE);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guest_is_intact_whose_lines_are_all_there_once() {
        let pass = |number: u32| format!("pass {number:08x} ok\n");
        let text = "filled\n".to_owned() + &(1..20).map(pass).collect::<String>();
        assert!(check_text(&text).is_ok() && check_text(&text[..text.len() - 2]).is_ok());
        for text in [
            "",
            "fill",
            &text.replace(&pass(7), ""),
            &text.replace(&pass(7), &pass(7).repeat(2)),
            &text.replace(&pass(7), "damaged page 00000007\npass 00000007 ok\n"),
        ] {
            assert!(check_text(text).is_err(), "{text}");
        }
    }
}
