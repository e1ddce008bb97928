//! Programs of Debian, unmodified, in two hosts on this library.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Once;
use std::time::{Duration, Instant};

use roce_netns::{Host, Link, VirtualNetwork};
use roce_test_macros::tier1;

/// Time after which a program counts as hanging.
const LIMIT: Duration = Duration::from_secs(60);

/// The port on which both kinds of programs listen by default.
const PORT: u16 = 18515;

/// Two hosts on a cable, and a folder with the library under the names that programs load.
struct Bench {
    server: Host,
    client: Host,
    folder: PathBuf,
}

impl Bench {
    fn new(name: &str) -> Self {
        let network = VirtualNetwork::new().expect("tier 1 runs as root or in a user namespace");
        let host = |name| network.host(name).expect("a namespace");
        let (server, client) = (host("server"), host("client"));
        network
            .veth((&server, "eth0"), (&client, "eth0"), Link { mtu: 1500 })
            .expect("a veth pair");
        for (host, address) in [(&server, "10.1.0.1/24"), (&client, "10.1.0.2/24")] {
            host.address("eth0", address.parse().expect("an address")).expect("an address on eth0");
        }
        let folder =
            std::env::temp_dir().join(format!("roce-ibverbs-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        for name in ["libibverbs.so.1", "libibverbs.so"] {
            std::os::unix::fs::symlink(library(), folder.join(name)).expect("a link");
        }
        Self { server, client, folder }
    }

    fn start(&self, host: &Host, line: &str) -> Child {
        let mut words = line.split_whitespace();
        let mut command = Command::new(words.next().expect("a program"));
        command
            .args(words)
            .env("LD_LIBRARY_PATH", &self.folder)
            .env("LD_PRELOAD", "libibverbs.so.1");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        host.spawn(command).unwrap_or_else(|error| panic!("{line}: {error}"))
    }

    /// Runs a program as server and as client, and returns what both have printed.
    ///
    /// # Panics
    /// If one of them fails, or takes too long.
    fn run_pair(&self, line: &str) -> [String; 2] {
        // The client connects over TCP, for which the server must listen.
        let mut server = self.start(&self.server, line);
        self.wait_for_listener(PORT, &mut server);
        let client = self.start(&self.client, &format!("{line} 10.1.0.1"));
        [finish(server, line), finish(client, line)]
    }

    fn wait_for_listener(&self, port: u16, server: &mut Child) {
        let needle = format!(":{port:04X} ");
        let deadline = Instant::now() + LIMIT;
        loop {
            let listens = |file: &str| {
                let text = self.server.run(|| std::fs::read_to_string(file)).unwrap_or_default();
                text.lines().any(|row| row.contains(&needle) && row.contains(" 0A "))
            };
            if listens("/proc/thread-self/net/tcp") || listens("/proc/thread-self/net/tcp6") {
                return;
            }
            assert!(server.try_wait().expect("a child").is_none(), "the server has ended");
            assert!(Instant::now() < deadline, "the server does not listen");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        let _removed = std::fs::remove_dir_all(&self.folder);
    }
}

/// Returns the library. Cargo does not build one of the C kind for a test, so this does.
fn library() -> PathBuf {
    static IS_BUILT: Once = Once::new();
    let program = std::env::current_exe().expect("the path of this program");
    let folder = program.ancestors().nth(2).expect("a test in deps").to_owned();
    IS_BUILT.call_once(|| {
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["build", "--quiet", "--profile", "test", "-p", "roce-ibverbs"]);
        cargo.arg("--target-dir").arg(folder.parent().expect("a target directory"));
        assert!(cargo.status().expect("cargo runs").success(), "the library is not built");
    });
    folder.join("libibverbs.so")
}

fn finish(mut child: Child, line: &str) -> String {
    let deadline = Instant::now() + LIMIT;
    while child.try_wait().expect("a child").is_none() {
        if Instant::now() >= deadline {
            child.kill().expect("a child");
            let output = child.wait_with_output().expect("output");
            panic!("{line} hangs: {}", String::from_utf8_lossy(&output.stdout));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    let output = child.wait_with_output().expect("output");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{line}: {}\n{out}{err}", output.status);
    out
}

#[tier1("ibverbs-utils")]
fn ibv_rc_pingpong_runs_with_polling_with_events_and_with_the_extended_interface() {
    let bench = Bench::new("pingpong");
    for options in ["-c", "-e -c", "-t", "-N", "-s 100000 -n 100 -c"] {
        for output in bench.run_pair(&format!("ibv_rc_pingpong -g 1 {options}")) {
            assert!(output.contains("iters in"), "{options}: {output}");
        }
    }
}

#[tier1("perftest")]
fn ib_write_bw_runs_with_the_vendor_libraries_that_it_is_linked_with() {
    let bench = Bench::new("perftest");
    let [_, client] = bench.run_pair("ib_write_bw -x 1 -n 500 -s 4096");
    assert!(client.lines().any(|row| row.trim_start().starts_with("4096 ")), "{client}");
}

#[tier1("ibverbs-utils")]
fn ibv_devinfo_lists_the_interface_with_its_address() {
    let bench = Bench::new("devinfo");
    let output = finish(bench.start(&bench.server, "ibv_devinfo -v"), "ibv_devinfo");
    for row in ["hca_id:\troce0", "PORT_ACTIVE", "::ffff:10.1.0.1, RoCE v2"] {
        assert!(output.contains(row), "{row}: {output}");
    }
}
