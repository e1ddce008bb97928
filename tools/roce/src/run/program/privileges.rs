//! The capabilities to open packet sockets and AF_XDP sockets.

use std::env;
use std::fs;
use std::path::Path;

use nix::sched::{CloneFlags, unshare};
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, configure_capability_in_ambient_set,
    set_capabilities,
};

use roce_verbs::{Backend, environment};

use crate::backend::{FALLBACK, OF_XDP, has_packet_sockets, has_xdp};
use crate::error::{CliError, Result};

/// Returns the back end of a program for this choice, which is not [`Backend::Auto`]; tells on standard
/// error of one that the choice does not name. If packet sockets are chosen and not permitted, the process
/// has to end: this may have moved it into namespaces. No thread may exist yet.
pub(crate) fn choose(choice: Backend) -> Result<Backend> {
    match choice {
        Backend::Udp => return Ok(Backend::Udp),
        Backend::AfXdp if has_xdp() => return Ok(Backend::AfXdp),
        Backend::AfXdp => {
            return Err(CliError::new(
                "AF_XDP needs CAP_BPF, CAP_NET_ADMIN and CAP_NET_RAW, of which this process lacks some: run \
                 it as root, or use another --backend",
            ));
        }
        _ if has_packet_sockets() => return Ok(Backend::AfPacket),
        Backend::Auto => {
            eprintln!("roce: {FALLBACK}");
            return Ok(Backend::Udp);
        }
        Backend::AfPacket => {}
    }
    let program = env::current_exe();
    let program = program.as_deref().unwrap_or(Path::new("/usr/bin/roce")).display().to_string();
    let place = Place {
        is_confined: has_no_new_privileges(),
        is_container: ["/run/.containerenv", "/.dockerenv"]
            .iter()
            .any(|file| Path::new(file).exists()),
        is_pod: env::var_os("KUBERNETES_SERVICE_HOST").is_some(),
        // Last, since it changes this process.
        has_private_hosts: may_have_private_hosts(),
    };
    Err(CliError::new(place.advice(&program)))
}

/// What an ordinary user may do where this process runs.
#[derive(Clone, Copy, Debug)]
struct Place {
    /// Programs get no privileges by their files (`no_new_privs`).
    is_confined: bool,
    is_container: bool,
    is_pod: bool,
    /// `--local` works.
    has_private_hosts: bool,
}

impl Place {
    /// Returns what is missing, and what can be done about it here.
    fn advice(self, program: &str) -> String {
        let mut ways = vec!["use --backend udp, which needs no privileges".to_owned()];
        if self.has_private_hosts {
            ways.push("add --local 2 for a private network, which needs no privileges".to_owned());
        }
        if self.is_pod {
            ways.push(
                "give the pod's container the capability NET_RAW (a namespace of the level baseline or \
                 restricted refuses it)"
                    .to_owned(),
            );
        } else if self.is_container || self.is_confined {
            ways.push("start the container with --cap-add NET_RAW".to_owned());
        }
        if !self.is_confined {
            ways.push(format!("run it as root, or once `sudo setcap cap_net_raw+ep {program}`"));
        }
        let local = match self.has_private_hosts {
            true => "",
            false => " (--local does not work here either: user namespaces are not allowed)",
        };
        format!(
            "packet sockets need CAP_NET_RAW, which this process lacks{local}: {}",
            ways.join("; or ")
        )
    }
}

/// Returns true if neither this process nor one that it starts can get privileges by a file.
fn has_no_new_privileges() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    status.lines().any(|line| line.strip_prefix("NoNewPrivs:").is_some_and(|set| set.trim() == "1"))
}

/// Returns true if this process could enter the namespaces of `--local`, which it does.
fn may_have_private_hosts() -> bool {
    roce_netns::enter_user_namespace_if_needed().is_ok()
        && unshare(CloneFlags::CLONE_NEWNET).is_ok()
}

/// Keeps what the back end needs, CAP_NET_RAW or those of AF_XDP, for the program that this process becomes,
/// also if its user is not root. A program whose file has capabilities would ignore the variables of the
/// loader; an ambient capability leaves them in force.
pub(crate) fn keep() {
    let needed = match environment::backend() {
        Ok(Backend::AfXdp) => OF_XDP,
        _ => CapabilitySet::NET_RAW,
    };
    let raise = || {
        let mut own = capabilities(None)?;
        if !own.permitted.contains(needed) {
            return Ok(());
        }
        own.inheritable |= needed;
        let CapabilitySets { effective, permitted, inheritable } = own;
        set_capabilities(None, CapabilitySets { effective, permitted, inheritable })?;
        needed.iter().try_for_each(|one| configure_capability_in_ambient_set(one, true))
    };
    // Root has the capability without this; without it the library says what is missing.
    let _: rustix::io::Result<()> = raise();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_work_in_a_place_is_not_recommended_there() {
        let host = Place {
            is_confined: false,
            is_container: false,
            is_pod: false,
            has_private_hosts: true,
        };
        let on_host = host.advice("/opt/roce");
        assert!(
            on_host.contains("--local 2") && on_host.contains("setcap cap_net_raw+ep /opt/roce`")
        );
        assert!(!on_host.contains("container"), "{on_host}");

        let closed = Place { has_private_hosts: false, ..host }.advice("/opt/roce");
        assert!(!closed.contains("--local 2") && closed.contains("--local does not work here"));

        let restricted =
            Place { is_confined: true, is_container: true, is_pod: true, has_private_hosts: false };
        let in_pod = restricted.advice("/opt/roce");
        assert!(in_pod.contains("NET_RAW") && in_pod.contains("restricted"), "{in_pod}");
        assert!(!in_pod.contains("setcap") && !in_pod.contains("--cap-add"), "{in_pod}");

        let container = Place { is_pod: false, ..restricted }.advice("/opt/roce");
        assert!(
            container.contains("--cap-add NET_RAW") && !container.contains("pod"),
            "{container}"
        );
    }
}
