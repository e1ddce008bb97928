//! How bindings end: by invalidation, with the window, the queue pair or the region.

use roce_engine::WindowType;
use roce_transport::{
    AccessFlags, CompletionStatus, CqHandle, QpState, SendOperation, SendWr, Service, WindowBinding,
};

use super::pair::{PD, Pair, World, binding};

const REFUSED: CompletionStatus = CompletionStatus::RemoteAccessError;
const DONE: CompletionStatus = CompletionStatus::Success;

fn shut(key: u32) -> SendWr {
    SendWr::new(1, SendOperation::LocalInvalidate { key }, [])
}

fn send_and_shut(key: u32) -> SendWr {
    let operation = SendOperation::Send { immediate: None, invalidate: Some(key) };
    SendWr::inline(1, operation, b"shut")
}

/// A world with a bound window.
fn bound(window_type: WindowType) -> (World, Pair, WindowBinding) {
    let (mut world, pair) = World::connected();
    let region = world.bindable();
    let window = world.window(PD, window_type);
    let to = binding(window, &region, AccessFlags::REMOTE_WRITE);
    assert_eq!(world.bind(pair, to), DONE);
    (world, pair, to)
}

//= test mw-invalidate
//= test mw-type2-free
#[test]
fn a_local_invalidation_frees_a_window_of_type_2_for_another_binding() {
    let (mut world, pair, to) = bound(WindowType::Type2B);
    assert_eq!(world.post(1, pair, [shut(to.rkey())]), [DONE]);
    let again = WindowBinding { tag: 8, ..to };
    assert_eq!(world.bind(pair, again), DONE);
    assert_eq!(world.write(pair, again.rkey(), to.addr), DONE);
    assert_eq!(world.write(pair, to.rkey(), to.addr), REFUSED, "the key of before");
}

//= test mw-invalidate
#[test]
fn a_send_with_invalidate_frees_a_window_of_type_2() {
    let (mut world, pair, to) = bound(WindowType::Type2B);
    world.receive(pair);
    for work in [SendWr::inline(1, SendOperation::send(), b"x"), send_and_shut(to.rkey())] {
        world.receive(pair);
        assert_eq!(world.post(0, pair, [work]), [DONE]);
    }
    let received = world.completions(1);
    let keys: Vec<_> = received.iter().map(|it| (it.1.status, it.1.invalidated_key)).collect();
    assert_eq!(keys, [(DONE, None), (DONE, Some(to.rkey()))]);
    assert_eq!(world.net.hosts[1].memory.window_state(to.window), Some((to.rkey(), false)));
    let again = WindowBinding { tag: 8, ..to };
    assert_eq!(world.bind(pair, again), DONE);
    assert_eq!(world.write(pair, to.rkey(), to.addr), REFUSED);
}

//= test mw-invalidate
#[test]
fn what_is_no_bound_window_of_type_2_of_the_queue_pair_is_not_invalidated() {
    for window_type in [WindowType::Type1, WindowType::Type2B] {
        for by_peer in [false, true] {
            let (mut world, pair, to) = bound(window_type);
            let pair = match window_type {
                WindowType::Type1 => pair,
                WindowType::Type2B => world.connect(Service::Rc, PD),
            };
            if by_peer {
                world.receive(pair);
                world.post(0, pair, [send_and_shut(to.rkey())]);
                let received = world.completions(1);
                let status = CompletionStatus::RemoteInvalidRequest;
                assert!(received.iter().any(|it| it.0 == CqHandle(2) && it.1.status == status));
            } else {
                let done = world.post(1, pair, [shut(to.rkey())]);
                assert_eq!(done, [CompletionStatus::LocalQpOperationError]);
            }
            assert_eq!(world.state(1, pair), QpState::Error);
            assert_eq!(world.net.hosts[1].memory.window_state(to.window), Some((to.rkey(), true)));
        }
    }
    // One that is free, and one that was freed already.
    let (mut world, pair, to) = bound(WindowType::Type2B);
    let done = world.post(1, pair, [shut(to.rkey()), shut(to.rkey())]);
    assert_eq!(done, [DONE, CompletionStatus::LocalQpOperationError]);
}

//= test mw-queue-pair-destroyed
#[test]
fn a_queue_pair_that_is_destroyed_frees_its_windows_of_type_2_and_no_others() {
    for window_type in [WindowType::Type1, WindowType::Type2B] {
        let (mut world, pair, to) = bound(window_type);
        let other = world.connect(Service::Rc, PD);
        let other_window = world.window(PD, window_type);
        let of_other = WindowBinding { window: other_window, ..to };
        assert_eq!(world.bind(other, of_other), DONE);
        world.net.hosts[1].endpoint.destroy_qp(pair.0);
        world.net.hosts[1].memory.unbind_windows_of(pair.0);
        let is_bound = window_type == WindowType::Type1;
        let state = world.net.hosts[1].memory.window_state(to.window);
        assert_eq!(state, Some((to.rkey(), is_bound)));
        let expected = if is_bound { DONE } else { REFUSED };
        let third = world.connect(Service::Rc, PD);
        assert_eq!(world.write(other, of_other.rkey(), to.addr), DONE);
        assert_eq!(world.write(third, to.rkey(), to.addr), expected);
        if !is_bound {
            // Another queue pair may bind it now.
            assert_eq!(world.bind(other, to), DONE);
            assert_eq!(world.write(other, to.rkey(), to.addr), DONE);
        }
    }
}

//= test mw-region-in-use
#[test]
fn a_region_with_bound_windows_is_not_invalidated() {
    let (mut world, pair, to) = bound(WindowType::Type2B);
    assert_eq!(world.post(1, pair, [shut(to.rkey()), shut(to.lkey)]), [DONE, DONE]);
    let (mut world, pair, to) = bound(WindowType::Type2B);
    let done = world.post(1, pair, [shut(to.lkey)]);
    assert_eq!(done, [CompletionStatus::LocalQpOperationError]);
    assert!(world.net.hosts[1].memory.is_valid(to.lkey));
}

#[test]
fn a_window_that_is_freed_or_whose_region_is_removed_opens_nothing() {
    for window_type in [WindowType::Type1, WindowType::Type2B] {
        let (mut world, pair, to) = bound(window_type);
        world.net.hosts[1].memory.free_window(to.window);
        assert_eq!(world.net.hosts[1].memory.window_state(to.window), None);
        assert_eq!(world.net.hosts[1].memory.windows_bound_to(to.lkey), 0);
        assert_eq!(world.write(pair, to.rkey(), to.addr), REFUSED);

        let (mut world, pair, to) = bound(window_type);
        assert_eq!(world.net.hosts[1].memory.windows_bound_to(to.lkey), 1);
        world.net.hosts[1].memory.remove(to.lkey);
        assert_eq!(world.net.hosts[1].memory.window_state(to.window), Some((to.rkey(), false)));
        assert_eq!(world.write(pair, to.rkey(), to.addr), REFUSED);
    }
}
