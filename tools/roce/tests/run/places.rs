//! Where a run works: root, ordinary users, containers.

use std::fs;
use std::os::unix::process::CommandExt;
use std::process::{Command, Output, Stdio};

use roce_netns::{Host, Link, VirtualNetwork};
use roce_test_macros::tier1;

use super::{Copy, Outcome, compile, roce, roce_run, succeeded, temporary};

const NOBODY: u32 = 65534;

/// Programs that find devices in different ways, and what they print of one: a library's list,
/// character devices and types of GIDs, `/sys/class/infiniband` itself, counters.
const READERS: [(&str, &str); 4] = [
    ("ibv_devinfo", "hca_id:\troce0"),
    ("ucx_info -d", "Device: roce0:1"),
    ("ibstat", "CA 'roce0'"),
    ("cat /sys/class/infiniband/roce0/ports/1/counters/port_xmit_data", "0"),
];

/// Returns a host with an interface, and the other end of its cable.
fn host_with_interface() -> Outcome<(Host, Host)> {
    let network = VirtualNetwork::new()?;
    let (host, other) = (network.host("one")?, network.host("other")?);
    network.veth((&host, "eth0"), (&other, "eth0"), Link { mtu: 1500 })?;
    host.address("eth0", "10.9.0.1/24".parse()?)?;
    Ok((host, other))
}

fn run_in(host: &Host, mut command: Command) -> Outcome<Output> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    Ok(host.spawn(command)?.wait_with_output()?)
}

#[tier1("perftest, ibverbs-utils, ucx-utils, infiniband-diags")]
fn root_has_devices_by_mount() -> Outcome {
    let (host, _other) = host_with_interface()?;
    for (line, expected) in READERS {
        let words: Vec<&str> = line.split(' ').collect();
        let text = succeeded(&run_in(
            &host,
            roce_run(&[&["--view", "mount", "--"], &words[..]].concat()),
        )?)?;
        assert!(text.contains(expected), "{line}: {text}");
    }
    Ok(())
}

#[tier1("perftest, ibverbs-utils, ucx-utils, infiniband-diags")]
fn an_ordinary_user_has_devices_in_private_hosts() -> Outcome {
    let copy = Copy::new("user")?;
    let as_user = |mut command: Command| {
        if nix::unistd::geteuid().is_root() {
            command.uid(NOBODY).gid(NOBODY);
        }
        command.output()
    };
    for (line, expected) in READERS {
        let words: Vec<&str> = line.split(' ').collect();
        let command = copy.run(&[&["--local", "1", "--"], &words[..]].concat());
        let text = succeeded(&as_user(command)?)?;
        assert!(text.contains(expected), "{line}: {text}");
    }
    let command = copy.run(&["--local", "2", "--", "ib_write_bw", "-n", "50"]);
    assert!(succeeded(&as_user(command)?)?.contains("[1]  65536      50"));
    Ok(())
}

#[tier1]
fn an_ordinary_user_without_a_private_host_is_told_what_is_missing() -> Outcome {
    if !nix::unistd::geteuid().is_root() {
        return Ok(());
    }
    let copy = Copy::new("told")?;
    let output = copy.run(&["--", "true"]).uid(NOBODY).gid(NOBODY).output()?;
    let words = String::from_utf8(output.stderr)?;
    assert_eq!(output.status.code(), Some(125), "{words}");
    assert!(words.contains("CAP_NET_RAW") && words.lines().count() == 1, "{words}");
    Ok(())
}

#[tier1("perftest, ibverbs-utils, ucx-utils, infiniband-diags")]
fn a_user_with_an_ambient_capability_has_devices_by_preload() -> Outcome {
    if !nix::unistd::geteuid().is_root() {
        return Ok(());
    }
    let copy = Copy::new("ambient")?;
    let (host, _other) = host_with_interface()?;
    for (line, expected) in READERS {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
        command.args(["--inh-caps=+net_raw", "--ambient-caps=+net_raw"]);
        command.arg(copy.0.join("roce")).args(["run", "--"]).args(line.split(' '));
        let text = succeeded(&run_in(&host, command)?)?;
        assert!(text.contains(expected), "{line}: {text}");
    }
    Ok(())
}

#[tier1("perftest, ibverbs-utils, ucx-utils, infiniband-diags")]
fn a_container_without_the_right_to_mount_has_devices_by_preload() -> Outcome {
    // It refuses what a container's default seccomp filter refuses, and drops CAP_SYS_ADMIN.
    let source = temporary("container.c");
    fs::write(&source, include_str!("container.c"))?;
    let container = temporary("container");
    compile(&source, &container, &[])?;
    let (host, _other) = host_with_interface()?;
    let run = |view: &str, line: &[&str]| {
        let mut command = Command::new(&container);
        command.arg(roce()).args(["run", "--view", view, "--"]).args(line);
        run_in(&host, command)
    };
    for (line, expected) in READERS {
        let words: Vec<&str> = line.split(' ').collect();
        let text = succeeded(&run("auto", &words)?)?;
        assert!(text.contains(expected), "{line}: {text}");
    }
    let refused = run("mount", &["true"])?;
    let words = String::from_utf8(refused.stderr)?;
    assert_eq!(refused.status.code(), Some(125), "{words}");
    assert!(words.contains("--view preload") && words.lines().count() == 1, "{words}");
    Ok(())
}
