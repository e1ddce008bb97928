use std::os::fd::AsFd;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use roce_engine::Pushed;
use roce_engine::policy::INLINE_RECENT;
use roce_transport::{
    AsyncEvent, Completion, CompletionOperation, CompletionStatus, CqHandle, Instant,
};

use super::*;
use crate::events::EventQueue;
use crate::process::fork;

fn queue(handle: u32) -> QueueState {
    queue_on(handle, None)
}

fn queue_on(handle: u32, channel: Option<Arc<reports::Shared>>) -> QueueState {
    let events = Arc::new(EventQueue::new().unwrap());
    QueueState::new(&Weak::new(), CqHandle(handle), 0, 4, channel, events, Arc::default())
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

#[test]
fn a_completion_bypasses_its_own_queue_alone_and_none_that_is_older() {
    let queue = queue(1);
    assert!(queue.can_bypass_queue(CqHandle(1)));
    assert!(!queue.can_bypass_queue(CqHandle(2)), "it is for another queue");
    assert_eq!(queue.push(completion(7), Instant::from_nanos(1)), Pushed::Queued);
    assert!(!queue.can_bypass_queue(CqHandle(1)), "an older one waits");
    assert_eq!(queue.pop().map(|it| it.wr_id), Some(7));
    assert!(queue.can_bypass_queue(CqHandle(1)));
    queue.armed.store(armed::NEXT, Ordering::Release);
    assert!(queue.can_bypass_queue(CqHandle(1)), "there is no channel to report it");
}

#[test]
fn a_full_queue_that_ignores_overruns_keeps_the_newest_completions() {
    let queue = queue(1);
    for id in 1..=4 {
        assert_eq!(queue.push(completion(id), micros(1)), Pushed::Queued);
    }
    assert_eq!(queue.push(completion(5), micros(1)), Pushed::Full);
    assert!(!queue.drop_oldest(), "an overrun is an error");
    queue.ignores_overrun.store(true, Ordering::Relaxed);
    assert_eq!(queue.push(completion(5), micros(1)), Pushed::Full);
    assert!(queue.drop_oldest());
    assert_eq!(queue.push(completion(5), micros(1)), Pushed::Queued);
    let ids: Vec<_> = std::iter::from_fn(|| queue.pop()).map(|it| it.wr_id).collect();
    assert_eq!(ids, [2, 3, 4, 5]);
}

#[test]
fn a_queue_is_armed_beside_others_only_while_its_channel_serves_another() {
    let channel = Arc::new(reports::Shared::new().unwrap());
    let [one, other] = [1, 2].map(|handle| queue_on(handle, Some(Arc::clone(&channel))));
    assert!(!one.is_armed_beside_others(), "not armed");
    one.armed.store(armed::NEXT, Ordering::Relaxed);
    assert!(one.is_armed_beside_others() && !other.is_armed_beside_others());
    other.remove_user();
    assert!(!one.is_armed_beside_others());
}

#[test]
fn a_completion_that_a_channel_is_to_report_never_bypasses_the_queue() {
    let queue = queue_on(1, Some(Arc::new(reports::Shared::new().unwrap())));
    assert!(queue.can_bypass_queue(CqHandle(1)), "it is not armed");
    for asked_for in [armed::SOLICITED, armed::NEXT] {
        queue.armed.store(asked_for, Ordering::Release);
        assert!(!queue.can_bypass_queue(CqHandle(1)));
    }
}

const fn micros(count: u64) -> Instant {
    Instant::from_nanos(count * 1000)
}

fn queue_in_arc_on(channel: &Arc<reports::Shared>) -> Arc<QueueState> {
    Arc::new_cyclic(|this| {
        let mut queue = queue_on(1, Some(Arc::clone(channel)));
        queue.this = Weak::clone(this);
        queue
    })
}

fn queue_in_arc() -> (Arc<QueueState>, Arc<reports::Shared>) {
    let channel = Arc::new(reports::Shared::new().unwrap());
    (queue_in_arc_on(&channel), channel)
}

/// Fetches all reports, as a program does, and returns how many there were.
fn fetch_reports(channel: &reports::Shared) -> usize {
    let fetch = || channel.take().map(Report::fetch);
    std::iter::from_fn(fetch).count()
}

fn is_readable(channel: &reports::Shared) -> bool {
    let mut set = [nix::poll::PollFd::new(channel.as_fd(), nix::poll::PollFlags::POLLIN)];
    nix::poll::poll(&mut set, nix::poll::PollTimeout::ZERO).unwrap() == 1
}

#[test]
fn a_queue_that_is_armed_with_completions_reports_them_at_once_and_the_report_stays() {
    let (queue, channel) = queue_in_arc();
    queue.push(completion(1), micros(1));
    queue.push(completion(2), micros(1));
    queue.arm(armed::NEXT, micros(2));
    assert!(is_readable(&channel), "a program that sleeps now misses nothing");
    assert!(queue.pop().is_some() && queue.pop().is_some());
    assert!(is_readable(&channel), "another thread may have seen it");
    assert_eq!(fetch_reports(&channel), 1);
    assert_eq!(queue.push(completion(3), micros(5)), Pushed::Queued, "for one report");
}

#[test]
fn a_program_that_arms_between_a_report_and_its_poll_is_told_once_of_each_completion() {
    let (queue, channel) = queue_in_arc();
    queue.arm(armed::NEXT, micros(1));
    for wr_id in 1..100 {
        assert_eq!(queue.push(completion(wr_id), micros(2)), Pushed::Notified);
        assert_eq!(fetch_reports(&channel), 1);
        queue.arm(armed::NEXT, micros(3));
        assert_eq!(queue.pop().map(|it| it.wr_id), Some(wr_id));
        assert_eq!(fetch_reports(&channel), 0, "the report before was for it");
    }
}

#[test]
fn completions_that_such_a_program_does_not_know_of_or_leaves_are_reported() {
    let (queue, channel) = queue_in_arc();
    queue.arm(armed::NEXT, micros(1));
    queue.push(completion(1), micros(2));
    queue.push(completion(2), micros(2));
    assert_eq!(fetch_reports(&channel), 1);
    queue.arm(armed::NEXT, micros(3));
    assert!(queue.pop().is_some());
    assert_eq!(fetch_reports(&channel), 1, "the poll has left one");
    queue.push(completion(3), micros(4));
    queue.arm(armed::NEXT, micros(5));
    assert_eq!(fetch_reports(&channel), 1, "one came after the report was fetched");
    assert!(queue.pop().is_some());
    queue.arm(armed::NEXT, micros(6));
    assert_eq!(fetch_reports(&channel), 1, "the program has polled one of two");
}

#[test]
fn a_queue_fails_once_however_often_it_is_overrun() {
    let (queue, _channel) = queue_in_arc();
    let event = AsyncEvent::CqError { cq: queue.handle };
    queue.push_event(event);
    assert_eq!(queue.events.take(), Some(event));
    queue.push_event(event);
    assert_eq!(queue.events.take(), None);
}

#[test]
fn a_destroyed_queue_leaves_nothing_to_fetch_and_reports_nothing() {
    let (queue, channel) = queue_in_arc();
    let event = AsyncEvent::CqError { cq: queue.handle };
    for wr_id in 0..3 {
        queue.arm(armed::NEXT, micros(1));
        queue.push(completion(wr_id), micros(2));
    }
    queue.push_event(event);
    assert!(is_readable(&channel));
    queue.remove_user();
    assert!(!is_readable(&channel));
    // Completions of a queue pair that was destroyed before may still arrive.
    queue.armed.store(armed::NEXT, Ordering::Release);
    queue.push(completion(3), micros(3));
    queue.push_event(event);
    assert!(!is_readable(&channel) && channel.take().is_none());
    assert_eq!(queue.events.take(), None);
}

#[test]
fn destroying_one_queue_leaves_the_reports_of_another() {
    let channel = Arc::new(reports::Shared::new().unwrap());
    let [one, other] = [(); 2].map(|()| queue_in_arc_on(&channel));
    for queue in [&one, &other, &one] {
        queue.arm(armed::NEXT, micros(1));
        queue.push(completion(1), micros(2));
    }
    one.remove_user();
    assert!(is_readable(&channel));
    assert_eq!(fetch_reports(&channel), 1);
    assert!(!is_readable(&channel));
}

#[test]
fn a_caller_relies_on_the_thread_from_arming_until_a_moment_after_the_report() {
    let (queue, channel) = queue_in_arc();
    assert!(!queue.relies_on_thread(micros(1)), "it was never armed");
    queue.arm(armed::NEXT, micros(10));
    // Programs poll once more before they sleep.
    queue.note_polled(micros(11));
    for now in [10, 1_000, 1_000_000] {
        assert!(queue.relies_on_thread(micros(now)), "armed, {now}");
    }
    assert_eq!(queue.push(completion(1), micros(2_000_000)), Pushed::Notified);
    channel.on_unattended_notify();
    let recent = INLINE_RECENT.as_micros() as u64;
    assert!(queue.relies_on_thread(micros(2_000_000 + recent - 1)), "it may arm again");
    assert!(!queue.relies_on_thread(micros(2_000_000 + recent)));
}

#[test]
fn a_caller_that_goes_on_polling_after_it_has_armed_does_not_rely_on_the_thread() {
    let (queue, _channel) = queue_in_arc();
    queue.arm(armed::NEXT, micros(10));
    let later = micros(10) + INLINE_RECENT;
    queue.note_polled(later);
    assert!(!queue.relies_on_thread(later));
    queue.arm(armed::NEXT, later);
    assert!(queue.relies_on_thread(later), "it armed anew");
}

#[test]
fn a_caller_whose_reports_come_while_it_is_in_wait_does_not_rely_on_the_thread() {
    let (queue, channel) = queue_in_arc();
    queue.arm(armed::NEXT, micros(10));
    {
        let _waiter = reports::Waiter::on(&channel);
        assert!(!queue.relies_on_thread(micros(11)), "it is in wait");
        assert_eq!(queue.push(completion(1), micros(12)), Pushed::Notified);
        channel.on_unattended_notify();
    }
    assert!(queue.pop().is_some());
    queue.arm(armed::NEXT, micros(13));
    assert!(!queue.relies_on_thread(micros(13)), "it is expected to wait again");
    // It sleeps on the descriptor this time: the report finds no caller in wait.
    assert_eq!(queue.push(completion(2), micros(5_000)), Pushed::Notified);
    channel.on_unattended_notify();
    assert!(queue.pop().is_some());
    queue.arm(armed::NEXT, micros(5_001));
    assert!(queue.relies_on_thread(micros(5_001)));
}

#[test]
fn a_child_after_fork_takes_no_completion_and_does_not_wait_for_a_thread_that_it_lacks() {
    let queue = queue(1);
    assert_eq!(queue.push(completion(7), micros(1)), Pushed::Queued);
    let held = queue.entries();
    let is_empty = || queue.pop().is_none() && queue.take(4, &mut |_| ()) == 0;
    assert_eq!(fork::in_child(is_empty), Some(true));
    drop(held);
    assert_eq!(queue.pop().map(|it| it.wr_id), Some(7));
}
