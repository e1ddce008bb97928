//! Memory windows of types 1 and 2B.

use std::ffi::{c_int, c_uint};
use std::sync::Arc;

use libc::EINVAL;
use roce_abi::{IBV_MW_TYPE_1, IBV_MW_TYPE_2, ibv_mw, ibv_mw_bind_info, ibv_pd};
use roce_verbs::{AccessFlags, WindowBinding, WindowType};

use crate::cancellation::Uncancellable;
use crate::memory_region::KNOWN_FLAGS;
use crate::object::{self, Object, Shared};
use crate::protection_domain::{PdInner, ProtectionDomain};
use crate::{errno, memory_region};

/// A memory window.
#[repr(C)]
pub(crate) struct MemoryWindow {
    c: Shared<ibv_mw>,
    window: roce_verbs::MemoryWindow,
    _pd: Arc<PdInner>,
}

// SAFETY: `repr(C)` with the structure first.
unsafe impl Object for MemoryWindow {
    type C = ibv_mw;
}

/// `ibv_alloc_mw`
pub(crate) unsafe extern "C" fn alloc(pd: *mut ibv_pd, window_type: c_int) -> *mut ibv_mw {
    let Some(_uncancellable) = Uncancellable::with_memory() else { return std::ptr::null_mut() };
    // SAFETY: see `object`.
    let pd = unsafe { object::lend::<ProtectionDomain>(pd) };
    let rust_type = match window_type {
        IBV_MW_TYPE_1 => WindowType::Type1,
        IBV_MW_TYPE_2 => WindowType::Type2B,
        _ => return errno::null(EINVAL),
    };
    let window = match pd.inner().pd.alloc_window(rust_type) {
        Ok(window) => window,
        Err(error) => return errno::null(errno::of(&error)),
    };
    let c = ibv_mw {
        context: pd.context().as_ptr(),
        pd: object::pointer_to(pd),
        rkey: window.rkey(),
        handle: window.number(),
        r#type: window_type,
    };
    object::give(MemoryWindow { c: Shared::new(c), window, _pd: Arc::clone(pd.inner()) })
}

/// `ibv_dealloc_mw`: also of a window that is bound.
pub(crate) unsafe extern "C" fn dealloc(window: *mut ibv_mw) -> c_int {
    let _uncancellable = Uncancellable::begin();
    // SAFETY: see `object`.
    drop(unsafe { object::take::<MemoryWindow>(window) });
    0
}

/// Returns what a request binds a window to, under a key with this tag.
///
/// # Errors
/// `EINVAL` without a window, without a region where one is needed, and for flags without a meaning.
///
/// # Safety
/// `window` and the region are objects of the program, or null.
pub(crate) unsafe fn binding(
    window: *mut ibv_mw,
    rkey: u32,
    to: &ibv_mw_bind_info,
) -> Result<WindowBinding, c_int> {
    // SAFETY: the caller's promise.
    let window = unsafe { object::lend_optional::<MemoryWindow>(window) }.ok_or(EINVAL)?;
    // SAFETY: as above.
    let lkey = unsafe { memory_region::lkey_of(to.mr) };
    let known: c_uint = KNOWN_FLAGS;
    if (lkey.is_none() && to.length > 0) || to.mw_access_flags & !known != 0 {
        return Err(EINVAL);
    }
    Ok(WindowBinding {
        window: window.window.number(),
        // The other bits are the window's, whatever the program says.
        tag: rkey as u8,
        lkey: lkey.unwrap_or(0),
        addr: to.addr,
        len: to.length,
        access: AccessFlags::from_bits_truncate(to.mw_access_flags),
    })
}
