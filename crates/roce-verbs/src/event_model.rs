//! A model of threads that share queues and a channel.
//!
//! The files of both are built a second time, with the locks and atomics of shuttle, which decides
//! at each of them which thread runs next. A failure prints the schedule that repeats it.

#[path = "queue_state/reports.rs"]
#[allow(clippy::duplicate_mod, dead_code, reason = "a second copy, of which a part is used")]
mod reports;
#[path = "queue_state/state.rs"]
#[allow(clippy::duplicate_mod, dead_code, reason = "a second copy, of which a part is used")]
mod state;

use std::collections::HashMap;
use std::os::fd::AsFd;
use std::sync::Arc;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use roce_transport::{Completion, CompletionOperation, CompletionStatus, CqHandle, Instant};
use shuttle::sync;
use shuttle::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use shuttle::sync::{Condvar, Mutex};
use shuttle::thread;

use self::state::{QueueState, Report, armed};
use crate::events::EventQueue;

/// Random schedules of each test: a second or two.
const SCHEDULES: usize = 2000;
const NOW: Instant = Instant::from_nanos(1);

/// Runs a test under many schedules.
fn check(test: impl Fn() + Send + Sync + 'static) {
    shuttle::check_random(test, SCHEDULES);
}

fn completion(wr_id: u64) -> Completion {
    Completion::new(
        wr_id,
        roce_wire::Qpn::GSI,
        CompletionOperation::Send,
        CompletionStatus::Success,
        0,
    )
}

fn queue_on(channel: &Arc<reports::Shared>, handle: u32) -> Arc<QueueState> {
    let events = Arc::new(EventQueue::new().unwrap());
    Arc::new_cyclic(|this| {
        QueueState::new(
            this,
            CqHandle(handle),
            0,
            64,
            Some(Arc::clone(channel)),
            events,
            Arc::default(),
        )
    })
}

fn is_readable(channel: &reports::Shared) -> bool {
    let mut set = [PollFd::new(channel.as_fd(), PollFlags::POLLIN)];
    poll(&mut set, PollTimeout::ZERO).unwrap() == 1
}

/// Fetches a report as a program does.
fn fetch(channel: &reports::Shared) -> Option<Arc<QueueState>> {
    channel.take().map(Report::fetch)
}

/// Sleeps until the descriptor is readable; false once `is_over`.
fn sleep_until_readable(channel: &reports::Shared, is_over: impl Fn() -> bool) -> bool {
    loop {
        if is_readable(channel) {
            return true;
        }
        if is_over() {
            return is_readable(channel);
        }
        thread::yield_now();
    }
}

#[test]
fn a_thread_that_sleeps_on_reports_takes_every_completion_beside_one_that_polls() {
    const COUNT: usize = 4;
    for arms_before_polling in [false, true] {
        check(move || {
            let channel = Arc::new(reports::Shared::new().unwrap());
            let queue = queue_on(&channel, 1);
            queue.arm(armed::NEXT, NOW);
            let taken = Arc::new(AtomicUsize::new(0));
            let engine = thread::spawn({
                let queue = Arc::clone(&queue);
                move || {
                    for wr_id in 0..COUNT as u64 {
                        queue.push(completion(wr_id), NOW);
                    }
                }
            });
            // It polls a little and goes: what it leaves is the other thread's.
            let poller = thread::spawn({
                let (queue, taken) = (Arc::clone(&queue), Arc::clone(&taken));
                move || {
                    for _ in 0..2 {
                        taken.fetch_add(usize::from(queue.pop().is_some()), Ordering::SeqCst);
                    }
                }
            });
            let sleeper = thread::spawn({
                let (queue, channel, taken) =
                    (Arc::clone(&queue), Arc::clone(&channel), Arc::clone(&taken));
                move || {
                    let is_over = || taken.load(Ordering::SeqCst) == COUNT;
                    while sleep_until_readable(&channel, is_over) {
                        assert!(fetch(&channel).is_some(), "no other thread reads");
                        if arms_before_polling {
                            queue.arm(armed::NEXT, NOW);
                        }
                        // One alone: such programs rely on a report of the rest.
                        taken.fetch_add(usize::from(queue.pop().is_some()), Ordering::SeqCst);
                        if !arms_before_polling {
                            queue.arm(armed::NEXT, NOW);
                        }
                    }
                }
            });
            for thread in [engine, poller, sleeper] {
                thread.join().unwrap();
            }
            assert_eq!(taken.load(Ordering::SeqCst), COUNT);
        });
    }
}

#[test]
fn a_completion_that_was_taken_before_the_queue_was_armed_is_not_reported() {
    check(|| {
        let channel = Arc::new(reports::Shared::new().unwrap());
        let queue = queue_on(&channel, 1);
        let engine = thread::spawn({
            let queue = Arc::clone(&queue);
            move || queue.push(completion(1), NOW)
        });
        while queue.pop().is_none() {
            thread::yield_now();
        }
        queue.arm(armed::NEXT, NOW);
        engine.join().unwrap();
        assert!(!is_readable(&channel), "nothing has come since");
        queue.push(completion(2), NOW);
        assert!(fetch(&channel).is_some() && fetch(&channel).is_none());
    });
}

/// The events of an object that were delivered and not acknowledged, as the C library has them.
#[derive(Default)]
struct Object {
    owed: Mutex<usize>,
    changed: Condvar,
    is_freed: AtomicBool,
}

#[test]
fn a_destroyed_queue_is_freed_after_its_events_and_leaves_nothing_readable() {
    check(|| {
        let channel = Arc::new(reports::Shared::new().unwrap());
        let objects = Arc::new(Mutex::new(HashMap::<CqHandle, Arc<Object>>::new()));
        let is_over = Arc::new(AtomicBool::new(false));
        let reader = thread::spawn({
            let (channel, objects, is_over) =
                (Arc::clone(&channel), Arc::clone(&objects), Arc::clone(&is_over));
            move || {
                while sleep_until_readable(&channel, || is_over.load(Ordering::SeqCst)) {
                    let found = {
                        let objects = objects.lock().unwrap();
                        let found =
                            fetch(&channel).and_then(|it| objects.get(&it.handle()).cloned());
                        found.inspect(|object| *object.owed.lock().unwrap() += 1)
                    };
                    if let Some(object) = found {
                        assert!(!object.is_freed.load(Ordering::SeqCst), "used after it was freed");
                        *object.owed.lock().unwrap() -= 1;
                        object.changed.notify_all();
                    }
                }
            }
        });
        for handle in 0..2 {
            let (queue, object) = (queue_on(&channel, handle), Arc::<Object>::default());
            objects.lock().unwrap().insert(queue.handle(), Arc::clone(&object));
            queue.arm(armed::NEXT, NOW);
            let engine = thread::spawn({
                let queue = Arc::clone(&queue);
                move || {
                    queue.push(completion(1), NOW);
                    queue.arm(armed::NEXT, NOW);
                    queue.push(completion(2), NOW);
                }
            });
            {
                let mut objects = objects.lock().unwrap();
                objects.remove(&queue.handle());
                queue.end_reports();
                // The reader takes nothing meanwhile.
                assert!(!is_readable(&channel), "nothing reports but a destroyed queue");
            }
            let owed = object.owed.lock().unwrap();
            drop(object.changed.wait_while(owed, |owed| *owed > 0).unwrap());
            object.is_freed.store(true, Ordering::SeqCst);
            engine.join().unwrap();
            assert!(!is_readable(&channel), "nothing reports but a destroyed queue");
        }
        is_over.store(true, Ordering::SeqCst);
        reader.join().unwrap();
    });
}
