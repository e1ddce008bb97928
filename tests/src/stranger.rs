//! Other users of the same host, without privileges.

use roce_netns::Host;
use rustix::thread::{
    CapabilitySet, CapabilitySets, Gid, Uid, set_capabilities, set_thread_groups,
    set_thread_res_gid, set_thread_res_uid,
};

/// The user of [`as_stranger`].
pub const STRANGER: u32 = 12_346;
/// The user of [`WITH_PACKET_SOCKETS`].
pub const NEIGHBOUR: u32 = 12_345;

/// Returns true if this process may take the identity of other users: it is the superuser of the machine, and
/// not of a user namespace that has no other.
pub fn may_be_others() -> bool {
    std::thread::scope(|scope| scope.spawn(|| take_identity(STRANGER)).join()).expect("no panic")
}

/// Does something in a host as the user [`STRANGER`], without any capability.
///
/// # Panics
/// If `work` panics, and where [`may_be_others`] is false.
pub fn as_stranger<T: Send>(host: &Host, work: impl FnOnce() -> T + Send) -> T {
    host.run(|| {
        assert!(take_identity(STRANGER), "this process may not take a user's identity");
        work()
    })
}

/// Returns the upper twelve bits of the queue pair numbers of a host's processes, which the kernel shows every user of
/// the thread's network namespace.
///
/// # Panics
/// When `/proc` is not there.
pub fn shown_blocks() -> Vec<u32> {
    let list =
        std::fs::read_to_string("/proc/thread-self/net/unix").expect("every user may read it");
    let names = list.lines().filter_map(|line| line.rsplit_once("@roce/qpn/"));
    names.map(|(_, block)| u32::from_str_radix(block, 16).expect("three digits")).collect()
}

/// Returns how often tests with strangers repeat what they do: `ROCE_STRANGER_ROUNDS`, or once.
///
/// # Panics
/// When the variable is no number.
pub fn rounds() -> u64 {
    std::env::var("ROCE_STRANGER_ROUNDS").map_or(1, |rounds| rounds.parse().expect("a number"))
}

/// What runs a program as the user [`STRANGER`], if the superuser runs it.
pub const WITHOUT_PRIVILEGES: [&str; 5] =
    ["setpriv", "--reuid=12346", "--regid=12346", "--clear-groups", "--no-new-privs"];

/// What runs a program as a user that may use packet sockets, if the superuser runs it.
pub const WITH_PACKET_SOCKETS: [&str; 6] = [
    "setpriv",
    "--reuid=12345",
    "--regid=12345",
    "--clear-groups",
    "--inh-caps=+net_raw",
    "--ambient-caps=+net_raw",
];

/// Makes this thread one of a user without capabilities and further groups, for good.
fn take_identity(user: u32) -> bool {
    let (user, group) = (Uid::from_raw(user), Gid::from_raw(user));
    let none = CapabilitySet::empty();
    let sets = CapabilitySets { effective: none, permitted: none, inheritable: none };
    set_thread_groups(&[]).is_ok()
        && set_thread_res_gid(group, group, group).is_ok()
        && set_thread_res_uid(user, user, user).is_ok()
        && set_capabilities(None, sets).is_ok()
}
