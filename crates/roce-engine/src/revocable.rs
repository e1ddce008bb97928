//! The windows of a device's engines, and when their bindings end.

use std::ops::Deref;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use crate::window_table::WindowTable;

/// What packets and requests may end: bindings of memory windows, and the validity of keys.
///
/// A device with one engine has it to itself, without a lock. Several engines have it in common,
/// behind a lock. An access that depends on it holds the lock for reading until its bytes are
/// copied, and a change waits for that: so once a request to end a binding has completed, no engine
/// accesses memory through it.
#[derive(Debug)]
pub(crate) enum Revocable {
    /// Of one engine.
    Own(WindowTable),
    /// Of several engines.
    Shared(Arc<RwLock<WindowTable>>),
}

/// Keeps bindings and keys as they are for as long as it lives.
#[derive(Debug)]
pub(crate) struct RevocableGuard<'a>(RwLockReadGuard<'a, WindowTable>);

impl Default for Revocable {
    fn default() -> Self {
        Self::Own(WindowTable::default())
    }
}

impl Clone for Revocable {
    /// Returns another handle to what is shared; what one engine has to itself is not copied.
    fn clone(&self) -> Self {
        match self {
            Self::Own(_) => Self::default(),
            Self::Shared(windows) => Self::Shared(Arc::clone(windows)),
        }
    }
}

impl Revocable {
    /// Makes it common with the clones that are made from now on.
    pub(crate) fn share(&mut self) {
        if let Self::Own(windows) = self {
            *self = Self::Shared(Arc::new(RwLock::new(std::mem::take(windows))));
        }
    }

    #[inline]
    pub(crate) fn is_shared(&self) -> bool {
        matches!(self, Self::Shared(_))
    }

    pub(crate) fn read<T>(&self, work: impl FnOnce(&WindowTable) -> T) -> T {
        match self {
            Self::Own(windows) => work(windows),
            Self::Shared(windows) => work(&windows.read().unwrap_or_else(PoisonError::into_inner)),
        }
    }

    pub(crate) fn write<T>(&mut self, work: impl FnOnce(&mut WindowTable) -> T) -> T {
        match self {
            Self::Own(windows) => work(windows),
            Self::Shared(windows) => {
                work(&mut windows.write().unwrap_or_else(PoisonError::into_inner))
            }
        }
    }

    /// Keeps everything as it is while the guard lives; `None` where no other engine can change it.
    pub(crate) fn hold(&self) -> Option<RevocableGuard<'_>> {
        match self {
            Self::Own(_) => None,
            Self::Shared(windows) => {
                Some(RevocableGuard(windows.read().unwrap_or_else(PoisonError::into_inner)))
            }
        }
    }
}

impl Deref for RevocableGuard<'_> {
    type Target = WindowTable;

    fn deref(&self) -> &WindowTable {
        &self.0
    }
}
