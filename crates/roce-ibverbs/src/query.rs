//! Attributes of devices and ports, GIDs and partition keys.

use std::ffi::c_int;
use std::mem::offset_of;
use std::ptr;

use libc::{EINVAL, ENODATA, ENOENT};
use roce_abi::{
    COMPAT_PORT_ATTR_LEN, IBV_ATOMIC_HCA, IBV_ATOMIC_NONE, IBV_DEVICE_ATOMIC_WRITE,
    IBV_DEVICE_CURR_QP_STATE_MOD, IBV_DEVICE_FLUSH_GLOBAL, IBV_DEVICE_MEM_WINDOW,
    IBV_DEVICE_MEM_WINDOW_TYPE_2B, IBV_DEVICE_PORT_ACTIVE_EVENT, IBV_DEVICE_RC_RNR_NAK_GEN,
    IBV_DEVICE_SRQ_RESIZE, IBV_DEVICE_SYS_IMAGE_GUID, IBV_GID_TYPE_ROCE_V2,
    IBV_GID_TYPE_SYSFS_IB_ROCE_V1, IBV_GID_TYPE_SYSFS_ROCE_V2, IBV_LINK_LAYER_ETHERNET,
    IBV_MTU_4096, IBV_ODP_SUPPORT, IBV_ODP_SUPPORT_ATOMIC, IBV_ODP_SUPPORT_ATOMIC_WRITE,
    IBV_ODP_SUPPORT_FLUSH, IBV_ODP_SUPPORT_IMPLICIT, IBV_ODP_SUPPORT_READ, IBV_ODP_SUPPORT_RECV,
    IBV_ODP_SUPPORT_SEND, IBV_ODP_SUPPORT_SRQ_RECV, IBV_ODP_SUPPORT_WRITE, IBV_PORT_ACTIVE,
    IBV_PORT_CM_SUP, IBV_PORT_DOWN, IBV_PORT_IP_BASED_GIDS, IBV_QPF_GRH_REQUIRED, ibv_context,
    ibv_device_attr, ibv_device_attr_ex, ibv_gid, ibv_gid_entry, ibv_odp_caps, ibv_port_attr,
    ibv_query_device_ex_input,
};
use roce_verbs::{
    Error, GidEntry, MAX_GROUP_MEMBERS, MAX_GROUPS, MAX_WINDOWS, PathMtu, PortState, QpCap,
    VerbMoment,
};

use crate::cancellation::Uncancellable;
use crate::context::ContextPtr;
use crate::device_list::{FW_VER, c_text};
use crate::errno;

/// Number of the vendor, which no maker of network cards has: programs that know vendors treat the
/// device as an unknown one.
const VENDOR_ID: u32 = 0x72_6f63;
/// Objects of a kind that a device may have: what programs ask for less of, not a limit of ours.
const MANY: c_int = 1 << 16;
/// The only partition key: full membership of the default partition.
const DEFAULT_PKEY: u16 = 0xffff;
/// Rows of the GID table: an index is a byte.
const GID_TABLE_LEN: c_int = roce_verbs::GID_TABLE_LEN as c_int;
const PHYS_STATE_DISABLED: u8 = 3;
const PHYS_STATE_LINK_UP: u8 = 5;

