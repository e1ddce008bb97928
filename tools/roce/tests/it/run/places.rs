//! Where a run works: root, ordinary users, containers.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use roce_netns::process::Launch;
use roce_netns::{Host, Link, VirtualNetwork};
use roce_test_macros::tier1;

use super::{Copy, NOBODY, Outcome, compile, roce, roce_run, succeeded, temporary, text};
use crate::commands::LIMIT;

/// The ways in which programs find devices; a line of the script's output for each.
const READINGS: [&str; 6] =
    ["ibv_devinfo", "ucx_info", "NCCL's loader", "hwloc", "ibstat", "view with live counters"];

/// Returns the command line that reads the devices in all ways, in a folder that any user may read.
fn readings(folder: &Path) -> Outcome<[String; 4]> {
    let script = folder.join("readings.sh");
    fs::write(&script, include_str!("readings.sh"))?;
    let loader = folder.join("loader");
    let programs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/programs");
    let common = programs.join("common");
    let check = common.join("check.c");
    let flags = ["-I", text(&common), "-D_GNU_SOURCE", text(&check)];
    compile(&programs.join("loader/loader.c"), &loader, &flags)?;
    Ok(["sh", text(&script), text(&loader), "eth0"].map(str::to_owned))
}

/// Fails unless all readings have found the device.
fn check_readings(output: &Output) -> Outcome {
    let text = succeeded(output)?;
    for reading in READINGS {
        assert!(text.contains(&format!("{reading}: yes\n")), "{reading}: {text}");
    }
    Ok(())
}

/// Returns a host with an interface, and the other end of its cable.
fn host_with_interface() -> Outcome<(Host, Host)> {
    let network = VirtualNetwork::new()?;
    let (host, other) = (network.host("one")?, network.host("other")?);
    network.veth((&host, "eth0"), (&other, "eth0"), Link { mtu: 1500 })?;
    host.address("eth0", "10.9.0.1/24".parse()?)?;
    Ok((host, other))
}

/// As with rdma_rxe and with cards. Hosts have such interfaces: a bridge of containers without any, for instance.
#[tier1("ibverbs-utils")]
fn a_device_whose_interface_is_down_opens_and_has_a_port_that_is_down() -> Outcome {
    let copy = Copy::new("down")?;
    let (host, _other) = host_with_interface()?;
    host.set_down("eth0")?;
    let is_root = nix::unistd::geteuid().is_root();
    for backend in ["udp", "af-packet"] {
        let mut command = copy.run(&["--backend", backend, "--", "ibv_devinfo"]);
        if is_root && backend == "udp" {
            command.uid(NOBODY).gid(NOBODY);
        }
        let seen = succeeded(&run_in(&host, command)?)?;
        assert!(seen.contains("roce0") && seen.contains("PORT_DOWN"), "{backend}: {seen}");
    }
    Ok(())
}

fn run_in(host: &Host, mut command: Command) -> Outcome<Output> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    Ok(host.spawn(command)?.wait_with_output()?)
}

#[tier1("perftest, ibverbs-utils, ucx-utils, hwloc-nox, infiniband-diags")]
fn root_has_devices_by_mount() -> Outcome {
    let copy = Copy::new("root")?;
    let (host, _other) = host_with_interface()?;
    let mut command = roce_run(&["--view", "mount", "--"]);
    command.args(readings(&copy.0)?);
    check_readings(&run_in(&host, command)?)
}

#[tier1("perftest, ibverbs-utils, ucx-utils, hwloc-nox, infiniband-diags")]
fn an_ordinary_user_has_devices_in_private_hosts() -> Outcome {
    let copy = Copy::new("user")?;
    let as_user = |mut command: Command| {
        if nix::unistd::geteuid().is_root() {
            command.uid(NOBODY).gid(NOBODY);
        }
        command.output()
    };
    let mut command = copy.run(&["--local", "1", "--"]);
    command.args(readings(&copy.0)?);
    check_readings(&as_user(command)?)?;
    let command = copy.run(&["--local", "2", "--", "ib_write_bw", "-n", "50"]);
    assert!(succeeded(&as_user(command)?)?.contains("[1]  65536      50"));
    Ok(())
}

