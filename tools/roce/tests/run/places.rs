//! Where a run works: root, ordinary users, containers.

use std::fs;
use std::os::unix::process::CommandExt;
use std::process::Command;

use roce_test_macros::tier1;

use super::{Outcome, build, compile, roce_run, succeeded};

const NOBODY: u32 = 65534;

#[tier1]
fn an_ordinary_user_has_devices_in_private_hosts() -> Outcome {
    let mut command = roce_run(&["--local", "1", "--", "ls", "/sys/class/infiniband"]);
    if nix::unistd::geteuid().is_root() {
        command.uid(NOBODY).gid(NOBODY).current_dir("/");
    }
    assert_eq!(succeeded(&command.output()?)?, "[0] roce0\n");
    Ok(())
}

#[tier1]
fn an_ordinary_user_without_a_private_host_is_told_what_is_missing() -> Outcome {
    if !nix::unistd::geteuid().is_root() {
        return Ok(());
    }
    let output = roce_run(&["--", "true"]).uid(NOBODY).gid(NOBODY).current_dir("/").output()?;
    let words = String::from_utf8(output.stderr)?;
    assert_eq!(output.status.code(), Some(125), "{words}");
    assert!(words.contains("CAP_NET_RAW") && words.lines().count() == 1, "{words}");
    Ok(())
}

/// Makes a program that refuses what a container's default seccomp filter refuses, drops
/// CAP_SYS_ADMIN, and becomes another program.
fn container() -> Outcome<String> {
    let source = build().join("container.c");
    fs::write(&source, include_str!("container.c"))?;
    let program = build().join("container");
    compile(&source, &program, &[])?;
    Ok(program.to_str().ok_or("a path that is text")?.to_owned())
}

#[tier1]
fn a_container_without_the_right_to_mount_has_the_view_by_preload() -> Outcome {
    let host = roce_netns::VirtualNetwork::new()?.host("container")?;
    let other = roce_netns::VirtualNetwork::new()?.host("other")?;
    let link = roce_netns::Link { mtu: 1500 };
    roce_netns::VirtualNetwork::new()?.veth((&host, "eth0"), (&other, "eth0"), link)?;
    host.address("eth0", "10.9.0.1/24".parse()?)?;
    let run = |view: &str| -> Outcome<std::process::Output> {
        let mut command = Command::new(container()?);
        command.arg(build().join("roce")).args(["run", "--view", view, "--"]);
        command.args([
            "sh",
            "-c",
            "ls /sys/class/infiniband /dev/infiniband; echo ${ROCE_VIEW:+preload}",
        ]);
        command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
        Ok(host.spawn(command)?.wait_with_output()?)
    };
    for view in ["auto", "preload"] {
        let text = succeeded(&run(view)?)?;
        assert_eq!(text, "/dev/infiniband:\nuverbs0\n\n/sys/class/infiniband:\nroce0\npreload\n");
    }
    let refused = run("mount")?;
    let words = String::from_utf8(refused.stderr)?;
    assert_eq!(refused.status.code(), Some(125), "{words}");
    assert!(words.contains("--view preload") && words.lines().count() == 1, "{words}");
    Ok(())
}
