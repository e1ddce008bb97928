//! The functions that programs reach through a context.

use roce_abi::verbs_context;

use crate::extended::{domain, poll, post as staged_post, values};
use crate::{
    completion_queue, device_memory, memory_region, memory_window, post, query,
    shared_receive_queue,
};

/// Returns the structure with its functions and without a device. What does not exist here is NULL,
/// for which verbs.h returns EOPNOTSUPP, except where it calls a function without a check.
pub(crate) fn table() -> verbs_context {
    // SAFETY: integers, pointers, optional functions and a lock that begins as zeros.
    let mut verbs: verbs_context = unsafe { std::mem::zeroed() };
    verbs.sz = size_of::<verbs_context>();
    verbs.reg_mr_ex = Some(values::reg_mr_ex);
    verbs.query_port = Some(query::port_of_size);
    verbs.alloc_null_mr = Some(memory_region::alloc_null);
    verbs.alloc_dm = Some(device_memory::alloc);
    verbs.free_dm = Some(device_memory::free);
    verbs.reg_dm_mr = Some(device_memory::register);
    verbs.advise_mr = Some(values::advise_mr);
    verbs.alloc_parent_domain = Some(domain::alloc_parent_domain);
    verbs.alloc_td = Some(domain::alloc_td);
    verbs.dealloc_td = Some(domain::dealloc_td);
    verbs.modify_cq = Some(values::modify_cq);
    verbs.query_rt_values = Some(values::query_rt_values);
    verbs.create_cq_ex = Some(poll::create);
    verbs.query_device_ex = Some(query::device_ex);
    verbs.create_qp_ex = Some(staged_post::create);
    verbs.create_srq_ex = Some(domain::create_srq);
    verbs.get_srq_num = Some(values::srq_num);
    verbs.close_xrcd = Some(values::close_xrcd);
    let ops = &mut verbs.context.ops;
    ops.alloc_mw = Some(memory_window::alloc);
    ops.bind_mw = Some(post::bind_window);
    ops.dealloc_mw = Some(memory_window::dealloc);
    ops.poll_cq = Some(completion_queue::poll);
    ops.req_notify_cq = Some(completion_queue::req_notify);
    ops.post_srq_recv = Some(shared_receive_queue::post_recv);
    ops.post_send = Some(post::send);
    ops.post_recv = Some(post::receive);
    verbs
}
