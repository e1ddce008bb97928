//! Memory regions.

use std::any::Any;
use std::ffi::{c_int, c_uint, c_void};
use std::sync::{Arc, Mutex, PoisonError};

use libc::{EBUSY, EFAULT, EINVAL, EOPNOTSUPP, EPERM};
use roce_abi::{
    IBV_ACCESS_FLUSH_GLOBAL, IBV_ACCESS_HUGETLB, IBV_ACCESS_LOCAL_WRITE, IBV_ACCESS_MW_BIND,
    IBV_ACCESS_ON_DEMAND, IBV_ACCESS_OPTIONAL_RANGE, IBV_ACCESS_REMOTE_ATOMIC,
    IBV_ACCESS_REMOTE_READ, IBV_ACCESS_REMOTE_WRITE, IBV_ACCESS_ZERO_BASED,
    IBV_ADVISE_MR_ADVICE_PREFETCH, IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT,
    IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE, IBV_ADVISE_MR_FLAG_FLUSH, IBV_REREG_MR_CHANGE_ACCESS,
    IBV_REREG_MR_CHANGE_PD, IBV_REREG_MR_CHANGE_TRANSLATION, IBV_REREG_MR_ERR_CMD,
    IBV_REREG_MR_ERR_INPUT, ibv_mr, ibv_pd,
};
use roce_verbs::{
    AccessFlags, Error, MemoryFault, NullRegion, Prefetch, RegisterOptions, Reregistration,
    VerbMoment,
};

use crate::cancellation::Uncancellable;
use crate::errno;
use crate::memory_reserve;
use crate::object::{self, Object, Shared};
use crate::protection_domain::{PdInner, ProtectionDomain};
use crate::receive_list::Elements;

/// A memory region.
#[repr(C)]
pub(crate) struct MemoryRegion {
    c: Shared<ibv_mr>,
    registration: Mutex<Registration>,
}

/// What a region stands for, and what that keeps alive.
struct Registration {
    target: Target,
    pd: Arc<PdInner>,
    /// What keeps memory alive that the library has allocated or mapped. Dropped behind the target, which uses it.
    owner: Option<Arc<dyn Any + Send + Sync>>,
}

/// What a region stands for.
enum Target {
    Memory(roce_verbs::MemoryRegion),
    /// No memory; the value is there for its `Drop`.
    Null {
        _region: NullRegion,
    },
}

// SAFETY: `repr(C)` with the structure first.
unsafe impl Object for MemoryRegion {
    type C = ibv_mr;
}

/// Length of a page in bytes.
pub(crate) const PAGE_LEN: u64 = 4096;

/// Flags that a registration may have, or a memory window. A registration may have
/// `IBV_ACCESS_FLUSH_GLOBAL`, too.
pub(crate) const KNOWN_FLAGS: c_uint = IBV_ACCESS_LOCAL_WRITE
    | IBV_ACCESS_REMOTE_WRITE
    | IBV_ACCESS_REMOTE_READ
    | IBV_ACCESS_REMOTE_ATOMIC
    | IBV_ACCESS_MW_BIND
    | IBV_ACCESS_ZERO_BASED
    | IBV_ACCESS_ON_DEMAND
    | IBV_ACCESS_HUGETLB;

/// Returns the rights in access flags. Those that a device may ignore are ignored.
///
/// # Errors
/// `EINVAL` for flags without a meaning.
fn access_flags(access: c_uint) -> Result<AccessFlags, c_int> {
    let access = access & !IBV_ACCESS_OPTIONAL_RANGE;
    // As with rxe memory that is not persistent cannot be registered as such.
    if access & !(KNOWN_FLAGS | IBV_ACCESS_FLUSH_GLOBAL) != 0 {
        return Err(EINVAL);
    }
    let rights = AccessFlags::from_bits_truncate(access);
    let remote_writes = AccessFlags::REMOTE_WRITE | AccessFlags::REMOTE_ATOMIC;
    if rights.intersects(remote_writes) && !rights.contains(AccessFlags::LOCAL_WRITE) {
        return Err(EINVAL);
    }
    Ok(rights)
}

