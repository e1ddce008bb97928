//! Objects that C programs hold by a pointer: the border between pointers and references.
//!
//! An object of this library begins with the structure of verbs.h, and C programs have a pointer to
//! that. Exported functions take references where verbs.h has pointers to objects or attributes: a
//! program promises, as for libibverbs, that what it passes is alive, of the right type, and not
//! destroyed while the function uses it. This is also the contract of the `unsafe extern "C"` functions,
//! which take pointers: those that destroy an object, and those that programs reach through an object,
//! whose types verbs.h gives. What they write to or read from has the length that they are told.

use std::cell::UnsafeCell;
use std::ptr;
use std::sync::Arc;

/// An object that begins with a structure of verbs.h.
///
/// # Safety
/// The type is `#[repr(C)]`, and its first field is a [`Shared<Self::C>`](Shared).
pub(crate) unsafe trait Object: Sized {
    /// The structure of verbs.h.
    type C;
}

/// A structure that the program may read and write at any time.
#[derive(Debug)]
#[repr(transparent)]
pub(crate) struct Shared<C>(UnsafeCell<C>);

impl<C> Shared<C> {
    /// Returns the structure with all bytes zero.
    ///
    /// # Safety
    /// All bytes of `C` may be zero: it has integers, pointers and `Option`s of functions.
    pub(crate) unsafe fn zeroed() -> Self {
        // SAFETY: the caller's promise.
        Self(UnsafeCell::new(unsafe { std::mem::zeroed() }))
    }

    pub(crate) fn new(value: C) -> Self {
        Self(UnsafeCell::new(value))
    }

    /// Returns a pointer to the structure, valid as long as the object.
    pub(crate) fn get(&self) -> *mut C {
        self.0.get()
    }
}

/// Gives an object to the program, which destroys it by a call.
pub(crate) fn give<T: Object>(object: T) -> *mut T::C {
    let object: *mut T = Box::into_raw(Box::new(object));
    let _address = object.expose_provenance();
    object.cast()
}

/// Returns the pointer by which the program knows an object.
pub(crate) fn pointer_to<T: Object>(object: &T) -> *mut T::C {
    ptr::with_exposed_provenance_mut(ptr::from_ref(object).addr())
}

/// Takes an object back from the program.
///
/// # Safety
/// `object` comes from [`give`] of the same type, and the program does not use it any more.
pub(crate) unsafe fn take<T: Object>(object: *mut T::C) -> Box<T> {
    // SAFETY: the caller's promise.
    unsafe { Box::from_raw(object.cast()) }
}

/// Borrows an object of the program.
///
/// # Safety
/// `object` comes from [`give`] of the same type, and the program does not destroy it during the
/// use of the reference.
pub(crate) unsafe fn lend<'a, T: Object + 'a>(object: *mut T::C) -> &'a T {
    // SAFETY: the caller's promise.
    unsafe { &*object.cast::<T>() }
}

/// As [`lend`], for pointers that may be null.
///
/// # Safety
/// As [`lend`], unless the pointer is null.
pub(crate) unsafe fn lend_optional<'a, T: Object + 'a>(object: *mut T::C) -> Option<&'a T> {
    // SAFETY: the caller's promise.
    (!object.is_null()).then(|| unsafe { lend(object) })
}

/// Returns true if other objects use this part of an object.
pub(crate) fn is_used<T>(part: &Arc<T>) -> bool {
    Arc::strong_count(part) > 1
}
