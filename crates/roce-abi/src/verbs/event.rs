//! Asynchronous events.

use std::ffi::{c_int, c_void};

#[repr(C)]
pub struct ibv_async_event {
    pub element: ibv_async_element,
    pub event_type: c_int,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub union ibv_async_element {
    /// The completion queue, queue pair or shared receive queue.
    pub object: *mut c_void,
    pub port_num: c_int,
}

pub const IBV_EVENT_CQ_ERR: c_int = 0;
pub const IBV_EVENT_QP_FATAL: c_int = 1;
pub const IBV_EVENT_QP_REQ_ERR: c_int = 2;
pub const IBV_EVENT_QP_ACCESS_ERR: c_int = 3;
pub const IBV_EVENT_COMM_EST: c_int = 4;
pub const IBV_EVENT_SQ_DRAINED: c_int = 5;
pub const IBV_EVENT_PATH_MIG: c_int = 6;
pub const IBV_EVENT_PATH_MIG_ERR: c_int = 7;
pub const IBV_EVENT_DEVICE_FATAL: c_int = 8;
pub const IBV_EVENT_PORT_ACTIVE: c_int = 9;
pub const IBV_EVENT_PORT_ERR: c_int = 10;
pub const IBV_EVENT_SRQ_ERR: c_int = 14;
pub const IBV_EVENT_SRQ_LIMIT_REACHED: c_int = 15;
pub const IBV_EVENT_QP_LAST_WQE_REACHED: c_int = 16;
pub const IBV_EVENT_GID_CHANGE: c_int = 18;