/// Registers memory of the program.
///
/// # Errors
/// An `errno` value.
///
/// # Safety
/// The program keeps the memory until it deregisters it, and orders its accesses by completions.
unsafe fn register(
    pd: &ProtectionDomain,
    address: *mut c_void,
    length: usize,
    iova: u64,
    access: c_uint,
) -> Result<*mut ibv_mr, c_int> {
    memory_reserve::check()?;
    let rights = access_flags(access)?;
    let first = address as usize;
    let on_demand = access & IBV_ACCESS_ON_DEMAND != 0;
    let is_whole_space = on_demand && address.is_null() && length == usize::MAX;
    // The kernel registers whole pages: the end of the last one is an address, too.
    let last_page =
        first.checked_add(length).and_then(|end| end.checked_next_multiple_of(PAGE_LEN as usize));
    let has_end = last_page.is_some() || is_whole_space;
    if !has_end || iova.checked_add(length as u64).is_none() {
        return Err(EINVAL);
    }
    // As the kernel, which registers pages: at least one, and peers see the same offset in a page.
    let is_zero_based = access & IBV_ACCESS_ZERO_BASED != 0;
    let offset_differs = !is_zero_based && !(first as u64 ^ iova).is_multiple_of(PAGE_LEN);
    let has_no_page = length == 0 && (first as u64).is_multiple_of(PAGE_LEN);
    if offset_differs || has_no_page {
        return Err(EINVAL);
    }
    let iova = if is_zero_based { 0 } else { iova };
    let options = RegisterOptions { iova: Some(iova), on_demand, ..RegisterOptions::default() };
    let inner = pd.inner();
    // SAFETY: the caller's promise.
    let region = unsafe { inner.pd.register_memory(address.cast(), length, rights, options) };
    let region = region.map_err(|error: Error| errno::of(&error))?;
    let keys = (region.lkey(), region.rkey());
    Ok(give(pd, (address, length), keys, Target::Memory(region), None))
}

/// Memory that the library has allocated or mapped.
pub(crate) struct Owned {
    pub(crate) first: *mut u8,
    pub(crate) length: usize,
    /// The address that the first byte has for requests and peers.
    pub(crate) iova: u64,
    /// The address that the program finds in its region.
    pub(crate) shown: *mut c_void,
    /// The pages are not made present.
    pub(crate) on_demand: bool,
    /// What keeps it alive.
    pub(crate) owner: Arc<dyn Any + Send + Sync>,
}

/// Registers memory of the library.
///
/// # Errors
/// An `errno` value.
///
/// # Safety
/// The owner keeps the bytes alive. This process accesses them by atomics, or orders its accesses by completions.
pub(crate) unsafe fn register_owned(
    pd: &ProtectionDomain,
    memory: Owned,
    access: c_uint,
) -> Result<*mut ibv_mr, c_int> {
    let Owned { first, length, iova, shown, on_demand, owner } = memory;
    memory_reserve::check()?;
    let rights = access_flags(access)?;
    let options = RegisterOptions { iova: Some(iova), on_demand, ..RegisterOptions::default() };
    // SAFETY: the region keeps the owner alive; the rest is the caller's promise.
    let region = unsafe { pd.inner().pd.register_memory(first, length, rights, options) };
    let region = region.map_err(|error: Error| errno::of(&error))?;
    let keys = (region.lkey(), region.rkey());
    Ok(give(pd, (shown, length), keys, Target::Memory(region), Some(owner)))
}

/// Returns the local key of a region; `None` of null.
///
/// # Safety
/// `region` is null, or a region of the program.
pub(crate) unsafe fn lkey_of(region: *const ibv_mr) -> Option<u32> {
    // SAFETY: the caller's promise.
    unsafe { region.as_ref() }.map(|region| region.lkey)
}

/// Makes the object of a region.
fn give(
    pd: &ProtectionDomain,
    (addr, length): (*mut c_void, usize),
    (lkey, rkey): (u32, u32),
    target: Target,
    owner: Option<Arc<dyn Any + Send + Sync>>,
) -> *mut ibv_mr {
    let (context, domain) = (pd.context().as_ptr(), object::pointer_to(pd));
    let c = ibv_mr { context, pd: domain, addr, length, handle: 0, lkey, rkey };
    let registration = Registration { target, pd: Arc::clone(pd.inner()), owner };
    object::give(MemoryRegion { c: Shared::new(c), registration: Mutex::new(registration) })
}

