//! What other users of the host find of a process with an open device, and of `roce run`.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, symlink};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use roce_netns::Host;
use roce_netns::process::descendants_of;
use roce_test_macros::tier1;
use roce_tests::echo::Echo;
use roce_tests::fixtures::{Cable, TestDevice};
use roce_tests::services::{Caller, by};
use roce_tests::stranger::{STRANGER, as_stranger, may_be_others};
use roce_tests::verbs_program::roce;
use roce_verbs::Backend;

/// A folder that every user may write to, as `/tmp`, removed when dropped.
struct SharedFolder(PathBuf);

impl SharedFolder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("roce-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o1777)).unwrap();
        Self(path)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for SharedFolder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// An echo server under `roce run`, which captures its packets.
fn server(cable: &Cable, folder: &SharedFolder, backend: Backend) -> Echo {
    let address = SocketAddr::from(([10, 1, 0, 1], 7001));
    let [capture, roce] = [folder.path("capture.pcapng"), roce()];
    let [capture, roce] = [&capture, &roce].map(|it| it.to_str().expect("a plain path"));
    let (backend, temporary) = (backend.to_string(), format!("TMPDIR={}", folder.0.display()));
    // As a user does who wants captures to be private.
    let line = ["sh", "-c", "umask 077 && exec \"$@\"", "sh", "env", &temporary, roce, "run"];
    let options = ["--backend", &backend, "--pcap", capture, "--"];
    let program = [env!("CARGO_BIN_EXE_roce-test-echo"), "eth0", "10.1.0.1:7001", &backend];
    Echo::start_by(&cable.left, address, &[&line[..], &options, &program].concat())
}

/// Returns a folder's entries, those of its folders, and so on.
fn below(folder: &Path) -> Vec<PathBuf> {
    let mut all = vec![folder.to_owned()];
    let mut next = 0;
    while let Some(path) = all.get(next) {
        if path.symlink_metadata().is_ok_and(|it| it.is_dir()) {
            let entries = fs::read_dir(path).unwrap();
            let entries: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
            all.extend(entries);
        }
        next += 1;
    }
    all
}

/// Returns the run's folder.
fn run_folder(folder: &SharedFolder) -> PathBuf {
    let entries = fs::read_dir(&folder.0).unwrap().map(|entry| entry.unwrap().path());
    let is_of_root = |path: &PathBuf| path.symlink_metadata().unwrap().uid() == 0 && path.is_dir();
    let starts =
        |path: &PathBuf| path.file_name().unwrap().as_encoded_bytes().starts_with(b"roce-run-");
    entries.filter(starts).find(is_of_root).expect("a run's folder")
}

/// What a user could do to a file or a folder whose path it knows, and did.
fn changes(path: &Path, own: &Path) -> Vec<&'static str> {
    let is_folder = path.symlink_metadata().is_ok_and(|it| it.is_dir());
    // Links of the view lead to /dev/null.
    let write = || {
        let mut options = OpenOptions::new();
        options.write(true).custom_flags(libc::O_NOFOLLOW).open(path).map(drop)
    };
    let attempts: [(&str, &dyn Fn() -> io::Result<()>); 6] = [
        ("write", &write),
        ("delete", &|| if is_folder { fs::remove_dir(path) } else { fs::remove_file(path) }),
        ("rename", &|| fs::rename(path, path.with_extension("other"))),
        ("replace", &|| fs::rename(own, path)),
        ("put a file into", &|| File::create_new(path.join("planted")).map(drop)),
        ("permit", &|| fs::set_permissions(path, Permissions::from_mode(0o777))),
    ];
    attempts.into_iter().filter(|(_, attempt)| attempt().is_ok()).map(|(name, _)| name).collect()
}

