//! A host: an anonymous network namespace with a thread in it.

use std::fmt;
use std::fs::{self, File};
use std::io;
use std::process::{Child, Command};
use std::sync::Arc;
use std::sync::mpsc::{self, Sender};
use std::thread::{self, JoinHandle};

use ipnet::IpNet;
use nix::sched::{CloneFlags, setns, unshare};

use crate::{NetnsError, netlink};

/// A network namespace with its own interfaces, addresses, routes and ports.
///
/// [`VirtualNetwork::host`](crate::VirtualNetwork::host) creates it with `lo` up. Clones are handles
/// to the same host; the namespace exists until the last handle, process and socket in it ends.
///
/// ```no_run
/// # let network = roce_netns::VirtualNetwork::new()?;
/// let host = network.host("server")?;
/// let mut command = std::process::Command::new("ip");
/// command.args(["link", "show", "lo"]);
/// let status = host.spawn(command)?.wait()?;
/// assert!(status.success());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Host {
    inner: Arc<Inner>,
}

struct Inner {
    name: String,
    namespace: File,
    /// Channel to the thread in the namespace. Both fields are `None` only in `drop`.
    jobs: Option<Sender<Job>>,
    resident: Option<JoinHandle<()>>,
}

type Job = Box<dyn FnOnce() + Send>;

impl Host {
    pub(crate) fn new(name: &str) -> Result<Self, NetnsError> {
        let (jobs, inbox) = mpsc::channel::<Job>();
        let (report, outcome) = mpsc::sync_channel(1);
        let resident = thread::Builder::new()
            .name(format!("netns-{name}"))
            .spawn(move || {
                let made = make_namespace();
                let stay = made.is_ok();
                // The receiver waits below, so this cannot fail.
                let _ = report.send(made);
                if stay {
                    inbox.into_iter().for_each(|job| job());
                }
            })
            .map_err(|source| NetnsError::System { doing: "start a thread", source })?;
        let namespace = outcome.recv().map_err(|_| NetnsError::System {
            doing: "make a network namespace",
            source: io::Error::other("its thread died"),
        })??;
        let inner =
            Inner { name: name.to_owned(), namespace, jobs: Some(jobs), resident: Some(resident) };
        let host = Self { inner: Arc::new(inner) };
        host.set_up("lo")?;
        Ok(host)
    }

    /// Adds an address to an interface. An IPv6 address is usable at once, without duplicate
    /// address detection.
    ///
    /// # Errors
    /// [`NetnsError::Refused`] if there is no such interface or it has the address already.
    pub fn address(&self, ifname: &str, address: IpNet) -> Result<(), NetnsError> {
        let doing = || format!("add the address {address} to {ifname} in {self}");
        self.refusable(doing, || netlink::add_address(ifname, address))
    }

    /// Makes an interface the way to all IPv4 addresses that no other route has. No router is there, so packets to
    /// them get nowhere; but a program that asks the kernel for its own address by connecting a UDP socket to one
    /// gets that of the interface.
    ///
    /// # Errors
    /// [`NetnsError::Refused`] if there is no such interface, or a default route exists.
    pub fn default_route(&self, ifname: &str) -> Result<(), NetnsError> {
        let doing = || format!("make {ifname} the default route of {self}");
        self.refusable(doing, || netlink::add_default_route(ifname))
    }

    /// Sets an interface up.
    ///
    /// # Errors
    /// [`NetnsError::Refused`] if there is no such interface.
    pub fn set_up(&self, ifname: &str) -> Result<(), NetnsError> {
        self.refusable(|| format!("set {ifname} in {self} up"), || netlink::set_up(ifname, true))
    }

    /// Sets an interface down, as if its cable were unplugged.
    ///
    /// # Errors
    /// [`NetnsError::Refused`] if there is no such interface.
    pub fn set_down(&self, ifname: &str) -> Result<(), NetnsError> {
        let doing = || format!("set {ifname} in {self} down");
        self.refusable(doing, || netlink::set_up(ifname, false))
    }

    /// Sets the MTU of an interface, in bytes, as `ip link set mtu` does.
    ///
    /// # Errors
    /// [`NetnsError::Refused`] if there is no such interface or the MTU is out of range.
    pub fn set_mtu(&self, ifname: &str, mtu: u32) -> Result<(), NetnsError> {
        let doing = || format!("set the MTU of {ifname} in {self} to {mtu}");
        self.refusable(doing, || netlink::set_mtu(ifname, mtu))
    }

    /// Runs `work` on a new thread in this host and returns its result.
    ///
    /// Sockets opened there belong to the host permanently and may be used from any thread. Threads
    /// that `work` starts are in the host too.
    ///
    /// # Panics
    /// If `work` panics, with the same message, and if no thread can be created.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        let outcome = run_in(&self.inner.namespace, work);
        outcome.expect("a process that made a namespace may enter it")
    }

    /// Starts a program in this host.
    ///
    /// Its parent thread exists as long as the host. So a child with `PR_SET_PDEATHSIG` ends with
    /// the last handle to the host, or with this process.
    ///
    /// # Errors
    /// As [`Command::spawn`].
    pub fn spawn(&self, mut command: Command) -> io::Result<Child> {
        let (report, outcome) = mpsc::sync_channel(1);
        let job: Job = Box::new(move || {
            // The receiver waits below, so this cannot fail.
            let _ = report.send(command.spawn());
        });
        let gone = || io::Error::other("the thread that lives in this host died");
        self.inner.jobs.as_ref().ok_or_else(gone)?.send(job).map_err(|_| gone())?;
        outcome.recv().map_err(|_| gone())?
    }

    /// Returns the name, which appears in messages only.
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    pub(crate) fn namespace(&self) -> &File {
        &self.inner.namespace
    }

    fn refusable(
        &self,
        doing: impl FnOnce() -> String,
        work: impl FnOnce() -> io::Result<()> + Send,
    ) -> Result<(), NetnsError> {
        self.run(work).map_err(|source| NetnsError::Refused { doing: doing(), source })
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(resident) = self.resident.take() {
            // A panic there has been reported already.
            let _ = resident.join();
        }
    }
}

impl fmt::Debug for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Host").field("name", &self.inner.name).finish_non_exhaustive()
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "host {}", self.inner.name)
    }
}

/// Runs `work` on a new thread in a network namespace, such as an open `/proc/PID/ns/net`, and returns its result.
///
/// # Errors
/// The operating system's, if this process may not enter the namespace.
///
/// # Panics
/// If `work` panics, with the same message, and if no thread can be created.
pub fn run_in<T: Send>(namespace: &File, work: impl FnOnce() -> T + Send) -> io::Result<T> {
    let inside = || {
        setns(namespace, CloneFlags::CLONE_NEWNET)?;
        Ok(work())
    };
    let outcome = thread::scope(|scope| scope.spawn(inside).join());
    outcome.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Moves the calling thread into a new network namespace and returns a handle to it.
fn make_namespace() -> Result<File, NetnsError> {
    unshare(CloneFlags::CLONE_NEWNET).map_err(|errno| NetnsError::NotAllowed {
        doing: "make a network namespace",
        source: errno.into(),
    })?;
    // Saves one second of duplicate address detection on link-local addresses. It fails where
    // /proc/sys is read-only, as in most containers.
    let _ = fs::write("/proc/sys/net/ipv6/conf/default/accept_dad", "0");
    File::open("/proc/thread-self/ns/net")
        .map_err(|source| NetnsError::System { doing: "open /proc/thread-self/ns/net", source })
}
