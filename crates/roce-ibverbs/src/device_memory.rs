//! Device memory: ordinary memory that programs access through two functions.

use std::alloc::{self, Layout};
use std::ffi::{c_int, c_uint, c_void};
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use libc::{EBUSY, EFAULT, EINVAL, EIO, ENOMEM};
use roce_abi::{IBV_ACCESS_ZERO_BASED, ibv_alloc_dm_attr, ibv_context, ibv_dm, ibv_mr, ibv_pd};

use crate::cancellation::Uncancellable;
use crate::context::{ContextInner, ContextPtr};
use crate::errno;
use crate::memory_region::{self, Owned};
use crate::object::{self, Object, Shared, is_used};
use crate::protection_domain::ProtectionDomain;

/// Most bytes of one allocation: what programs ask for less of.
pub(crate) const MAX_SIZE: usize = 1 << 20;

/// Offsets and lengths of copies are multiples of this many bytes, as with mlx5.
const ALIGNMENT: usize = size_of::<AtomicU32>();

/// An allocation begins on a page at least.
const MIN_LOG_ALIGN: u32 = 12;
const MAX_LOG_ALIGN: u32 = 20;

/// An allocation of device memory.
#[repr(C)]
pub(crate) struct DeviceMemory {
    c: Shared<ibv_dm>,
    bytes: Arc<Bytes>,
    _context: Arc<ContextInner>,
}

// SAFETY: `repr(C)` with the structure first.
unsafe impl Object for DeviceMemory {
    type C = ibv_dm;
}

/// The bytes, which regions keep alive.
pub(crate) struct Bytes {
    first: NonNull<u8>,
    layout: Layout,
    len: usize,
}

// SAFETY: every access of this library is an atomic one.
unsafe impl Send for Bytes {}
// SAFETY: as above.
unsafe impl Sync for Bytes {}

impl Bytes {
    /// Allocates zeros.
    ///
    /// # Errors
    /// An `errno` value.
    fn allocate(len: usize, log_align: u32) -> Result<Self, c_int> {
        if len == 0 || log_align > MAX_LOG_ALIGN {
            return Err(EINVAL);
        }
        if len > MAX_SIZE {
            return Err(ENOMEM);
        }
        let align = 1 << log_align.max(MIN_LOG_ALIGN);
        let layout = Layout::from_size_align(len.next_multiple_of(align), align);
        let layout = layout.map_err(|_| EINVAL)?;
        // SAFETY: the size is not 0.
        let first = NonNull::new(unsafe { alloc::alloc_zeroed(layout) }).ok_or(ENOMEM)?;
        Ok(Self { first, layout, len })
    }

    /// Returns the words of a range.
    ///
    /// # Errors
    /// `EINVAL` where it is not of whole words, `EFAULT` where it leaves the allocation.
    fn words(&self, offset: u64, len: usize) -> Result<&[AtomicU32], c_int> {
        let offset = usize::try_from(offset).map_err(|_| EFAULT)?;
        if offset.checked_add(len).is_none_or(|end| end > self.len) {
            return Err(EFAULT);
        }
        if !offset.is_multiple_of(ALIGNMENT) || !len.is_multiple_of(ALIGNMENT) {
            return Err(EINVAL);
        }
        // SAFETY: the range is in the allocation, which begins on a page; all other accesses to it are
        // atomic too, or by functions in assembly.
        Ok(unsafe {
            std::slice::from_raw_parts(self.first.as_ptr().add(offset).cast(), len / ALIGNMENT)
        })
    }
}

impl Drop for Bytes {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout.
        unsafe { alloc::dealloc(self.first.as_ptr(), self.layout) };
    }
}

/// `ibv_alloc_dm`
pub(crate) unsafe extern "C" fn alloc(
    context: *mut ibv_context,
    attributes: *mut ibv_alloc_dm_attr,
) -> *mut ibv_dm {
    let Some(_uncancellable) = Uncancellable::with_memory() else { return std::ptr::null_mut() };
    // SAFETY: the program passes attributes.
    let attributes = unsafe { &*attributes };
    // SAFETY: the program passes a context.
    let context = unsafe { ContextPtr::of(context) };
    if context.device().is_inherited() {
        return errno::null(EIO);
    }
    if attributes.comp_mask != 0 {
        return errno::null(EINVAL);
    }
    let bytes = match Bytes::allocate(attributes.length, attributes.log_align_req) {
        Ok(bytes) => Arc::new(bytes),
        Err(errno) => return errno::null(errno),
    };
    let c = ibv_dm {
        context: context.as_ptr(),
        memcpy_to_dm: Some(copy_to),
        memcpy_from_dm: Some(copy_from),
        comp_mask: 0,
        handle: 0,
    };
    let context = Arc::clone(context.inner());
    object::give(DeviceMemory { c: Shared::new(c), bytes, _context: context })
}