#[tier1]
fn another_user_changes_no_file_of_a_run_and_reads_none_that_is_private() {
    if !may_be_others() {
        return;
    }
    for backend in [Backend::AfPacket, Backend::Udp] {
        let (cable, folder) = (Cable::with_mtu(1500), SharedFolder::new("files"));
        let peer = TestDevice::on(&cable.right, by(Backend::AfPacket));
        let server = server(&cable, &folder, backend);
        let caller = Caller::connect(&cable.right, &peer, &server);
        caller.call(&peer, 1);
        let run = run_folder(&folder);
        let mut paths = below(&run);
        paths.push(folder.path("capture.pcapng"));
        assert!(paths.len() > 10, "{paths:?}");
        let own = folder.path("own");
        as_stranger(&cable.left, || {
            for path in &paths {
                File::create(&own).unwrap();
                let done = changes(path, &own);
                assert!(done.is_empty(), "{backend}: {} can be: {done:?}", path.display());
            }
            let private = ["0/counters", "0/connections"].map(|name| run.join(name));
            for folder in private.iter().chain([&run, &run.join("0")]) {
                let listed = fs::read_dir(folder).map(drop).map_err(|error| error.kind());
                assert_eq!(listed, Err(io::ErrorKind::PermissionDenied), "{}", folder.display());
            }
            let files = paths.iter().filter(|path| private.iter().any(|it| path.starts_with(it)));
            for path in files.chain([&folder.path("capture.pcapng")]) {
                assert!(File::open(path).is_err(), "{backend}: {}", path.display());
            }
            // The command looks at the process that asks: this is none of the run.
            if let Ok(mut asks) = UnixStream::connect(run.join("0/sockets")) {
                let _refused = io::Write::write(&mut asks, b"T");
                let mut given = [0];
                assert!(matches!(io::Read::read(&mut asks, &mut given), Ok(0) | Err(_)));
            }
        });
        caller.call(&peer, 2);
        server.process.kill();
    }
}

#[tier1]
fn another_user_neither_looks_into_nor_enters_nor_ends_a_process_with_a_device() {
    if !may_be_others() {
        return;
    }
    let (cable, folder) = (Cable::with_mtu(1500), SharedFolder::new("processes"));
    let server = server(&cable, &folder, Backend::AfPacket);
    let command = server.process.id();
    let processes = [vec![command], descendants_of(command)].concat();
    assert!(processes.len() > 1, "the command and the program");
    as_stranger(&cable.left, || {
        for process in processes {
            for name in ["environ", "maps", "mem", "ns/net", "ns/user", "root/tmp", "cwd/."] {
                let opened = File::open(format!("/proc/{process}/{name}"));
                assert!(opened.is_err(), "{name} of process {process}");
            }
            assert!(fs::read_dir(format!("/proc/{process}/fd")).is_err());
            let number = Pid::from_raw(process.try_into().unwrap());
            assert_eq!(kill(number, Signal::SIGTERM), Err(Errno::EPERM));
        }
    });
    server.process.kill();
}

#[tier1]
fn what_another_user_has_planted_is_neither_taken_nor_followed() {
    if !may_be_others() {
        return;
    }
    let (cable, folder) = (Cable::with_mtu(1500), SharedFolder::new("planted"));
    let precious = folder.path("precious");
    fs::create_dir(&precious).unwrap();
    fs::write(precious.join("file"), "kept").unwrap();
    let [planted, link, new] =
        ["roce-run-planted", "roce-run-link", "roce-new-link"].map(|name| folder.path(name));
    as_stranger(&cable.left, || {
        fs::create_dir_all(planted.join("0/counters")).unwrap();
        fs::write(planted.join("0/sockets"), "no socket").unwrap();
        symlink(&precious, &link).unwrap();
        symlink(&precious, &new).unwrap();
        symlink(&precious, planted.join("0/link")).unwrap();
    });
    let server = server(&cable, &folder, Backend::AfPacket);
    let run = run_folder(&folder);
    assert!(![&planted, &link, &new].contains(&&run), "{}", run.display());
    server.process.end();
    assert!(!run.exists(), "a run removes its folder");
    assert_eq!(fs::read_to_string(precious.join("file")).unwrap(), "kept");
    for path in [&planted, &link, &new] {
        assert_eq!(path.symlink_metadata().unwrap().uid(), STRANGER, "{}", path.display());
    }
}

/// Runs a command as an ordinary user of a host; returns whether it succeeds.
fn succeeds(host: &Host, line: &[&str]) -> bool {
    let line = [&roce_tests::stranger::WITHOUT_PRIVILEGES[..], line].concat();
    let mut command = Command::new(line[0]);
    command.args(&line[1..]);
    let output = host.run(|| command.output()).expect("the command starts");
    println!("{line:?}: {}", String::from_utf8_lossy(&output.stderr));
    output.status.success()
}