/// The kernel gives the files of a process whose program has a capability to root, that of the map of
/// user ids too.
#[tier1("perftest, libcap2-bin")]
fn a_capability_of_the_file_does_not_prevent_private_hosts() -> Outcome {
    if !nix::unistd::geteuid().is_root() {
        return Ok(());
    }
    let copy = Copy::new("capable")?;
    let mut command = copy.run(&["--local", "2", "--", "ib_write_bw", "-n", "50"]);
    let given = Command::new("setcap").arg("cap_net_raw+ep").arg(command.get_program()).output()?;
    succeeded(&given)?;
    let output = command.uid(NOBODY).gid(NOBODY).output()?;
    assert!(succeeded(&output)?.contains("[1]  65536      50"));
    Ok(())
}

#[tier1]
fn an_ordinary_user_without_a_private_host_is_told_what_is_missing() -> Outcome {
    if !nix::unistd::geteuid().is_root() {
        return Ok(());
    }
    let copy = Copy::new("told")?;
    let output =
        copy.run(&["--backend", "af-packet", "--", "true"]).uid(NOBODY).gid(NOBODY).output()?;
    let words = String::from_utf8(output.stderr)?;
    assert_eq!(output.status.code(), Some(125), "{words}");
    assert!(words.contains("CAP_NET_RAW") && words.lines().count() == 1, "{words}");
    assert!(words.contains("--local 2"), "it works here: {words}");
    Ok(())
}

/// Without user namespaces nothing but privileges helps; where programs cannot gain them, neither does
/// `setcap`.
#[tier1]
fn what_does_not_work_in_a_place_is_not_recommended_there() -> Outcome {
    let refusal = |privileges: &[&str], arguments: &[&str]| -> Outcome<String> {
        let mut command = Command::new("unshare");
        let closed = "echo 0 > /proc/sys/user/max_user_namespaces && exec \"$@\"";
        command.args(["--user", "--map-root-user", "sh", "-c", closed, "sh", "setpriv"]);
        command.args(["--bounding-set=-all", "--inh-caps=-all"]).args(privileges);
        let output = command.arg(roce()).arg("run").args(arguments).output()?;
        let words = String::from_utf8(output.stderr)?;
        assert_eq!(output.status.code(), Some(125), "{words}");
        Ok(words)
    };
    let words = refusal(&[], &["--backend", "af-packet", "--", "true"])?;
    assert!(words.contains("CAP_NET_RAW") && words.lines().count() == 1, "{words}");
    assert!(words.contains("setcap") && !words.contains("--local 2"), "{words}");
    let words = refusal(&["--no-new-privs"], &["--backend", "af-packet", "--", "true"])?;
    assert!(words.contains("--cap-add NET_RAW") && words.lines().count() == 1, "{words}");
    assert!(!words.contains("setcap") && !words.contains("--local 2"), "{words}");
    let words = refusal(&[], &["--local", "2", "--", "true"])?;
    assert!(words.contains("user namespace") && words.lines().count() == 1, "{words}");
    assert!(words.contains("`sudo sysctl -w user.max_user_namespaces=10000`"), "{words}");
    Ok(())
}

