//! Address handles.

use std::ffi::c_int;
use std::sync::Arc;

use libc::{EINVAL, EPROTONOSUPPORT};
use roce_abi::{ibv_ah, ibv_ah_attr, ibv_gid, ibv_global_route, ibv_grh, ibv_wc};
use roce_verbs::{DatagramSource, Gid};

use crate::cancellation::Uncancellable;
use crate::context::ContextPtr;
use crate::object::{self, Object, Shared};
use crate::protection_domain::{PdInner, ProtectionDomain};
use crate::{address_vector, errno};

/// An address handle.
#[repr(C)]
pub(crate) struct AddressHandle {
    c: Shared<ibv_ah>,
    pub(crate) ah: roce_verbs::AddressHandle,
    _pd: Arc<PdInner>,
}

// SAFETY: `repr(C)` with the structure first.
unsafe impl Object for AddressHandle {
    type C = ibv_ah;
}

/// `ibv_create_ah`
pub(crate) extern "C" fn create(pd: &ProtectionDomain, attributes: &ibv_ah_attr) -> *mut ibv_ah {
    let Some(_uncancellable) = Uncancellable::with_memory() else { return std::ptr::null_mut() };
    let vector = match address_vector::of(attributes) {
        Ok(vector) => vector,
        Err(errno) => return errno::null(errno),
    };
    let ah = match pd.inner().pd.create_ah(&vector) {
        Ok(ah) => ah,
        Err(error) => return errno::null(errno::of(&error)),
    };
    let context = pd.context().as_ptr();
    let c = Shared::new(ibv_ah { context, pd: object::pointer_to(pd), handle: 0 });
    object::give(AddressHandle { c, ah, _pd: Arc::clone(pd.inner()) })
}

/// `ibv_destroy_ah`
pub(crate) unsafe extern "C" fn destroy(ah: *mut ibv_ah) -> c_int {
    let _uncancellable = Uncancellable::begin();
    // SAFETY: see `object`.
    drop(unsafe { object::take::<AddressHandle>(ah) });
    0
}

/// `ibv_init_ah_from_wc`
pub(crate) unsafe extern "C" fn init_from_wc(
    context: ContextPtr,
    port: u8,
    completion: &ibv_wc,
    grh: *const ibv_grh,
    attributes: &mut ibv_ah_attr,
) -> c_int {
    let fail = |errno| {
        errno::set(errno);
        -1
    };
    *attributes = ibv_ah_attr {
        sl: completion.sl,
        src_path_bits: completion.dlid_path_bits,
        dlid: completion.slid,
        port_num: port,
        ..ibv_ah_attr::default()
    };
    if completion.wc_flags & roce_abi::IBV_WC_GRH == 0 {
        return 0;
    }
    // SAFETY: the flag says that the program has the 40 bytes of a datagram.
    let bytes = unsafe { grh.cast::<[u8; 40]>().read() };
    let Some(received) = DatagramSource::parse(&bytes) else { return fail(EPROTONOSUPPORT) };
    let table = match context.device().gid_table() {
        Ok(table) => table,
        Err(error) => return fail(errno::of(&error)),
    };
    let row = table.iter().find(|row| row.usable && row.gid.ip() == received.destination);
    let Some(row) = row else { return fail(EINVAL) };
    attributes.is_global = 1;
    attributes.grh = ibv_global_route {
        dgid: ibv_gid::new(Gid::from(received.source).0),
        flow_label: received.flow_label,
        sgid_index: row.index,
        // As the kernel has it for answers: the sender may be as far away as packets go.
        hop_limit: 0xff,
        traffic_class: received.traffic_class,
    };
    0
}

/// `ibv_create_ah_from_wc`
pub(crate) unsafe extern "C" fn create_from_wc(
    pd: &ProtectionDomain,
    completion: &ibv_wc,
    grh: *const ibv_grh,
    port: u8,
) -> *mut ibv_ah {
    let _uncancellable = Uncancellable::begin();
    let mut attributes = ibv_ah_attr::default();
    // SAFETY: what this function is called with.
    match unsafe { init_from_wc(pd.context(), port, completion, grh, &mut attributes) } {
        0 => create(pd, &attributes),
        _ => std::ptr::null_mut(),
    }
}
