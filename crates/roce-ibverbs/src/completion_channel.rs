//! Completion channels.

use std::collections::HashMap;
use std::ffi::{c_int, c_uint, c_void};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use libc::{EBUSY, EIO};
use roce_abi::{ibv_comp_channel, ibv_cq};
use roce_verbs::CqHandle;

use crate::completion_queue::CompletionQueue;
use crate::context::{ContextInner, ContextPtr, EventTarget};
use crate::object::{self, Object, Shared, is_used};
use crate::{errno, wait};

/// Time for which a caller that waits drives the engine itself. A completion within it needs no other
/// thread to wake up.
const INLINE_WAIT: Duration = Duration::from_micros(100);

/// A completion channel.
#[repr(C)]
pub(crate) struct CompletionChannel {
    c: Shared<ibv_comp_channel>,
    inner: Arc<ChannelInner>,
}

// SAFETY: `repr(C)` with the structure first.
unsafe impl Object for CompletionChannel {
    type C = ibv_comp_channel;
}

/// The part that completion queues keep alive.
pub(crate) struct ChannelInner {
    pub(crate) channel: roce_verbs::CompletionChannel,
    /// The queues that report on the channel.
    queues: Mutex<HashMap<CqHandle, EventTarget>>,
    context: Arc<ContextInner>,
}

impl CompletionChannel {
    pub(crate) fn inner(&self) -> &Arc<ChannelInner> {
        &self.inner
    }
}

impl ChannelInner {
    fn queues(&self) -> MutexGuard<'_, HashMap<CqHandle, EventTarget>> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a queue that reports on the channel.
    pub(crate) fn add(&self, queue: CqHandle, target: EventTarget) {
        self.queues().insert(queue, target);
    }

    /// Removes a queue that is destroyed.
    pub(crate) fn remove(&self, queue: CqHandle) {
        if !self.context.device.is_inherited() {
            self.queues().remove(&queue);
        }
    }

    /// Returns the next queue that has reported, if there is one.
    fn take(&self) -> Option<EventTarget> {
        // A queue that was destroyed meanwhile is not there any more.
        std::iter::from_fn(|| self.channel.poll())
            .find_map(|queue| self.queues().get(&queue.handle()).cloned())
    }

    /// Waits for the next queue that reports.
    fn wait(&self) -> Result<EventTarget, c_int> {
        if self.context.device.is_inherited() {
            return Err(EIO);
        }
        if let Some(target) = self.take() {
            return Ok(target);
        }
        if !wait::is_non_blocking(self.channel.as_fd()) {
            let reported =
                self.channel.wait(Some(INLINE_WAIT)).map_err(|error| errno::of(&error))?;
            let target = reported.and_then(|queue| self.queues().get(&queue.handle()).cloned());
            if let Some(target) = target {
                return Ok(target);
            }
        }
        loop {
            if let Some(target) = self.take() {
                return Ok(target);
            }
            wait::until_readable(self.channel.as_fd())?;
        }
    }
}

/// `ibv_create_comp_channel`
pub(crate) extern "C" fn create(context: ContextPtr) -> *mut ibv_comp_channel {
    let channel = match context.device().create_completion_channel() {
        Ok(channel) => channel,
        Err(error) => return errno::null(errno::of(&error)),
    };
    let fd = channel.as_raw_fd();
    let c = Shared::new(ibv_comp_channel { context: context.as_ptr(), fd, refcnt: 0 });
    let queues = Mutex::default();
    let inner = ChannelInner { channel, queues, context: Arc::clone(context.inner()) };
    object::give(CompletionChannel { c, inner: Arc::new(inner) })
}

/// `ibv_destroy_comp_channel`
pub(crate) extern "C" fn destroy(channel: *mut ibv_comp_channel) -> c_int {
    // SAFETY: see `object`.
    if is_used(unsafe { object::lend::<CompletionChannel>(channel) }.inner()) {
        return errno::failed(EBUSY);
    }
    // SAFETY: see `object`.
    drop(unsafe { object::take::<CompletionChannel>(channel) });
    0
}

/// `ibv_get_cq_event`
pub(crate) extern "C" fn get_event(
    channel: &CompletionChannel,
    queue: &mut *mut ibv_cq,
    queue_context: &mut *mut c_void,
) -> c_int {
    match channel.inner.wait() {
        Ok(target) => {
            target.acks.deliver();
            *queue = std::ptr::with_exposed_provenance_mut(target.address);
            // SAFETY: the queue is in the list of the channel's queues, so it is not destroyed.
            *queue_context = unsafe { (**queue).cq_context };
            0
        }
        Err(errno) => {
            errno::set(errno);
            -1
        }
    }
}

/// `ibv_ack_cq_events`
pub(crate) extern "C" fn ack_events(queue: &CompletionQueue, count: c_uint) {
    queue.acks().acknowledge(count);
}