/// `ibv_free_dm`: `EBUSY` while a region is registered on it.
pub(crate) unsafe extern "C" fn free(memory: *mut ibv_dm) -> c_int {
    let _uncancellable = Uncancellable::begin();
    // SAFETY: see `object`.
    if is_used(&unsafe { object::lend::<DeviceMemory>(memory) }.bytes) {
        return errno::failed(EBUSY);
    }
    // SAFETY: see `object`.
    drop(unsafe { object::take::<DeviceMemory>(memory) });
    0
}

/// Calls `copy` with the position of each word of a range, and the word.
///
/// # Safety
/// As of [`object::lend`].
unsafe fn for_each_word(
    memory: *mut ibv_dm,
    offset: u64,
    len: usize,
    mut copy: impl FnMut(usize, &AtomicU32),
) -> c_int {
    // SAFETY: the caller's promise.
    let bytes = &unsafe { object::lend::<DeviceMemory>(memory) }.bytes;
    let words = bytes.words(offset, len);
    errno::code_of(words.map(|words| {
        words.iter().enumerate().for_each(|(index, word)| copy(index, word));
    }))
}

/// `ibv_memcpy_to_dm`
unsafe extern "C" fn copy_to(
    memory: *mut ibv_dm,
    offset: u64,
    from: *const c_void,
    len: usize,
) -> c_int {
    let store = |index, word: &AtomicU32| {
        // SAFETY: the program passes so many bytes, which need not be aligned.
        let value = unsafe { from.cast::<u32>().add(index).read_unaligned() };
        word.store(value, Ordering::Release);
    };
    // SAFETY: see `object`.
    unsafe { for_each_word(memory, offset, len, store) }
}

/// `ibv_memcpy_from_dm`
unsafe extern "C" fn copy_from(
    to: *mut c_void,
    memory: *mut ibv_dm,
    offset: u64,
    len: usize,
) -> c_int {
    let load = |index, word: &AtomicU32| {
        // SAFETY: the program has room for so many bytes, which need not be aligned.
        unsafe { to.cast::<u32>().add(index).write_unaligned(word.load(Ordering::Acquire)) };
    };
    // SAFETY: see `object`.
    unsafe { for_each_word(memory, offset, len, load) }
}

/// `ibv_reg_dm_mr`: the address of its first byte is 0, so the flag that says this is needed.
pub(crate) unsafe extern "C" fn register(
    pd: *mut ibv_pd,
    memory: *mut ibv_dm,
    offset: u64,
    length: usize,
    access: c_uint,
) -> *mut ibv_mr {
    let _uncancellable = Uncancellable::begin();
    // SAFETY: see `object`.
    let (pd, memory) =
        unsafe { (object::lend::<ProtectionDomain>(pd), object::lend::<DeviceMemory>(memory)) };
    let bytes = &memory.bytes;
    let offset = usize::try_from(offset).ok();
    let is_inside = offset.and_then(|it| it.checked_add(length)).is_some_and(|it| it <= bytes.len);
    let (Some(offset), true) = (offset, is_inside && access & IBV_ACCESS_ZERO_BASED != 0) else {
        return errno::null(EINVAL);
    };
    // SAFETY: in the allocation, which the region keeps alive, and which only the two functions of the
    // program access beside it, by atomics.
    let made = unsafe {
        let (first, owner) = (bytes.first.as_ptr().add(offset), Arc::clone(bytes));
        let (iova, shown, on_demand) = (0, ptr::null_mut(), false);
        let memory = Owned { first, length, iova, shown, on_demand, owner };
        memory_region::register_owned(pd, memory, access)
    };
    made.unwrap_or_else(errno::null)
}
