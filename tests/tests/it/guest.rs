//! The guest itself: what the interop matrix and people's experiments rely on. And the command on the guest's
//! kernel, which is older than those that the other tests run on.

use roce_test_macros::tier2;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use roce_guest::{Guest, GuestConfig, GuestError, Image, Status};
use roce_netns::{Host, Link, VirtualNetwork};
use roce_tests::verbs_program::{self, VerbsProgram};

/// The folder with what the guest is made of.
fn folder() -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or("../target".into(), PathBuf::from);
    PathBuf::from("..").join(target).join("guest")
}

/// A guest on a tap of a host of its own.
fn boot() -> (Host, Guest) {
    let image = Image::prepare(&folder()).expect("`cargo xtask test` gets what is needed");
    let network = VirtualNetwork::new().expect("tier 2 runs as root or in a user namespace");
    let host = network.host("beside the guest").unwrap();
    network.tap(&host, "tap0", Link { mtu: 4200 }).unwrap();
    host.address("tap0", "10.9.0.1/24".parse().unwrap()).unwrap();
    let guest = Guest::boot(&image, &GuestConfig::new("tap0"), |command| host.spawn(command));
    (host, guest.unwrap_or_else(|error| panic!("{error}")))
}

const SOON: Duration = Duration::from_secs(20);

#[tier2]
fn commands_run_side_by_side_and_say_how_they_ended() {
    let (_host, guest) = boot();
    let output = guest.run("echo out; echo err >&2; exit 3").unwrap();
    assert_eq!((output.stdout.as_str(), output.stderr.as_str()), ("out\n", "err\n"));
    assert_eq!(output.status, Status::Exited(3));
    assert_eq!(guest.run("kill -TERM $$").unwrap().status, Status::Killed(15));

    let mut reader = guest.spawn("while read line; do echo \"<$line>\"; done").unwrap();
    let sleeper = guest.spawn("sleep 1000").unwrap();
    reader.write(b"one\ntwo\n").unwrap();
    assert_eq!(reader.read_line(SOON).unwrap().as_deref(), Some("<one>"));
    assert_eq!(guest.run_ok("echo beside it").unwrap(), "beside it\n");
    assert_eq!(reader.read_line(SOON).unwrap().as_deref(), Some("<two>"));
    reader.close_stdin().unwrap();
    assert!(reader.wait(SOON).unwrap().status.is_success());
    drop(sleeper);
    let gone = "for n in $(seq 500); do pgrep -f 'sleep 1000' >/dev/null || exit 0; usleep 10000; done; exit 1";
    assert!(guest.run(gone).unwrap().status.is_success(), "dropping a process kills it");

    let text: String = (0..500_000).map(|number| format!("{number:06}")).collect();
    guest.push("/tmp/file", text.as_bytes(), 0o640).unwrap();
    assert_eq!(guest.run_ok("stat -c '%s %a' /tmp/file").unwrap(), "3000000 640\n");
    assert!(guest.run_ok("cat /tmp/file").unwrap() == text, "what went in comes out");

    let mut hung = guest.spawn("sleep 1000").unwrap();
    let late = hung.wait(Duration::from_millis(50)).unwrap_err();
    assert!(matches!(late, GuestError::TimedOut { .. }), "{late}");
    assert!(hung.try_wait().unwrap().is_none(), "it still runs");
    hung.kill(9).unwrap();
    assert_eq!(hung.wait(SOON).unwrap().status.code(), None, "a signal is no status");
    assert!(hung.try_wait().unwrap().is_some());
    let refused = guest.run_ok("echo why >&2; false").unwrap_err().to_string();
    assert!(refused.contains("status 1") && refused.contains("why"), "{refused}");
    guest.power_off().unwrap();
}

#[tier2]
fn the_link_decides_the_path_mtu_and_addresses_become_gids() {
    let (host, guest) = boot();
    let port = "/sys/class/infiniband/rxe0/ports/1";
    for (mtu, path_mtu) in [(1500, "1024"), (4200, "4096"), (1500, "1024")] {
        guest.set_network(mtu, &["10.9.0.2/24", "fd00:9::2/64"]).unwrap();
        let device = guest.run_ok("ibv_devinfo | grep active_mtu").unwrap();
        assert!(device.contains(path_mtu), "{mtu}: {device}");
        let gids = guest.run_ok(&format!("cat {port}/gids/1 {port}/gids/2")).unwrap();
        let expected = "0000:0000:0000:0000:0000:ffff:0a09:0002\n\
                        fd00:0009:0000:0000:0000:0000:0000:0002\n";
        assert_eq!(gids, expected);
    }
    guest.run_ok("ping -c 1 -W 5 10.9.0.1").unwrap();
    guest.set_netem("loss 100%").unwrap();
    assert!(!guest.run("ping -c 1 -W 1 10.9.0.1").unwrap().status.is_success());
    guest.set_netem("").unwrap();
    guest.run_ok("ping -c 1 -W 5 10.9.0.1").unwrap();
    drop(host);
}

