//! Members of multicast groups.

use std::ffi::c_int;

use roce_abi::ibv_gid;
use roce_verbs::Gid;

use crate::cancellation::Uncancellable;
use crate::errno;
use crate::queue_pair::QueuePair;

/// `ibv_attach_mcast`
pub(crate) extern "C" fn attach(qp: &QueuePair, group: &ibv_gid, _lid: u16) -> c_int {
    let _uncancellable = Uncancellable::begin();
    errno::code(qp.qp.attach(Gid(group.raw).ip()))
}

/// `ibv_detach_mcast`
pub(crate) extern "C" fn detach(qp: &QueuePair, group: &ibv_gid, _lid: u16) -> c_int {
    let _uncancellable = Uncancellable::begin();
    errno::code(qp.qp.detach(Gid(group.raw).ip()))
}
