//! Finds the owner of a UDP port: the kernel's rxe or another program.
//!
//! `/proc/net/udp` lists the kernel's own sockets as root's, but no process has them open.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use crate::error::PortError;

/// Returns why `port` could not be bound.
pub(super) fn explain(port: u16) -> PortError {
    explain_from(Path::new("/"), port)
}

/// Returns true if the kernel's rxe has devices, and so the port.
pub(super) fn is_rxes() -> bool {
    let root = Path::new("/");
    root.join("sys/module/rdma_rxe").exists() && !rxe_devices(root).is_empty()
}

/// As [`explain`], with the file system's root as an argument.
fn explain_from(root: &Path, port: u16) -> PortError {
    let entries = entries_of(root, port);
    if let Some(owner) = owner_of(root, &entries) {
        return PortError::OtherProgram { port, owner: Some(owner) };
    }
    // The kernel's sockets belong to root, or to the overflow user in a user namespace without
    // root.
    let may_be_kernels =
        entries.is_empty() || entries.iter().any(|entry| [ROOT, OVERFLOW].contains(&entry.uid));
    if may_be_kernels && root.join("sys/module/rdma_rxe").exists() {
        return PortError::KernelRxe { port, devices: rxe_devices(root) };
    }
    PortError::OtherProgram { port, owner: None }
}

/// Returns the sockets on `port`. The kernel may skip entries while others change, so an empty
/// result is read again.
pub(super) fn entries_of(root: &Path, port: u16) -> Vec<Entry> {
    let read = || -> Vec<Entry> {
        let tables = [false, true].map(|is_v6| read_table(root, is_v6, port));
        tables.into_iter().flat_map(io::Result::unwrap_or_default).collect()
    };
    (0..READS).map(|_| read()).find(|entries| !entries.is_empty()).unwrap_or_default()
}

/// Reads the kernel's table of an address family once.
pub(super) fn read_table(root: &Path, is_v6: bool, port: u16) -> io::Result<Vec<Entry>> {
    let table = if is_v6 { "udp6" } else { "udp" };
    // The thread's, as threads may be in different network namespaces.
    let text = fs::read_to_string(root.join("proc/thread-self/net").join(table))?;
    let entries = text.lines().filter_map(|line| Entry::parse(line, is_v6));
    Ok(entries.filter(|entry| entry.port == port).collect())
}

const READS: usize = 16;
/// The superuser.
pub(super) const ROOT: u32 = 0;
/// The uid of users that this user namespace does not have.
const OVERFLOW: u32 = 65_534;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    port: u16,
    /// It is of the table of IPv6.
    pub(super) is_v6: bool,
    /// It is bound to no address.
    pub(super) has_all: bool,
    /// Bytes waiting to be read.
    pub(super) waiting: u64,
    pub(super) uid: u32,
    inode: u64,
}

impl Entry {
    /// Parses a line of `/proc/net/udp`: number, local address, remote address, state, bytes in the
    /// queues out and in, timer, retransmissions, user, timeout, inode, …
    fn parse(line: &str, is_v6: bool) -> Option<Self> {
        let mut fields = line.split_whitespace();
        let (address, port) = fields.nth(1)?.rsplit_once(':')?;
        let (_, waiting) = fields.nth(2)?.rsplit_once(':')?;
        Some(Self {
            port: u16::from_str_radix(port, 16).ok()?,
            is_v6,
            has_all: address.bytes().all(|digit| digit == b'0'),
            waiting: u64::from_str_radix(waiting, 16).ok()?,
            uid: fields.nth(2)?.parse().ok()?,
            inode: fields.nth(1)?.parse().ok()?,
        })
    }
}

/// Returns the process that has one of these sockets open, if this process may see it.
fn owner_of(root: &Path, entries: &[Entry]) -> Option<String> {
    let targets: Vec<PathBuf> =
        entries.iter().map(|entry| PathBuf::from(format!("socket:[{}]", entry.inode))).collect();
    let opens_one = |process: &Path| -> io::Result<bool> {
        Ok(fs::read_dir(process.join("fd"))?
            .filter_map(|fd| fs::read_link(fd.ok()?.path()).ok())
            .any(|target| targets.contains(&target)))
    };
    for process in fs::read_dir(root.join("proc")).ok()?.flatten() {
        let Some(pid) = process.file_name().to_str().and_then(|name| name.parse::<u32>().ok())
        else {
            continue;
        };
        if opens_one(&process.path()).unwrap_or(false) {
            let name = fs::read_to_string(process.path().join("comm")).unwrap_or_default();
            return Some(format!("process {pid} {}", name.trim()));
        }
    }
    None
}

