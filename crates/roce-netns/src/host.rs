//! A host: a network namespace without a name, and a thread that lives in it.

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

/// A network namespace of its own: interfaces, addresses, routes and ports.
///
/// Made by [`VirtualNetwork::host`](crate::VirtualNetwork::host), with `lo` up. Clones are handles to the same
/// host; the namespace goes when the last handle, process and socket in it is gone.
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
    /// Work for the thread that lives in the namespace. Both are `None` only in `drop`.
    jobs: Option<Sender<Job>>,
    resident: Option<JoinHandle<()>>,
}

type Job = Box<dyn FnOnce() + Send>;

impl Host {
    pub(crate) fn new(name: &str) -> Result<Self, NetnsError> {
        let (jobs, inbox) = mpsc::channel::<Job>();
        let (report, outcome) = mpsc::sync_channel(1);
        let resident = thread::Builder::new()
            .name(format!("netlab-{name}"))
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

    /// Gives an interface an address; an IPv6 address is usable at once (no duplicate
    /// address detection).
    ///
    /// # Errors
    /// [`NetnsError::Refused`] when there is no such interface or it has the address already.
    pub fn address(&self, ifname: &str, address: IpNet) -> Result<(), NetnsError> {
        let doing = || format!("give {ifname} in {self} the address {address}");
        self.refusable(doing, || netlink::add_address(ifname, address))
    }

    /// Switches an interface on.
    ///
    /// # Errors
    /// [`NetnsError::Refused`] when there is no such interface.
    pub fn set_up(&self, ifname: &str) -> Result<(), NetnsError> {
        self.refusable(|| format!("set {ifname} in {self} up"), || netlink::set_up(ifname, true))
    }

    /// Switches an interface off: a cable pulled.
    ///
    /// # Errors
    /// [`NetnsError::Refused`] when there is no such interface.
    pub fn set_down(&self, ifname: &str) -> Result<(), NetnsError> {
        let doing = || format!("set {ifname} in {self} down");
        self.refusable(doing, || netlink::set_up(ifname, false))
    }

    /// Sets the MTU of an interface, in bytes, as `ip link set mtu` does.
    ///
    /// # Errors
    /// [`NetnsError::Refused`] when there is no such interface or it cannot be that large.
    pub fn set_mtu(&self, ifname: &str, mtu: u32) -> Result<(), NetnsError> {
        let doing = || format!("set the MTU of {ifname} in {self} to {mtu}");
        self.refusable(doing, || netlink::set_mtu(ifname, mtu))
    }

    /// Runs `work` on a fresh thread inside this host and returns what it returned.
    ///
    /// Sockets opened there belong to the host for good, and may be used from any thread.
    /// Threads that `work` starts are inside as well.
    ///
    /// # Panics
    /// When `work` does, with the same message; and when the system gives no more threads.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        let inside = || {
            setns(&self.inner.namespace, CloneFlags::CLONE_NEWNET)
                .expect("a process that made a namespace may enter it");
            work()
        };
        let outcome = thread::scope(|scope| scope.spawn(inside).join());
        outcome.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }

    /// Starts a program inside this host.
    ///
    /// Its parent thread lives as long as the host, so a child that asks to die with its
    /// parent (`PR_SET_PDEATHSIG`) ends when the last handle to the host goes, or when this
    /// process does, however that ends.
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

    /// The name it was made with; it means something only to people.
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
            // It runs our own jobs only, and a panic there has been reported already.
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

/// Moves the calling thread into a new network namespace and returns a handle to that.
fn make_namespace() -> Result<File, NetnsError> {
    unshare(CloneFlags::CLONE_NEWNET).map_err(|errno| NetnsError::NotAllowed {
        doing: "make a network namespace",
        source: errno.into(),
    })?;
    // Only saves the second that duplicate address detection takes on link-local addresses:
    // where /proc/sys is read-only, as in most containers, that second is spent.
    let _ = fs::write("/proc/sys/net/ipv6/conf/default/accept_dad", "0");
    File::open("/proc/thread-self/ns/net")
        .map_err(|source| NetnsError::System { doing: "open /proc/thread-self/ns/net", source })
}
