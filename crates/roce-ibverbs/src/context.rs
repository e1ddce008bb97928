//! Contexts: opened devices.

use std::collections::HashMap;
use std::ffi::c_int;
use std::mem::offset_of;
use std::ops::Deref;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use roce_abi::{ibv_context, verbs_context};
use roce_verbs::{Device, DeviceLimits, Error, EventSource, Own, PortRate, VerbMoment};

use crate::acks::Acks;
use crate::cancellation::Uncancellable;
use crate::device_list::ListedDevice;
use crate::object::{Shared, is_used};

/// An opened device. The program has a pointer to the end of the first field.
#[repr(C)]
pub(crate) struct Context {
    verbs: Shared<verbs_context>,
    inner: Arc<ContextInner>,
}

/// The part that the objects of a context keep alive.
pub(crate) struct ContextInner {
    pub(crate) device: Device,
    /// What the device lacks, as scripted faults say.
    pub(crate) limits: DeviceLimits,
    pub(crate) listed: &'static ListedDevice,
    /// The objects that may have asynchronous events.
    objects: Mutex<HashMap<EventSource, EventTarget>>,
    /// A descriptor for programs that look at `cmd_fd`: it must be one.
    _command_fd: Own<OwnedFd>,
}

/// An object that asynchronous events name.
#[derive(Clone, Debug)]
pub(crate) struct EventTarget {
    /// The address that the program knows it by.
    pub(crate) address: usize,
    pub(crate) acks: Arc<Acks>,
}

/// A program's pointer to a context.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct ContextPtr(*mut ibv_context);

impl ContextPtr {
    /// Wraps a pointer that the program has passed to a function of the context.
    ///
    /// # Safety
    /// The pointer comes from [`give`], and the program does not close the context during the use of the
    /// result.
    pub(crate) unsafe fn of(context: *mut ibv_context) -> Self {
        Self(context)
    }

    pub(crate) fn as_ptr(self) -> *mut ibv_context {
        self.0
    }
}

impl Deref for ContextPtr {
    type Target = Context;

    fn deref(&self) -> &Context {
        // SAFETY: the promise of `of`, or of a program that passes the pointer.
        unsafe { &*self.0.byte_sub(offset_of!(verbs_context, context)).cast::<Context>() }
    }
}

impl Context {
    pub(crate) fn inner(&self) -> &Arc<ContextInner> {
        &self.inner
    }

    pub(crate) fn device(&self) -> &Device {
        &self.inner.device
    }
}

impl ContextInner {
    /// Counts a call that scripted faults may let fail.
    ///
    /// # Errors
    /// The error of the fault. A call of a process that inherited the device meets none.
    pub(crate) fn meet_faults_of(&self, verb: VerbMoment) -> Result<(), c_int> {
        match self.device.meet_faults_of(verb) {
            Err(Error::Injected(error)) => Err(error.errno.code()),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// Returns width and speed of the port.
    pub(crate) fn rate(&self) -> PortRate {
        self.limits.port_speed.map_or_else(|| self.listed.rate(), |speed| PortRate::of(Some(speed)))
    }

    /// Locks the objects that may have asynchronous events.
    pub(crate) fn objects(&self) -> MutexGuard<'_, HashMap<EventSource, EventTarget>> {
        self.objects.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds an object that may have asynchronous events.
    pub(crate) fn add_object(&self, source: EventSource, address: usize, acks: &Arc<Acks>) {
        let acks = Arc::clone(acks);
        self.objects().insert(source, EventTarget { address, acks });
    }

    /// Removes an object that is destroyed: its events are delivered no more. Then `end` ends it,
    /// and this waits until the program has acknowledged the events that were delivered.
    pub(crate) fn remove_object(&self, source: EventSource, acks: &Acks, end: impl FnOnce()) {
        // A child after `fork` waits for no lock that another thread of its parent may hold.
        let is_inherited = self.device.is_inherited();
        if !is_inherited {
            self.objects().remove(&source);
        }
        // Not with the lock held. Another object may have the name, a queue pair number, from here on.
        end();
        if !is_inherited {
            acks.wait();
        }
    }
}

/// Gives an opened device to the program.
pub(crate) fn give(
    device: Device,
    listed: &'static ListedDevice,
    verbs: verbs_context,
    command_fd: Own<OwnedFd>,
) -> *mut ibv_context {
    let objects = Mutex::default();
    let limits = device.limits();
    let inner = ContextInner { device, limits, listed, objects, _command_fd: command_fd };
    let inner = Arc::new(inner);
    let context = Box::into_raw(Box::new(Context { verbs: Shared::new(verbs), inner }));
    // SAFETY: inside the box.
    unsafe { context.cast::<ibv_context>().byte_add(offset_of!(verbs_context, context)) }
}

/// `ibv_close_device`. Of a context with objects the structure stays until the process ends, as they
/// point to it; they may be destroyed later, and the device closes with the last one. Its queue pairs
/// end now, as in the kernel: the program may use the memory of its regions for something else.
pub(crate) unsafe extern "C" fn close(context: ContextPtr) -> c_int {
    let _uncancellable = Uncancellable::begin();
    if is_used(&context.inner) {
        // A child after `fork` has none to end.
        let _forked = context.device().shut_down();
        // SAFETY: this is the context's own reference, which `give` made. The program does not use the
        // context any more, but through its objects, and these have references.
        unsafe { Arc::decrement_strong_count(Arc::as_ptr(&context.inner)) };
        return 0;
    }
    // SAFETY: made by `give` as a box, and the program does not use it any more.
    unsafe {
        let address = context.0.byte_sub(offset_of!(verbs_context, context));
        drop(Box::from_raw(address.cast::<Context>()));
    }
    0
}
