//! How an event is fetched.

use std::ffi::c_int;
use std::os::fd::BorrowedFd;

use libc::{EBADF, EIO};
use roce_abi::rdma_cm::{Plain, ResponseSpace, rdma_ucm_event_resp};
use roce_verbs::Device;
use roce_verbs::cm::Event;

use super::channel::{Channel, RaisedEvent};
use super::events;
use super::memory;
use super::process::{self, Lookup, Process, State};
use crate::wait::{self, Attempt, Woken};

/// Tries to fetch an event of the channel that the descriptor is.
pub(super) fn fetch(fd: c_int, woken: Woken, response: ResponseSpace) -> Attempt {
    let (process, channel) = match process::find(fd) {
        Lookup::Channel(process, channel) => (process, channel),
        Lookup::Inherited => return Attempt::Failed(EIO),
        Lookup::Foreign if woken == Woken::Not => return Attempt::Failed(EBADF),
        // The program has closed it while this thread slept. The kernel lets the call keep the
        // channel, so that it sleeps on; rping relies on that.
        Lookup::Foreign => return wait::for_ever(woken),
    };
    let mut outcome = None;
    let mut take = || {
        outcome = take(process, &channel, response);
        channel.bell.settle(fd);
        outcome.is_some()
    };
    let mut devices = Vec::new();
    let mut is_taken = take();
    if !is_taken {
        // All identifiers of the channel are asked for theirs.
        devices = channel.events.devices();
        devices.iter().for_each(|device| device.run_round());
        is_taken = take();
    }
    let attempt = if is_taken {
        Attempt::Fetched
    } else {
        // SAFETY: the program keeps the descriptor open during its call.
        let descriptor = unsafe { BorrowedFd::borrow_raw(fd) };
        wait::after_nothing(woken, (descriptor, wait::Kind::Socket), &devices, &mut take)
    };
    if matches!(attempt, Attempt::Sleep(_)) {
        devices.iter().for_each(Device::leave_to_threads);
    }
    match outcome {
        Some(Err(errno)) => Attempt::Failed(errno),
        _ => attempt,
    }
}

/// Takes the next event, counts it, and writes it to memory of the program. The kernel drops an
/// event that it cannot write, too.
fn take(process: &Process, channel: &Channel, space: ResponseSpace) -> Option<Result<(), c_int>> {
    // From the event to the count, so that destroying the identifier comes before or after both.
    let mut state = process.state();
    let response = next(&mut state, channel)?;
    Some(memory::respond(space, &response.to_vec()))
}

/// Returns the next event that the program is told of.
fn next(state: &mut State, channel: &Channel) -> Option<rdma_ucm_event_resp> {
    while let Some(event) = channel.take_raised() {
        if let Some(response) = of_raised(state, channel, event) {
            return Some(response);
        }
    }
    loop {
        let event = channel.events.try_next()?;
        if let Some(response) = of_manager(state, channel, &event) {
            return Some(response);
        }
    }
}

fn of_raised(
    state: &mut State,
    channel: &Channel,
    event: RaisedEvent,
) -> Option<rdma_ucm_event_resp> {
    let identifier = state.ids.find_mut(event.id, channel.cookie).ok()?;
    identifier.reported += 1;
    Some(events::of_program(identifier.uid, event))
}

/// Returns what the program is told of an event; `None` if it is not. Without a `uid` the program
/// does not know the identifier yet: accepting its request fails then.
fn of_manager(state: &mut State, channel: &Channel, event: &Event) -> Option<rdma_ucm_event_resp> {
    let told = events::of_manager(event);
    let Some(listener) = &event.listener else {
        let (number, identifier) = state.ids.of_event(&event.id)?;
        if identifier.uid == 0 {
            return None;
        }
        let mut told = rdma_ucm_event_resp { uid: identifier.uid, id: number, ..told? };
        if let Some(join) = events::join_of(event) {
            // Such an event counts for both.
            let (number, join) = state.joins.of_event(join, number)?;
            join.reported += 1;
            (told.uid, told.id) = (join.uid, number);
        }
        identifier.reported += 1;
        return Some(told);
    };
    // A request: the event carries the listener's `uid`, and the number of a new identifier.
    let known = state.ids.of_event(listener).map(|(_, it)| (it.uid, it.moved_from));
    let (uid, moved_from) = known.unzip();
    let number = uid.and_then(|_| state.ids.add(event.id.clone(), 0, channel.cookie));
    let (Some(uid), Some(number)) = (uid, number) else {
        event.id.destroy();
        return None;
    };
    // Or the channel would be readable for events that it drops: the caller of poll(2) would block here.
    event.id.ignore_events(true);
    if let Some((_, identifier)) = state.ids.of_event(&event.id) {
        identifier.moved_from = moved_from.flatten();
    }
    if let Some((_, identifier)) = state.ids.of_event(listener) {
        identifier.reported += 1;
    }
    Some(rdma_ucm_event_resp { uid, id: number, ..told? })
}
