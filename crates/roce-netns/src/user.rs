//! User namespaces, in which an ordinary user may create network namespaces.

use std::path::Path;
use std::{fs, io};

use nix::sched::{CloneFlags, unshare};
use nix::unistd::{getegid, geteuid};

use crate::NetnsError;

/// Enters a user namespace, unless this process has the capabilities that a
/// [`VirtualNetwork`](crate::VirtualNetwork) and a raw packet socket need.
///
/// In the namespace the process and its children have user id 0. Outside it they keep the
/// permissions of the user.
///
/// Call it at the start of `main`: the kernel allows it only for a process with one thread.
///
/// # Errors
/// [`NetnsError::ThreadsExist`] if the process has several threads; [`NetnsError::NotAllowed`] if
/// the system does not allow user namespaces. The message names the setting.
///
/// ```no_run
/// roce_netns::enter_user_namespace_if_needed()?;
/// # Ok::<(), roce_netns::NetnsError>(())
/// ```
pub fn enter_user_namespace_if_needed() -> Result<(), NetnsError> {
    if has_capabilities() {
        return Ok(());
    }
    let threads = thread_count();
    if threads > 1 {
        return Err(NetnsError::ThreadsExist { threads });
    }
    // The files of a process are root's if its program has a capability, as `setcap` gives one, and the maps
    // below are such files.
    nix::sys::prctl::set_dumpable(true)
        .map_err(|errno| NetnsError::NotAllowed { doing: ENTERING, source: errno.into() })?;
    // Read before `unshare`: afterwards both are the overflow id.
    let (user, group) = (geteuid(), getegid());
    unshare(CloneFlags::CLONE_NEWUSER)
        .map_err(|errno| NetnsError::NotAllowed { doing: ENTERING, source: errno.into() })?;
    // The kernel requires `deny` before an unprivileged group map: otherwise a process could drop
    // a group to which a file denies access.
    for (file, text) in [
        ("/proc/self/setgroups", "deny".to_owned()),
        ("/proc/self/uid_map", format!("0 {user} 1")),
        ("/proc/self/gid_map", format!("0 {group} 1")),
    ] {
        fs::write(file, text)
            .map_err(|source| NetnsError::NotAllowed { doing: ENTERING, source })?;
    }
    if has_capabilities() {
        return Ok(());
    }
    // Some security modules allow the namespace but remove its capabilities.
    let source = io::Error::from(io::ErrorKind::PermissionDenied);
    Err(NetnsError::NotAllowed { doing: ENTERING, source })
}

/// Returns true if this process may not do what only the initial user namespace permits, such as loading
/// programs into the kernel, whatever capabilities it has: it is in another one.
pub fn is_in_user_namespace() -> bool {
    let map = fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    let mut numbers = map.split_whitespace();
    // All users, each as itself.
    !(numbers.next() == Some("0")
        && numbers.next() == Some("0")
        && numbers.next() == Some("4294967295"))
}

/// Returns what to do where network namespaces are denied to this user: the end of a sentence.
pub(crate) fn advice() -> String {
    let setting = |path: &str| fs::read_to_string(path).ok().map(|text| text.trim().to_owned());
    let mut ways = vec!["run it as root".to_owned()];
    let switches = [
        ("kernel.apparmor_restrict_unprivileged_userns", "1", "0"),
        ("kernel.unprivileged_userns_clone", "0", "1"),
        ("user.max_user_namespaces", "0", "10000"),
        ("user.max_net_namespaces", "0", "10000"),
    ];
    for (name, bad, good) in switches {
        let path = format!("/proc/sys/{}", name.replace('.', "/"));
        if setting(&path).as_deref() == Some(bad) {
            ways.push(format!(
                "allow user namespaces by `sudo sysctl -w {name}={good}` (it is {bad} now)"
            ));
        }
    }
    let is_container =
        ["/run/.containerenv", "/.dockerenv"].iter().any(|file| Path::new(file).exists());
    if std::env::var_os("KUBERNETES_SERVICE_HOST").is_some() {
        ways.push(
            "in a Kubernetes pod set `privileged: true` for its container (a namespace of the level \
             baseline or restricted refuses it, and no private network can be made there)"
                .to_owned(),
        );
    } else if is_container || ways.len() == 1 {
        ways.push(
            "in a container start that with `--privileged`, or with `--cap-add SYS_ADMIN --cap-add \
             NET_ADMIN --cap-add NET_RAW --security-opt seccomp=unconfined`"
                .to_owned(),
        );
    }
    ways.join(", or ")
}

/// Returns true if this process may create namespaces, change their interfaces and open raw sockets.
fn has_capabilities() -> bool {
    let Ok(status) = fs::read_to_string("/proc/thread-self/status") else { return false };
    let effective = status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))
        .and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok())
        .unwrap_or(0);
    effective & REQUIRED == REQUIRED
}

fn thread_count() -> usize {
    fs::read_dir("/proc/self/task").map_or(1, Iterator::count)
}

const ENTERING: &str = "enter a user namespace";

/// CAP_NET_ADMIN, CAP_NET_RAW and CAP_SYS_ADMIN in the capability mask.
const REQUIRED: u64 = 1 << 12 | 1 << 13 | 1 << 21;
