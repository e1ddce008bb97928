//! Making namespaces as an ordinary user: inside a user namespace of one's own.

use std::{fs, io};

use nix::sched::{CloneFlags, unshare};
use nix::unistd::{getegid, geteuid};

use crate::NetnsError;

/// Gives this process the rights that a [`VirtualNetwork`](crate::VirtualNetwork) and a raw packet socket need,
/// by entering a user namespace, unless it has them already.
///
/// Inside, the process sees itself as root, and so do its children; towards the rest of the
/// system it stays the user who started it. Files are opened with that user's rights.
///
/// Call it first thing in `main`: the kernel moves only a process with a single thread.
///
/// # Errors
/// [`NetnsError::ThreadsExist`] when it comes too late, [`NetnsError::NotAllowed`] when the
/// system does not let users make user namespaces; the text says which setting is in the
/// way.
///
/// ```no_run
/// roce_netns::enter_user_namespace_if_needed()?;
/// # Ok::<(), roce_netns::NetnsError>(())
/// ```
pub fn enter_user_namespace_if_needed() -> Result<(), NetnsError> {
    if has_the_rights() {
        return Ok(());
    }
    let threads = thread_count();
    if threads > 1 {
        return Err(NetnsError::ThreadsExist { threads });
    }
    // Asked before the move: afterwards both read as the overflow id.
    let (user, group) = (geteuid(), getegid());
    unshare(CloneFlags::CLONE_NEWUSER)
        .map_err(|errno| NetnsError::NotAllowed { doing: ENTERING, source: errno.into() })?;
    // The kernel wants `deny` before an unprivileged group map: otherwise dropping a group
    // would be a way around files that deny access to it.
    for (file, text) in [
        ("/proc/self/setgroups", "deny".to_owned()),
        ("/proc/self/uid_map", format!("0 {user} 1")),
        ("/proc/self/gid_map", format!("0 {group} 1")),
    ] {
        fs::write(file, text)
            .map_err(|source| NetnsError::NotAllowed { doing: ENTERING, source })?;
    }
    if has_the_rights() {
        return Ok(());
    }
    // Some security modules let the namespace be made and then empty it of its rights.
    let source = io::Error::from(io::ErrorKind::PermissionDenied);
    Err(NetnsError::NotAllowed { doing: ENTERING, source })
}

/// The settings that stand between this user and a network namespace, as advice.
pub(crate) fn how_to_get_the_right() -> String {
    let setting = |path: &str| fs::read_to_string(path).ok().map(|text| text.trim().to_owned());
    let mut advice = vec!["Run it as root".to_owned()];
    let switches = [
        ("kernel.apparmor_restrict_unprivileged_userns", "1", "0"),
        ("kernel.unprivileged_userns_clone", "0", "1"),
        ("user.max_user_namespaces", "0", "10000"),
        ("user.max_net_namespaces", "0", "10000"),
    ];
    for (name, bad, good) in switches {
        let path = format!("/proc/sys/{}", name.replace('.', "/"));
        if setting(&path).as_deref() == Some(bad) {
            advice.push(format!(
                "or let users make namespaces: `sudo sysctl -w {name}={good}` (it is {bad} now)"
            ));
        }
    }
    advice.push(
        "or, in a container, start that with `--privileged`, or with `--cap-add SYS_ADMIN \
         --cap-add NET_ADMIN --cap-add NET_RAW --security-opt seccomp=unconfined`"
            .to_owned(),
    );
    advice.join(",\n")
}

/// Whether this process may make namespaces, change their interfaces and open raw sockets.
fn has_the_rights() -> bool {
    let Ok(status) = fs::read_to_string("/proc/thread-self/status") else { return false };
    let effective = status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))
        .and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok())
        .unwrap_or(0);
    effective & NEEDED == NEEDED
}

fn thread_count() -> usize {
    fs::read_dir("/proc/self/task").map_or(1, Iterator::count)
}

const ENTERING: &str = "enter a user namespace";

/// CAP_NET_ADMIN, CAP_NET_RAW and CAP_SYS_ADMIN, as bits of the capability mask.
const NEEDED: u64 = 1 << 12 | 1 << 13 | 1 << 21;