fn device_attributes(context: ContextPtr) -> ibv_device_attr {
    let guid = context.inner().listed.node_guid();
    let max_wr = c_int::try_from(QpCap::MAX_WR).unwrap_or(c_int::MAX);
    let limits = &context.inner().limits;
    let limited = |limit: Option<u32>, usual: c_int| {
        limit.and_then(|limit| c_int::try_from(limit).ok()).map_or(usual, |limit| limit.min(usual))
    };
    let max_sge = limited(limits.max_sge, 32);
    let max_rd_atom = limited(limits.max_qp_rd_atom, 128);
    let of_srq = |usual| if limits.has_no_srq { 0 } else { usual };
    // SAFETY: integers.
    let zero: ibv_device_attr = unsafe { std::mem::zeroed() };
    ibv_device_attr {
        fw_ver: c_text(FW_VER),
        node_guid: guid,
        sys_image_guid: guid,
        max_mr_size: u64::MAX,
        page_size_cap: 0xffff_f000,
        vendor_id: VENDOR_ID,
        max_qp: MANY,
        max_qp_wr: max_wr,
        device_cap_flags: IBV_DEVICE_CURR_QP_STATE_MOD
            | IBV_DEVICE_PORT_ACTIVE_EVENT
            | IBV_DEVICE_SYS_IMAGE_GUID
            | IBV_DEVICE_RC_RNR_NAK_GEN
            | IBV_DEVICE_SRQ_RESIZE
            | IBV_DEVICE_MEM_WINDOW
            | IBV_DEVICE_MEM_WINDOW_TYPE_2B,
        max_sge,
        max_sge_rd: max_sge,
        max_cq: MANY,
        max_cqe: crate::completion_queue::MAX_CQE,
        max_mr: 1 << 20,
        max_pd: MANY,
        max_qp_rd_atom: max_rd_atom,
        max_res_rd_atom: max_rd_atom * MANY,
        max_qp_init_rd_atom: max_rd_atom,
        // As rxe. Atomics are those of the processor, which IBV_ATOMIC_GLOB says; but older UCX has no
        // atomics on devices that claim it.
        atomic_cap: if limits.has_no_atomics { IBV_ATOMIC_NONE } else { IBV_ATOMIC_HCA },
        max_mw: c_int::try_from(MAX_WINDOWS).unwrap_or(c_int::MAX),
        max_mcast_grp: MAX_GROUPS as c_int,
        max_mcast_qp_attach: MAX_GROUP_MEMBERS as c_int,
        max_total_mcast_qp_attach: (MAX_GROUPS * MAX_GROUP_MEMBERS) as c_int,
        max_ah: MANY,
        max_srq: of_srq(MANY),
        max_srq_wr: of_srq(max_wr),
        max_srq_sge: of_srq(max_sge),
        max_pkeys: 1,
        local_ca_ack_delay: 15,
        phys_port_cnt: 1,
        ..zero
    }
}

/// `ibv_query_device`
pub(crate) extern "C" fn device(context: ContextPtr, attributes: &mut ibv_device_attr) -> c_int {
    let _uncancellable = Uncancellable::begin();
    if context.device().is_inherited() {
        return errno::failed(libc::EIO);
    }
    if let Err(errno) = context.inner().meet_faults_of(VerbMoment::QueryDevice) {
        return errno::failed(errno);
    }
    *attributes = device_attributes(context);
    0
}

/// Returns what may name memory that is registered on demand: everything, since the processor copies.
fn on_demand_paging() -> ibv_odp_caps {
    let datagrams = IBV_ODP_SUPPORT_SEND | IBV_ODP_SUPPORT_RECV | IBV_ODP_SUPPORT_SRQ_RECV;
    let unreliable = datagrams | IBV_ODP_SUPPORT_WRITE;
    ibv_odp_caps {
        general_caps: IBV_ODP_SUPPORT | IBV_ODP_SUPPORT_IMPLICIT,
        rc_odp_caps: unreliable
            | IBV_ODP_SUPPORT_READ
            | IBV_ODP_SUPPORT_ATOMIC
            | IBV_ODP_SUPPORT_FLUSH
            | IBV_ODP_SUPPORT_ATOMIC_WRITE,
        uc_odp_caps: unreliable,
        ud_odp_caps: datagrams,
    }
}

/// `ibv_query_device_ex`
pub(crate) unsafe extern "C" fn device_ex(
    context: *mut ibv_context,
    input: *const ibv_query_device_ex_input,
    attributes: *mut ibv_device_attr_ex,
    size: usize,
) -> c_int {
    let _uncancellable = Uncancellable::begin();
    // SAFETY: null, or the program's.
    if unsafe { input.as_ref() }.is_some_and(|input| input.comp_mask != 0) {
        return errno::failed(EINVAL);
    }
    // SAFETY: the program passes a context.
    let context = unsafe { ContextPtr::of(context) };
    if context.device().is_inherited() {
        return errno::failed(libc::EIO);
    }
    if let Err(errno) = context.inner().meet_faults_of(VerbMoment::QueryDevice) {
        return errno::failed(errno);
    }
    // SAFETY: integers.
    let zero: ibv_device_attr_ex = unsafe { std::mem::zeroed() };
    let orig_attr = device_attributes(context);
    let all = ibv_device_attr_ex {
        orig_attr,
        completion_timestamp_mask: u64::MAX,
        // Kilohertz: completion times are nanoseconds.
        hca_core_clock: 1_000_000,
        odp_caps: on_demand_paging(),
        max_dm_size: crate::device_memory::MAX_SIZE as u64,
        device_cap_flags_ex: u64::from(orig_attr.device_cap_flags)
            | IBV_DEVICE_FLUSH_GLOBAL
            | IBV_DEVICE_ATOMIC_WRITE,
        phys_port_cnt_ex: 1,
        ..zero
    };
    // SAFETY: the program passes room for `size` bytes.
    unsafe { write_prefix(&all, attributes, size) };
    0
}