/// `ibv_alloc_null_mr`
pub(crate) unsafe extern "C" fn alloc_null(pd: *mut ibv_pd) -> *mut ibv_mr {
    let Some(_uncancellable) = Uncancellable::with_memory() else { return std::ptr::null_mut() };
    // SAFETY: see `object`.
    let pd = unsafe { object::lend::<ProtectionDomain>(pd) };
    match pd.inner().pd.alloc_null_region() {
        Ok(region) => {
            // Peers have no key for it.
            let keys = (region.lkey(), 0);
            give(pd, (std::ptr::null_mut(), 0), keys, Target::Null { _region: region }, None)
        }
        Err(error) => errno::null(errno::of(&error)),
    }
}

/// `ibv_reg_mr_iova2`
pub(crate) unsafe extern "C" fn reg_iova2(
    pd: &ProtectionDomain,
    address: *mut c_void,
    length: usize,
    iova: u64,
    access: c_uint,
) -> *mut ibv_mr {
    let _uncancellable = Uncancellable::begin();
    // SAFETY: the program's promise, as to libibverbs.
    unsafe { register(pd, address, length, iova, access) }.unwrap_or_else(errno::null)
}

/// `ibv_reg_mr_iova`
pub(crate) unsafe extern "C" fn reg_iova(
    pd: &ProtectionDomain,
    address: *mut c_void,
    length: usize,
    iova: u64,
    access: c_int,
) -> *mut ibv_mr {
    let _uncancellable = Uncancellable::begin();
    // SAFETY: as there.
    unsafe { reg_iova2(pd, address, length, iova, access.cast_unsigned()) }
}

/// `ibv_reg_mr`
pub(crate) unsafe extern "C" fn reg(
    pd: &ProtectionDomain,
    address: *mut c_void,
    length: usize,
    access: c_int,
) -> *mut ibv_mr {
    let _uncancellable = Uncancellable::begin();
    // SAFETY: as there.
    unsafe { reg_iova2(pd, address, length, address as u64, access.cast_unsigned()) }
}

/// `ibv_rereg_mr`. The keys stay as they are, and after an error all of the region.
pub(crate) unsafe extern "C" fn rereg(
    region: &MemoryRegion,
    flags: c_int,
    pd: Option<&ProtectionDomain>,
    address: *mut c_void,
    length: usize,
    access: c_int,
) -> c_int {
    let _uncancellable = Uncancellable::begin();
    let known =
        IBV_REREG_MR_CHANGE_TRANSLATION | IBV_REREG_MR_CHANGE_PD | IBV_REREG_MR_CHANGE_ACCESS;
    let changes = |what| flags & what != 0;
    let fail = |result, errno| {
        errno::set(errno);
        result
    };
    let moves = changes(IBV_REREG_MR_CHANGE_TRANSLATION);
    let pd = pd.filter(|_| changes(IBV_REREG_MR_CHANGE_PD));
    if flags & !known != 0
        || (moves && (length == 0 || address.is_null()))
        || (changes(IBV_REREG_MR_CHANGE_PD) && pd.is_none())
        || (access != 0 && !changes(IBV_REREG_MR_CHANGE_ACCESS))
    {
        return fail(IBV_REREG_MR_ERR_INPUT, EINVAL);
    }
    let on_demand = access.cast_unsigned() & IBV_ACCESS_ON_DEMAND != 0;
    let on_demand = changes(IBV_REREG_MR_CHANGE_ACCESS).then_some(on_demand);
    let access = match changes(IBV_REREG_MR_CHANGE_ACCESS) {
        true => match access_flags(access.cast_unsigned()) {
            Ok(rights) => Some(rights),
            Err(errno) => return fail(IBV_REREG_MR_ERR_CMD, errno),
        },
        false => None,
    };
    if flags == 0 || (moves && (address as usize).checked_add(length).is_none()) {
        return fail(IBV_REREG_MR_ERR_CMD, EINVAL);
    }
    let change = Reregistration {
        pd: pd.map(|pd| &pd.inner().pd),
        memory: moves.then_some((address.cast(), length)),
        access,
        on_demand,
    };
    let mut registration = region.registration.lock().unwrap_or_else(PoisonError::into_inner);
    let is_fixed = registration.owner.is_some();
    let Target::Memory(memory) = &mut registration.target else {
        return fail(IBV_REREG_MR_ERR_INPUT, EINVAL);
    };
    if is_fixed {
        return fail(IBV_REREG_MR_ERR_INPUT, EINVAL);
    }
    // SAFETY: the program's promise is the one of `register`.
    if let Err(error) = unsafe { memory.reregister(change) } {
        return fail(IBV_REREG_MR_ERR_CMD, errno::of(&error));
    }
    // SAFETY: the structure of this object, whose program does not read it during the call.
    let c = unsafe { &mut *region.c.get() };
    if let Some(pd) = pd {
        registration.pd = Arc::clone(pd.inner());
        (c.context, c.pd) = (pd.context().as_ptr(), object::pointer_to(pd));
    }
    if moves {
        (c.addr, c.length) = (address, length);
    }
    0
}