#[tier1("perftest, ibverbs-utils, ucx-utils, hwloc-nox, infiniband-diags")]
fn a_user_with_an_ambient_capability_has_devices_by_preload() -> Outcome {
    if !nix::unistd::geteuid().is_root() {
        return Ok(());
    }
    let copy = Copy::new("ambient")?;
    let (host, _other) = host_with_interface()?;
    let mut command = Command::new("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
    command.args(["--inh-caps=+net_raw", "--ambient-caps=+net_raw"]);
    command.arg(copy.0.join("roce")).args(["run", "--"]).args(readings(&copy.0)?);
    check_readings(&run_in(&host, command)?)
}

#[tier1("perftest, ibverbs-utils, ucx-utils, hwloc-nox, infiniband-diags")]
fn a_container_without_the_right_to_mount_has_devices_by_preload() -> Outcome {
    // It refuses what a container's default seccomp filter refuses, and drops CAP_SYS_ADMIN.
    let source = temporary("container.c");
    fs::write(&source, include_str!("container.c"))?;
    let container = temporary("container");
    compile(&source, &container, &[])?;
    let (host, _other) = host_with_interface()?;
    let run = |view: &str, line: &[String]| {
        let mut command = Command::new(&container);
        command.arg(roce()).args(["run", "--view", view, "--"]).args(line);
        run_in(&host, command)
    };
    let copy = Copy::new("container")?;
    check_readings(&run("auto", &readings(&copy.0)?)?)?;
    let refused = run("mount", &["true".to_owned()])?;
    let words = String::from_utf8(refused.stderr)?;
    assert_eq!(refused.status.code(), Some(125), "{words}");
    assert!(words.contains("--view preload") && words.lines().count() == 1, "{words}");
    Ok(())
}

/// As a pod of the Kubernetes level "restricted" whose root cannot be written to: an arbitrary user, no capability
/// and no way to one, a container's seccomp filter, and `/dev/shm` as the only folder for files.
#[tier1("perftest")]
fn two_restricted_places_run_programs_by_udp_sockets_on_roots_that_cannot_be_written_to() -> Outcome
{
    if !nix::unistd::geteuid().is_root() {
        return Ok(());
    }
    let copy = Copy::new("restricted")?;
    let (source, container) = (copy.0.join("container.c"), copy.0.join("container"));
    fs::write(&source, include_str!("container.c"))?;
    compile(&source, &container, &[])?;
    let place = copy.0.join("place.sh");
    fs::write(&place, include_str!("read_only_place.sh"))?;
    let (server, client) = host_with_interface()?;
    client.address("eth0", "10.9.0.2/24".parse()?)?;
    let command = |arguments: &[&str]| {
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", text(&place)]).arg(&container);
        command.args(["setpriv", "--reuid=12345", "--regid=12345", "--clear-groups"]);
        command.args(["--no-new-privs", "--bounding-set=-all", "--inh-caps=-all"]);
        command.args(["sh", "-c", "! touch /tmp/file 2>/dev/null && exec \"$@\"", "sh"]);
        command.arg(copy.0.join("roce")).args(["run", "--", "ib_write_bw", "-n", "500"]);
        command.args(arguments).env_remove("TMPDIR");
        Launch::from(command)
    };
    let serving = command(&[]).start_in(&server)?;
    serving.wait_until_listening(&[18515.into()], LIMIT)?;
    let asking = command(&["10.9.0.1"]).start_in(&client)?;
    for end in [asking, serving] {
        let end = end.wait(LIMIT)?.check()?;
        assert!(end.stderr.contains("packets travel by UDP sockets"), "{}", end.stderr);
        assert!(end.stdout.contains("65536      500"), "{}", end.stdout);
    }
    Ok(())
}

/// The error says what to do, in one line, where no folder can be written to at all.
#[tier1]
fn a_place_without_any_folder_for_files_is_told_in_one_line_which_one_to_make() -> Outcome {
    if !nix::unistd::geteuid().is_root() {
        return Ok(());
    }
    let copy = Copy::new("no-folder")?;
    let place = copy.0.join("place.sh");
    fs::write(&place, include_str!("read_only_place.sh"))?;
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", text(&place), "--without-shm"]);
    command.args(["setpriv", "--reuid=12345", "--regid=12345", "--clear-groups"]);
    command.arg(copy.0.join("roce")).args(["run", "--backend", "udp", "--", "true"]);
    let output = command.env_remove("TMPDIR").output()?;
    let words = String::from_utf8(output.stderr)?;
    assert_eq!(output.status.code(), Some(125), "{words}");
    assert!(words.contains("TMPDIR") && words.lines().count() == 1, "{words}");
    Ok(())
}