/// Writes the first `size` bytes of a structure, and zeros where it has fewer.
///
/// # Safety
/// `size` bytes at `to` may be written.
unsafe fn write_prefix<T>(from: &T, to: *mut T, size: usize) {
    // SAFETY: the caller's promise.
    unsafe {
        ptr::write_bytes(to.cast::<u8>(), 0, size);
        let known = size.min(size_of::<T>());
        ptr::copy_nonoverlapping(ptr::from_ref(from).cast::<u8>(), to.cast(), known);
    }
}

fn port_attributes(context: ContextPtr, number: u8) -> Result<ibv_port_attr, c_int> {
    if number != 1 {
        return Err(EINVAL);
    }
    context.inner().meet_faults_of(VerbMoment::QueryPort)?;
    let port = context.device().port().map_err(|error| errno::of(&error))?;
    // SAFETY: integers.
    let zero: ibv_port_attr = unsafe { std::mem::zeroed() };
    let is_active = port.state == PortState::Active;
    let mtu = port.active_mtu.unwrap_or(PathMtu::B256);
    let rate = context.inner().rate();
    Ok(ibv_port_attr {
        state: if is_active { IBV_PORT_ACTIVE } else { IBV_PORT_DOWN },
        max_mtu: IBV_MTU_4096,
        active_mtu: c_int::from(mtu.code()),
        gid_tbl_len: GID_TABLE_LEN,
        port_cap_flags: IBV_PORT_CM_SUP | IBV_PORT_IP_BASED_GIDS,
        max_msg_sz: port.max_message_len,
        pkey_tbl_len: 1,
        max_vl_num: 1,
        active_width: rate.width_code(),
        active_speed: rate.speed as u8,
        phys_state: if is_active { PHYS_STATE_LINK_UP } else { PHYS_STATE_DISABLED },
        link_layer: IBV_LINK_LAYER_ETHERNET,
        flags: IBV_QPF_GRH_REQUIRED,
        ..zero
    })
}

/// `ibv_query_port` as an exported function, which writes what programs of all ages have room for.
pub(crate) unsafe extern "C" fn port(
    context: ContextPtr,
    number: u8,
    attributes: *mut ibv_port_attr,
) -> c_int {
    let _uncancellable = Uncancellable::begin();
    // SAFETY: the program has room for so many bytes.
    unsafe { port_of_size(context.as_ptr(), number, attributes, COMPAT_PORT_ATTR_LEN) }
}

const _: () = assert!(offset_of!(ibv_port_attr, port_cap_flags2) == COMPAT_PORT_ATTR_LEN);

/// `ibv_query_port` as an operation, which receives the size of the structure.
pub(crate) unsafe extern "C" fn port_of_size(
    context: *mut ibv_context,
    number: u8,
    attributes: *mut ibv_port_attr,
    size: usize,
) -> c_int {
    let _uncancellable = Uncancellable::begin();
    // SAFETY: the program passes a context.
    match port_attributes(unsafe { ContextPtr::of(context) }, number) {
        Ok(all) => {
            // SAFETY: the program passes room for `size` bytes.
            unsafe { write_prefix(&all, attributes, size) };
            0
        }
        Err(errno) => errno::failed(errno),
    }
}

/// `ibv_query_port_speed`: in units of 100 Mb/s.
pub(crate) extern "C" fn port_speed(context: ContextPtr, number: u32, speed: &mut u64) -> c_int {
    let _uncancellable = Uncancellable::begin();
    let Ok(number) = u8::try_from(number) else {
        return errno::failed(EINVAL);
    };
    match port_attributes(context, number) {
        Ok(_) => {
            *speed = u64::from(context.inner().rate().hundred_megabits());
            0
        }
        Err(errno) => errno::failed(errno),
    }
}

fn gids(context: ContextPtr) -> Result<Vec<GidEntry>, c_int> {
    context.inner().meet_faults_of(VerbMoment::QueryGid)?;
    context.device().gid_table().map_err(|error: Error| errno::of(&error))
}