#[tier2]
fn a_guest_that_dies_is_missed_at_once() {
    let (_host, guest) = boot();
    let mut process = guest.spawn("sleep 1000").unwrap();
    let _going = guest.spawn("poweroff -f").unwrap();
    let gone = process.wait(SOON).unwrap_err();
    assert!(matches!(gone, GuestError::Gone { .. }), "{gone}");
    assert!(guest.run("true").is_err());
}

/// Makes a link between two network namespaces, a and b, in the guest.
const CABLE: &str = "set -e; ip netns add a; ip netns add b
    ip link add eth1 mtu 4200 netns a type veth peer name eth1 mtu 4200 netns b
    ip -n a addr add 10.8.0.1/24 dev eth1; ip -n b addr add 10.8.0.2/24 dev eth1
    for host in a b; do ip -n $host link set lo up; ip -n $host link set eth1 up; done
    for try in $(seq 1000); do
        up=$(for host in a b; do ip -n $host link show eth1; done | grep -c 'state UP')
        [ $up = 2 ] && exit 0
        usleep 10000
    done
    exit 1";

#[tier2]
fn ranks_on_linux_6_1_reduce_long_vectors_over_all_pairs_of_back_ends() {
    let (_host, guest) = boot();
    let release = guest.run_ok("uname -r").unwrap();
    assert!(release.starts_with("6.1."), "packet sockets of {release} have trains");
    push_stripped(&guest, &verbs_program::roce(), "/usr/bin/roce");
    guest.run_ok("rdma link delete rxe0").unwrap();
    guest.run_ok(CABLE).unwrap();
    let reduce = "roce allreduce -b 1M -e 1M -n 2 --size 2 --root-address 10.8.0.1:5000";
    let pairs = [["af-packet"; 2], ["udp"; 2], ["af-packet", "udp"], ["udp", "af-packet"]];
    let failures = pairs.iter().filter_map(|[first, second]| {
        let output = guest.run_ok(&format!(
            "ROCE_BACKEND={second} ip netns exec b {reduce} --rank 1 & \
             ROCE_BACKEND={first} ip netns exec a {reduce} --rank 0 && wait $!"
        ));
        match output {
            Ok(output) if output.contains("Out of bounds values : 0 OK") => None,
            Ok(output) => Some(format!("{first} and {second}: {output}")),
            Err(error) => Some(format!("{first} and {second}: {error}")),
        }
    });
    let failures: Vec<_> = failures.collect();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    guest.power_off().unwrap();
}

/// The guest's kernel has a graphics card without hardware, whose DMA buffers have no pages of the common kind.
#[tier2]
fn a_dma_buffer_is_registered_by_its_descriptor() {
    let (_host, guest) = boot();
    let release = guest.run_ok("uname -r").unwrap();
    let modules = folder().join("root/lib/modules").join(release.trim());
    for module in ["drm.ko", "drm_shmem_helper.ko", "vgem/vgem.ko"] {
        let file = modules.join("kernel/drivers/gpu/drm").join(module);
        guest.push("/tmp/module.ko", &std::fs::read(file).unwrap(), 0o644).unwrap();
        guest.run_ok("insmod /tmp/module.ko").unwrap();
    }
    let program = VerbsProgram::linked("arguments");
    push_stripped(&guest, program.file(), "/tmp/arguments");
    push_stripped(&guest, &verbs_program::library(), "/tmp/libibverbs.so.1");
    guest.run_ok("rdma link delete rxe0").unwrap();
    guest.run_ok(CABLE).unwrap();
    let environment = "env LD_LIBRARY_PATH=/tmp HAS_DMA_BUFFERS=1";
    guest.run_ok(&format!("ip netns exec a {environment} /tmp/arguments dma-buffers")).unwrap();
    guest.power_off().unwrap();
}

/// Copies a program to the guest without what only debuggers read.
fn push_stripped(guest: &Guest, program: &Path, to: &str) {
    let stripped = program.with_extension("stripped");
    let mut strip = Command::new("strip");
    assert!(strip.arg("-o").arg(&stripped).arg(program).status().unwrap().success());
    guest.push(to, &std::fs::read(stripped).unwrap(), 0o755).unwrap();
}