#[tier1]
fn an_ordinary_user_has_raw_sockets_neither_in_a_host_nor_by_a_user_namespace_of_its_own() {
    if !may_be_others() {
        return;
    }
    let cable = Cable::with_mtu(1500);
    let device = TestDevice::on(&cable.left, by(Backend::AfPacket));
    as_stranger(&cable.left, || {
        use socket2::{Domain, Protocol, Socket, Type};
        for domain in [Domain::IPV4, Domain::IPV6, Domain::PACKET] {
            let opened = Socket::new(domain, Type::RAW, Some(Protocol::UDP)).map(drop);
            assert_eq!(opened.map_err(|it| it.kind()), Err(io::ErrorKind::PermissionDenied));
        }
    });
    let process = format!("--net=/proc/{}/ns/net", std::process::id());
    if succeeds(&cable.left, &["unshare", "--user", "--map-root-user", "true"]) {
        let echo = [env!("CARGO_BIN_EXE_roce-test-echo"), "eth0", "10.1.0.1:7002", "af-packet"];
        let in_own = ["unshare", "--user", "--map-root-user"];
        assert!(!succeeds(&cable.left, &[&in_own[..], &echo].concat()), "packet sockets");
        let enters = ["nsenter", &process, "true"];
        assert!(!succeeds(&cable.left, &[&in_own[..], &enters].concat()), "another namespace");
    }
    drop(device);
}

/// A copy of the command with a capability, and of its libraries.
fn with_capability(folder: &SharedFolder) -> PathBuf {
    let installed = roce();
    for name in ["roce", "libibverbs.so", "libroce_preload.so"] {
        fs::copy(installed.with_file_name(name), folder.path(name)).unwrap();
    }
    let file = folder.path("roce");
    let set = Command::new("/sbin/setcap").arg("cap_net_raw+ep").arg(&file).status().unwrap();
    assert!(set.success(), "setcap: {set}");
    file
}

#[tier1("libcap2-bin")]
fn a_file_with_the_capability_hands_on_that_one_and_writes_with_no_other_right() {
    if !may_be_others() {
        return;
    }
    let (cable, folder) = (Cable::with_mtu(1500), SharedFolder::new("capability"));
    let file = with_capability(&folder);
    let roce = file.to_str().expect("a plain path");
    let shown = folder.path("shown");
    let script = format!("grep ^Cap[IPEA] /proc/self/status > {}", shown.display());
    assert!(succeeds_with(&cable.left, &[], &[roce, "run", "--", "sh", "-c", &script]));
    let shown = fs::read_to_string(&shown).unwrap();
    // CAP_NET_RAW is number 13.
    assert!(shown.lines().all(|line| line.ends_with("\t0000000000002000")), "{shown}");

    let roots = folder.path("roots");
    fs::create_dir(&roots).unwrap();
    let place = |name: &str| roots.join(name).to_str().expect("a plain path").to_owned();
    let capture = place("capture.pcapng");
    let run = [roce, "run", "--pcap", &capture, "--", "true"];
    assert!(!succeeds_with(&cable.left, &[], &run), "the superuser's folder");
    let variables = ["TMPDIR", "ROCE_PCAP", "ROCE_RUN"];
    let variables: Vec<_> =
        variables.iter().map(|name| format!("{name}={}", place(name))).collect();
    let _either = succeeds_with(&cable.left, &variables, &[roce, "run", "--", "true"]);
    let _either = succeeds_with(&cable.left, &variables, &[roce, "devices"]);
    assert_eq!(fs::read_dir(&roots).unwrap().count(), 0, "nothing was written");
}

/// As [`succeeds`], for a file with capabilities, and with variables.
fn succeeds_with(host: &Host, variables: &[String], line: &[&str]) -> bool {
    let user = STRANGER.to_string();
    let mut command = Command::new("setpriv");
    command.args(["--reuid", &user, "--regid", &user, "--clear-groups", "env"]);
    command.args(variables).args(line);
    let output = host.run(|| command.output()).expect("the command starts");
    println!("{line:?}: {}", String::from_utf8_lossy(&output.stderr));
    output.status.success()
}