/// Returns the RDMA devices with a parent interface, as rxe's have.
fn rxe_devices(root: &Path) -> Vec<String> {
    let Ok(devices) = fs::read_dir(root.join("sys/class/infiniband")) else { return Vec::new() };
    let mut names: Vec<String> = devices
        .flatten()
        .filter_map(|device| {
            let name = device.file_name().to_string_lossy().into_owned();
            let parent = fs::read_to_string(device.path().join("parent")).ok()?;
            Some(format!("{name} on {}", parent.trim()))
        })
        .collect();
    names.sort();
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A temporary file system tree.
    struct Root(PathBuf);

    impl Root {
        fn new(name: &str) -> Self {
            let root = std::env::temp_dir().join(format!("roce-io-{name}-{}", std::process::id()));
            fs::create_dir_all(&root).unwrap();
            Self(root)
        }
        fn file(&self, path: &str, text: &str) -> &Self {
            let path = self.0.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
            self
        }
        fn link(&self, path: &str, target: &str) -> &Self {
            let path = self.0.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::os::unix::fs::symlink(target, path).unwrap();
            self
        }
    }

    impl Drop for Root {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    const TABLE: &str = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when \
                         retrnsmt   uid  timeout inode ref pointer drops\n\
                         1000: 00000000:12B7 00000000:0000 07 00000000:00000000 00:00000000 \
                         00000000     0        0 4321 2 0000000000000000 0\n\
                         1001: 00000000:0035 00000000:0000 07 00000000:00000000 00:00000000 \
                         00000000     0        0 99 2 0000000000000000 0\n";

    #[test]
    fn a_socket_that_no_process_has_open_is_rxes_if_rxe_is_loaded() {
        let root = Root::new("rxe");
        root.file("proc/thread-self/net/udp", TABLE)
            .file("sys/module/rdma_rxe/refcnt", "1")
            .file("sys/class/infiniband/rxe0/parent", "eth0\n")
            .file("sys/class/infiniband/mlx5_0/fw_ver", "1\n")
            .link("proc/7/fd/3", "socket:[99]");
        let error = explain_from(&root.0, 4791);
        let PortError::KernelRxe { port: 4791, devices } = &error else { panic!("{error:?}") };
        assert_eq!(devices, &["rxe0 on eth0"]);
        assert!(error.to_string().contains("rdma_rxe holds UDP port 4791"));
        assert!(error.to_string().contains("(rxe0 on eth0)"));
    }

    #[test]
    fn a_socket_that_a_process_has_open_is_that_programs_even_if_rxe_is_loaded() {
        let root = Root::new("program");
        root.file("proc/thread-self/net/udp", TABLE)
            .file("sys/module/rdma_rxe/refcnt", "1")
            .file("proc/42/comm", "soft-roce\n")
            .link("proc/42/fd/3", "socket:[4321]");
        let error = explain_from(&root.0, 4791);
        let PortError::OtherProgram { owner: Some(owner), .. } = &error else {
            panic!("{error:?}");
        };
        assert_eq!(owner, "process 42 soft-roce");
    }

    #[test]
    fn a_socket_of_an_ordinary_user_is_never_rxes() {
        let root = Root::new("user");
        let table = TABLE.replace("     0        0 4321", "  1000        0 4321");
        root.file("proc/thread-self/net/udp6", &table).file("sys/module/rdma_rxe/refcnt", "1");
        let error = explain_from(&root.0, 4791);
        assert!(matches!(error, PortError::OtherProgram { owner: None, .. }), "{error:?}");
    }

    #[test]
    fn without_rxe_the_owner_is_another_program() {
        let root = Root::new("none");
        root.file("proc/thread-self/net/udp", TABLE);
        let error = explain_from(&root.0, 4791);
        assert!(matches!(error, PortError::OtherProgram { owner: None, .. }), "{error:?}");
    }
}
