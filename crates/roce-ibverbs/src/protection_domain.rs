//! Protection domains.

use std::ffi::c_int;
use std::sync::Arc;

use libc::EBUSY;
use roce_abi::ibv_pd;
use roce_verbs::VerbMoment;

use crate::cancellation::Uncancellable;
use crate::context::{ContextInner, ContextPtr};
use crate::errno;
use crate::object::{self, Object, Shared, is_used};

/// A protection domain.
#[repr(C)]
pub(crate) struct ProtectionDomain {
    c: Shared<ibv_pd>,
    inner: Arc<PdInner>,
}

// SAFETY: `repr(C)` with the structure first.
unsafe impl Object for ProtectionDomain {
    type C = ibv_pd;
}

/// The part that the objects of a domain keep alive.
pub(crate) struct PdInner {
    pub(crate) pd: roce_verbs::ProtectionDomain,
    pub(crate) context: Arc<ContextInner>,
    /// The domain that this one is another name of.
    parent: Option<Arc<PdInner>>,
    /// The use of a thread domain by a parent domain.
    _thread_domain: Option<Arc<()>>,
}

impl ProtectionDomain {
    /// Returns the part that is shared with objects of the domain; of a parent domain, that of the
    /// domain inside.
    pub(crate) fn inner(&self) -> &Arc<PdInner> {
        &self.inner
    }

    /// Returns the context, as the program knows it.
    pub(crate) fn context(&self) -> ContextPtr {
        // SAFETY: a field that the program does not change. The context's structure outlives the objects
        // of the context.
        unsafe { ContextPtr::of((*self.c.get()).context) }
    }

    /// Makes another domain with the rights of this one: a parent domain.
    pub(crate) fn give_alias(&self, thread_domain: Option<Arc<()>>) -> *mut ibv_pd {
        let inner = PdInner {
            pd: self.inner.pd.clone(),
            context: Arc::clone(&self.inner.context),
            parent: Some(Arc::clone(&self.inner)),
            _thread_domain: thread_domain,
        };
        let c = ibv_pd { context: self.context().as_ptr(), handle: 0 };
        object::give(Self { c: Shared::new(c), inner: Arc::new(inner) })
    }

    /// Returns true for a parent domain.
    pub(crate) fn is_alias(&self) -> bool {
        self.inner.parent.is_some()
    }
}

/// `ibv_alloc_pd`
pub(crate) extern "C" fn alloc(context: ContextPtr) -> *mut ibv_pd {
    let Some(_uncancellable) = Uncancellable::with_memory() else { return std::ptr::null_mut() };
    let pd = match context.device().alloc_pd() {
        Ok(pd) => pd,
        Err(error) => return errno::null(errno::of(&error)),
    };
    let context_inner = Arc::clone(context.inner());
    let inner = PdInner { pd, context: context_inner, parent: None, _thread_domain: None };
    let c = Shared::new(ibv_pd { context: context.as_ptr(), handle: 0 });
    object::give(ProtectionDomain { c, inner: Arc::new(inner) })
}

/// `ibv_dealloc_pd`
pub(crate) unsafe extern "C" fn dealloc(pd: *mut ibv_pd) -> c_int {
    let _uncancellable = Uncancellable::begin();
    // SAFETY: see `object`.
    if is_used(unsafe { object::lend::<ProtectionDomain>(pd) }.inner()) {
        return errno::failed(EBUSY);
    }
    // SAFETY: see `object`.
    let lent = unsafe { object::lend::<ProtectionDomain>(pd) };
    if let Err(errno) = lent.inner().context.meet_faults_of(VerbMoment::DeallocPd) {
        return errno::failed(errno);
    }
    // SAFETY: see `object`.
    drop(unsafe { object::take::<ProtectionDomain>(pd) });
    0
}
