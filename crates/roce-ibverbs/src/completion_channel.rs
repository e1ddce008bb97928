//! Completion channels.

use std::collections::HashMap;
use std::ffi::{c_int, c_void};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use libc::{EBUSY, EIO};
use roce_abi::{ibv_comp_channel, ibv_cq};
use roce_verbs::CqHandle;

use crate::cancellation::Uncancellable;
use crate::context::{ContextInner, ContextPtr, EventTarget};
use crate::errno;
use crate::object::{self, Object, Shared, is_used};
use crate::wait::{self, Attempt, Woken};

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

    /// Adds to the number of queues that report on the channel, a field of verbs.h.
    pub(crate) fn count_queues(&self, more: c_int) {
        // SAFETY: a field that this function alone changes.
        let count = unsafe { AtomicI32::from_ptr(&raw mut (*self.c.get()).refcnt) };
        count.fetch_add(more, Ordering::Relaxed);
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

    /// Removes a queue that is destroyed, with its reports. Each of its events was counted as delivered
    /// before, or is delivered no more.
    pub(crate) fn remove(&self, queue: &roce_verbs::CompletionQueue) {
        if !self.context.device.is_inherited() {
            let mut queues = self.queues();
            queues.remove(&queue.handle());
            queue.end_reports();
        }
    }

    /// Takes the next report and counts it as delivered; returns the address of the queue.
    fn take(&self) -> Option<usize> {
        // From the report to the count, so that destroying the queue comes before or after both.
        let queues = self.queues();
        // A queue whose report comes while it is destroyed is not there any more.
        let target = std::iter::from_fn(|| self.channel.poll())
            .find_map(|queue| queues.get(&queue.handle()))?;
        target.acks.deliver();
        Some(target.address)
    }

    /// Tries to fetch an event, and writes the address of its queue to `address`.
    fn fetch(&self, woken: Woken, address: &mut usize) -> Attempt {
        if self.context.device.is_inherited() {
            return Attempt::Failed(EIO);
        }
        if woken == Woken::ByRead {
            self.channel.note_read();
        }
        let mut take = || self.take().inspect(|taken| *address = *taken).is_some();
        if take() {
            return Attempt::Fetched;
        }
        let fd = self.channel.as_fd();
        if woken == Woken::Not && !wait::is_non_blocking(fd) {
            if let Err(error) = self.channel.wait_reported(INLINE_WAIT) {
                return Attempt::Failed(errno::of(&error));
            }
            if take() {
                return Attempt::Fetched;
            }
        }
        let kind = wait::Kind::Pipe;
        wait::after_nothing(
            woken,
            (fd, kind),
            std::slice::from_ref(&self.context.device),
            &mut take,
        )
    }
}

/// `ibv_create_comp_channel`
pub(crate) extern "C" fn create(context: ContextPtr) -> *mut ibv_comp_channel {
    let Some(_uncancellable) = Uncancellable::with_memory() else { return std::ptr::null_mut() };
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
pub(crate) unsafe extern "C" fn destroy(channel: *mut ibv_comp_channel) -> c_int {
    let _uncancellable = Uncancellable::begin();
    // SAFETY: see `object`.
    if is_used(unsafe { object::lend::<CompletionChannel>(channel) }.inner()) {
        return errno::failed(EBUSY);
    }
    // SAFETY: see `object`.
    drop(unsafe { object::take::<CompletionChannel>(channel) });
    0
}

/// `ibv_get_cq_event`
pub(crate) extern "C-unwind" fn get_event(
    channel: &CompletionChannel,
    queue: &mut *mut ibv_cq,
    queue_context: &mut *mut c_void,
) -> c_int {
    let mut address = 0;
    let result = wait::repeat(|woken| channel.inner.fetch(woken, &mut address));
    if result == 0 {
        *queue = std::ptr::with_exposed_provenance_mut(address);
        // SAFETY: the queue is not destroyed before the program has acknowledged its event.
        *queue_context = unsafe { (**queue).cq_context };
    }
    result
}
