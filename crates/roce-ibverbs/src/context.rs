//! Contexts: opened devices.

use std::collections::HashMap;
use std::ffi::c_int;
use std::mem::offset_of;
use std::ops::Deref;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use roce_abi::{VERBS_ABI_IS_EXTENDED, ibv_context, verbs_context};
use roce_verbs::{Device, Error, EventSource, OpenError};

use crate::acks::Acks;
use crate::cancellation::Uncancellable;
use crate::device_list::ListedDevice;
use crate::object::{Shared, is_used};
use crate::{configuration, errno, message, operations, panic};

/// An opened device. The program has a pointer to the end of the first field.
#[repr(C)]
pub(crate) struct Context {
    verbs: Shared<verbs_context>,
    inner: Arc<ContextInner>,
}

/// The part that the objects of a context keep alive.
pub(crate) struct ContextInner {
    pub(crate) device: Device,
    pub(crate) listed: &'static ListedDevice,
    /// The objects that may have asynchronous events.
    objects: Mutex<HashMap<EventSource, EventTarget>>,
    /// A descriptor for programs that look at `cmd_fd`: it must be one.
    _command_fd: OwnedFd,
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
    pub(crate) fn of(context: *mut ibv_context) -> Self {
        Self(context)
    }

    pub(crate) fn as_ptr(self) -> *mut ibv_context {
        self.0
    }
}

impl Deref for ContextPtr {
    type Target = Context;

    fn deref(&self) -> &Context {
        // SAFETY: programs get such pointers from `open` alone, where the context is inside a
        // `Context`, and promise not to close it meanwhile.
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
    /// Locks the objects that may have asynchronous events.
    pub(crate) fn objects(&self) -> MutexGuard<'_, HashMap<EventSource, EventTarget>> {
        self.objects.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds an object that may have asynchronous events.
    pub(crate) fn add_object(&self, source: EventSource, address: usize, acks: &Arc<Acks>) {
        let acks = Arc::clone(acks);
        self.objects().insert(source, EventTarget { address, acks });
    }

    /// Removes an object that is destroyed: its events are delivered no more. Then `end` ends it, and this
    /// waits until the program has acknowledged the events that were delivered.
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

/// `ibv_open_device`
pub(crate) extern "C" fn open(device: &'static ListedDevice) -> *mut ibv_context {
    let _uncancellable = Uncancellable::begin();
    panic::end_process_on_panic();
    message::start_log();
    let config = match configuration::of(device) {
        Ok(config) => config,
        Err(why) => {
            message::say_once(&why);
            return errno::null(libc::EINVAL);
        }
    };
    let opened = match Device::open(device.interface(), config) {
        Ok(opened) => opened,
        Err(error) => {
            match &error {
                Error::Open(OpenError::NotPermitted { name }) => {
                    message::say_once(&not_permitted(name));
                }
                _ => message::say_once(&error),
            }
            return errno::null(errno::of(&error));
        }
    };
    let command_fd: OwnedFd = match std::fs::File::open("/dev/null") {
        Ok(file) => file.into(),
        Err(error) => return errno::null(error.raw_os_error().unwrap_or(libc::EMFILE)),
    };
    let async_fd = opened.event_fd().as_raw_fd();
    let mut verbs = operations::table();
    verbs.context.device = device.as_c();
    verbs.context.cmd_fd = command_fd.as_raw_fd();
    verbs.context.async_fd = async_fd;
    verbs.context.num_comp_vectors = 1;
    verbs.context.abi_compat = VERBS_ABI_IS_EXTENDED;
    let objects = Mutex::default();
    let inner =
        Arc::new(ContextInner { device: opened, listed: device, objects, _command_fd: command_fd });
    let context = Box::into_raw(Box::new(Context { verbs: Shared::new(verbs), inner }));
    // SAFETY: inside the box.
    unsafe { context.cast::<ibv_context>().byte_add(offset_of!(verbs_context, context)) }
}

/// Returns what gives a program of others a packet socket. A capability of its own file is not named:
/// the loader ignores `LD_PRELOAD` and `LD_LIBRARY_PATH` then, and the program does not find us.
fn not_permitted(interface: &str) -> String {
    format!(
        "opening a packet socket on {interface} needs CAP_NET_RAW: start the program by `roce run -- \
         PROGRAM`, as root or after `sudo setcap cap_net_raw+ep` on the file of roce, which hands the \
         capability on; by `roce run --local 1 -- PROGRAM` in a private host, which needs no \
         privileges; or start the container with --cap-add NET_RAW"
    )
}

/// `ibv_close_device`. Of a context with objects the structure stays until the process ends, as they
/// point to it; they may be destroyed later, and the device closes with the last one. Its queue pairs
/// end now, as in the kernel: the program may use the memory of its regions for something else.
pub(crate) extern "C" fn close(context: ContextPtr) -> c_int {
    let _uncancellable = Uncancellable::begin();
    if is_used(&context.inner) {
        // A child after `fork` has none to end.
        let _forked = context.device().shut_down();
        // SAFETY: this is the context's own reference, which `open` made. The program does not use the
        // context any more, but through its objects, and these have references.
        unsafe { Arc::decrement_strong_count(Arc::as_ptr(&context.inner)) };
        return 0;
    }
    // SAFETY: made by `open` as a box, and the program does not use it any more.
    unsafe {
        let address = context.0.byte_sub(offset_of!(verbs_context, context));
        drop(Box::from_raw(address.cast::<Context>()));
    }
    0
}