/// `ibv_advise_mr`. The pages are present when the call returns, with `IBV_ADVISE_MR_FLAG_FLUSH` or
/// without; without it, that some cannot be is no failure, as for a device that begins later.
///
/// # Errors
/// The `errno` value of the first piece that the advice cannot be about.
pub(crate) fn advise(
    pd: &ProtectionDomain,
    advice: c_int,
    flags: u32,
    mut pieces: Elements<'_>,
) -> Result<(), c_int> {
    let advice = match advice {
        IBV_ADVISE_MR_ADVICE_PREFETCH => Prefetch::Read,
        IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE => Prefetch::Write,
        IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT => Prefetch::NoFault,
        _ => return Err(EOPNOTSUPP),
    };
    if flags & !IBV_ADVISE_MR_FLAG_FLUSH != 0 || pieces.clone().next().is_none() {
        return Err(EINVAL);
    }
    let waits = flags & IBV_ADVISE_MR_FLAG_FLUSH != 0;
    pieces.try_for_each(|piece| {
        let done = pd.inner().pd.prefetch(piece.lkey, piece.addr, piece.length as usize, advice);
        done.or_else(|error| match error {
            Error::Advice(MemoryFault::NotPresent) if !waits => Ok(()),
            Error::Advice(MemoryFault::NotPresent | MemoryFault::OutOfBounds) => Err(EFAULT),
            Error::Advice(MemoryFault::NoPermission) => Err(EPERM),
            error => Err(errno::of(&error)),
        })
    })
}

/// `ibv_dereg_mr`: `EBUSY` while memory windows are bound to the region.
pub(crate) unsafe extern "C" fn dereg(region: *mut ibv_mr) -> c_int {
    let _uncancellable = Uncancellable::begin();
    // SAFETY: see `object`.
    let lent = unsafe { object::lend::<MemoryRegion>(region) };
    let registration = lent.registration.lock().unwrap_or_else(PoisonError::into_inner);
    let has_windows = match &registration.target {
        Target::Memory(memory) => memory.bound_windows() > 0,
        Target::Null { .. } => false,
    };
    //= also mw-region-in-use
    if has_windows {
        return errno::failed(EBUSY);
    }
    if let Err(errno) = registration.pd.context.meet_faults_of(VerbMoment::DeregMr) {
        return errno::failed(errno);
    }
    drop(registration);
    // SAFETY: see `object`.
    drop(unsafe { object::take::<MemoryRegion>(region) });
    0
}

#[cfg(test)]
mod tests {
    use roce_abi::IBV_ACCESS_FLUSH_PERSISTENT;

    use super::*;

    #[test]
    fn rights_to_write_from_outside_need_the_right_to_write_inside() {
        for remote in [IBV_ACCESS_REMOTE_WRITE, IBV_ACCESS_REMOTE_ATOMIC] {
            assert_eq!(access_flags(remote), Err(EINVAL));
            let rights = AccessFlags::from_bits_truncate(remote | IBV_ACCESS_LOCAL_WRITE);
            assert_eq!(access_flags(remote | IBV_ACCESS_LOCAL_WRITE), Ok(rights));
        }
        assert_eq!(access_flags(IBV_ACCESS_REMOTE_READ), Ok(AccessFlags::REMOTE_READ));
    }

    #[test]
    fn flags_that_may_be_ignored_are_and_unknown_ones_are_refused() {
        assert_eq!(access_flags(IBV_ACCESS_OPTIONAL_RANGE), Ok(AccessFlags::empty()));
        assert_eq!(access_flags(IBV_ACCESS_FLUSH_PERSISTENT), Err(EINVAL));
        assert_eq!(access_flags(1 << 10), Err(EINVAL));
        assert_eq!(access_flags(IBV_ACCESS_FLUSH_GLOBAL), Ok(AccessFlags::FLUSH_GLOBAL));
        assert_eq!(access_flags(IBV_ACCESS_ON_DEMAND), Ok(AccessFlags::empty()));
    }
}
