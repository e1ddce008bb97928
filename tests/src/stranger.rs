//! Other users of the same host, without privileges.

use roce_netns::Host;
use rustix::thread::{CapabilitySet, CapabilitySets, Uid, set_capabilities, set_thread_res_uid};

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

/// What runs a program as a user that may use packet sockets, if the superuser runs it.
pub const WITH_PACKET_SOCKETS: [&str; 6] = [
    "setpriv",
    "--reuid=12345",
    "--regid=12345",
    "--clear-groups",
    "--inh-caps=+net_raw",
    "--ambient-caps=+net_raw",
];

/// Makes this thread one of a user without capabilities, for good.
fn take_identity(user: u32) -> bool {
    let user = Uid::from_raw(user);
    let none = CapabilitySet::empty();
    let sets = CapabilitySets { effective: none, permitted: none, inheritable: none };
    set_thread_res_uid(user, user, user).is_ok() && set_capabilities(None, sets).is_ok()
}