/// Returns a row of the GID table; `ENODATA` for one that is empty.
fn gid_row(context: ContextPtr, port: u32, index: u32) -> Result<GidEntry, c_int> {
    let is_row = index < GID_TABLE_LEN.cast_unsigned();
    if port != 1 || !is_row {
        return Err(EINVAL);
    }
    let table = gids(context)?;
    table.into_iter().find(|row| u32::from(row.index) == index && row.usable).ok_or(ENODATA)
}

/// `ibv_query_gid`: an empty row has a GID of zeros.
pub(crate) extern "C" fn gid(
    context: ContextPtr,
    port: u8,
    index: c_int,
    gid: &mut ibv_gid,
) -> c_int {
    match gid_row(context, u32::from(port), index.cast_unsigned()) {
        Ok(row) => *gid = ibv_gid::new(row.gid.0),
        Err(ENODATA) => *gid = ibv_gid::default(),
        Err(errno) => {
            errno::set(errno);
            return -1;
        }
    }
    0
}

/// `ibv_query_gid_type`
pub(crate) extern "C" fn gid_type(
    context: ContextPtr,
    port: u8,
    index: u32,
    gid_type: &mut c_int,
) -> c_int {
    *gid_type = match gid_row(context, u32::from(port), index) {
        Ok(_) => IBV_GID_TYPE_SYSFS_ROCE_V2,
        Err(ENODATA) => IBV_GID_TYPE_SYSFS_IB_ROCE_V1,
        Err(errno) => {
            errno::set(errno);
            return -1;
        }
    };
    0
}

fn entry_of(context: ContextPtr, row: &GidEntry) -> ibv_gid_entry {
    ibv_gid_entry {
        gid: ibv_gid::new(row.gid.0),
        gid_index: u32::from(row.index),
        port_num: 1,
        gid_type: IBV_GID_TYPE_ROCE_V2,
        ndev_ifindex: context.inner().listed.interface_index(),
    }
}

/// `ibv_query_gid_ex`
pub(crate) unsafe extern "C" fn gid_ex(
    context: ContextPtr,
    port: u32,
    index: u32,
    entry: *mut ibv_gid_entry,
    flags: u32,
    size: usize,
) -> c_int {
    if flags != 0 {
        return errno::failed(EINVAL);
    }
    match gid_row(context, port, index) {
        Ok(row) => {
            // SAFETY: the program passes room for `size` bytes.
            unsafe { write_prefix(&entry_of(context, &row), entry, size) };
            0
        }
        Err(errno) => errno::failed(errno),
    }
}

/// `ibv_query_gid_table`: returns the number of entries, or a negative `errno` value.
pub(crate) unsafe extern "C" fn gid_table(
    context: ContextPtr,
    entries: *mut ibv_gid_entry,
    max: usize,
    flags: u32,
    size: usize,
) -> isize {
    if flags != 0 {
        return -(EINVAL as isize);
    }
    let table = match gids(context) {
        Ok(table) => table,
        Err(errno) => return -(errno as isize),
    };
    let rows: Vec<_> = table.iter().filter(|row| row.usable).collect();
    if rows.len() > max {
        return -(EINVAL as isize);
    }
    for (number, row) in rows.iter().enumerate() {
        // SAFETY: the program passes room for `max` entries of `size` bytes.
        unsafe {
            let to = entries.byte_add(number * size);
            write_prefix(&entry_of(context, row), to, size);
        }
    }
    rows.len() as isize
}

/// `ibv_query_pkey`
pub(crate) extern "C" fn pkey(
    context: ContextPtr,
    port: u8,
    index: c_int,
    pkey: &mut u16,
) -> c_int {
    if context.device().is_inherited() {
        errno::set(EINVAL);
        return -1;
    }
    if port != 1 || index != 0 {
        errno::set(ENOENT); // rdma-core looks for a file of the port, of this name
        return -1;
    }
    *pkey = DEFAULT_PKEY.to_be();
    0
}

/// `ibv_get_pkey_index`
pub(crate) extern "C" fn pkey_index(context: ContextPtr, port: u8, wanted: u16) -> c_int {
    let mut found = 0;
    match pkey(context, port, 0, &mut found) {
        0 if found == wanted => 0,
        0 => {
            errno::set(EINVAL);
            -1
        }
        failed => failed,
    }
}
