//! Which bindings are allowed, what a refused one does, and their order.

use roce_engine::WindowType;
use roce_transport::{
    AccessFlags, CompletionOperation, CompletionStatus, QpState, RemoteAddr, SendOperation, SendWr,
    Service, WindowBinding,
};

use super::pair::{FIRST, LEN, OTHER_PD, PD, Pair, World, bind, binding, byte};

const BIND_ERROR: CompletionStatus = CompletionStatus::MemoryWindowBindError;
const REFUSED: CompletionStatus = CompletionStatus::RemoteAccessError;
const DONE: CompletionStatus = CompletionStatus::Success;

/// A binding is refused, ends its queue pair, flushes what is behind, and opens nothing.
#[track_caller]
fn refused(world: &mut World, pair: Pair, to: WindowBinding) {
    let behind = SendWr::inline(1, SendOperation::send(), b"s");
    let done = world.post(1, pair, [bind(to), behind]);
    assert_eq!(done, [BIND_ERROR, CompletionStatus::WorkRequestFlushed], "{to:?}");
    assert_eq!(world.state(1, pair), QpState::Error);
    let other = world.connect(Service::Rc, PD);
    assert_eq!(world.write(other, to.rkey(), to.addr), REFUSED, "{to:?}");
}

//= test mw-bind-failed
//= test mw-bind-right
//= test mw-bind-write
#[test]
fn a_region_gives_windows_only_with_the_right_to_bind_and_writable_ones_only_if_it_is_writable() {
    use AccessFlags as A;
    let (write, atomic, read) = (A::REMOTE_WRITE, A::REMOTE_ATOMIC, A::REMOTE_READ);
    for (of_region, of_window, is_allowed) in [
        (A::MW_BIND, read, true),
        (A::MW_BIND, A::empty(), true),
        (A::MW_BIND, write, false),
        (A::MW_BIND, atomic, false),
        (A::MW_BIND | read, read | write, false),
        (A::MW_BIND | A::LOCAL_WRITE, read | write | atomic, true),
        (A::ALL - A::MW_BIND, read, false),
        (A::LOCAL_WRITE | write, write, false),
    ] {
        for window_type in [WindowType::Type1, WindowType::Type2B] {
            let (mut world, pair) = World::connected();
            let region = world.register(1, PD, of_region);
            let window = world.window(PD, window_type);
            let to = binding(window, &region, of_window);
            match is_allowed {
                true => assert_eq!(world.bind(pair, to), DONE, "{of_region:?} {of_window:?}"),
                false => refused(&mut world, pair, to),
            }
        }
    }
}

//= test mw-bind-range
#[test]
fn a_window_may_be_all_of_its_region_and_no_byte_more() {
    let len = LEN as u64;
    for (addr, len, is_allowed) in [
        (FIRST, len, true),
        (FIRST + len - 1, 1, true),
        (FIRST, 1, true),
        (FIRST, len + 1, false),
        (FIRST - 1, len, false),
        (FIRST - 1, 1, false),
        (FIRST + len, 1, false),
        (FIRST + 1, len, false),
        (FIRST + 1, u64::MAX, false),
        (0, 1, false),
        (u64::MAX, 1, false),
    ] {
        let (mut world, pair) = World::connected();
        let region = world.bindable();
        let window = world.window(PD, WindowType::Type2B);
        let to = binding(window, &region, AccessFlags::REMOTE_WRITE);
        let to = WindowBinding { addr, len, ..to };
        match is_allowed {
            true => assert_eq!(world.bind(pair, to), DONE, "{addr:#x} {len}"),
            false => refused(&mut world, pair, to),
        }
    }
}

//= test mw-bind-domain
#[test]
fn window_region_and_queue_pair_are_of_one_domain() {
    for window_type in [WindowType::Type1, WindowType::Type2B] {
        for (of_window, of_region) in [(OTHER_PD, PD), (PD, OTHER_PD), (OTHER_PD, OTHER_PD)] {
            let (mut world, pair) = World::connected();
            let rights = AccessFlags::LOCAL_WRITE | AccessFlags::MW_BIND;
            let region = world.register(1, of_region, rights);
            let window = world.window(of_window, window_type);
            refused(&mut world, pair, binding(window, &region, AccessFlags::REMOTE_WRITE));
        }
    }
}

#[test]
fn what_does_not_exist_is_not_bound() {
    let (mut world, pair) = World::connected();
    let region = world.bindable();
    let window = world.window(PD, WindowType::Type1);
    let to = binding(window, &region, AccessFlags::REMOTE_WRITE);
    refused(&mut world, pair, WindowBinding { window: window ^ 1, ..to });
    let pair = world.connect(Service::Rc, PD);
    refused(&mut world, pair, WindowBinding { lkey: region.key ^ 1, ..to });
    let pair = world.connect(Service::Rc, PD);
    world.net.hosts[1].memory.free_window(window);
    refused(&mut world, pair, to);
    // A region whose key was invalidated.
    let pair = world.connect(Service::Rc, PD);
    let window = world.window(PD, WindowType::Type1);
    let shut = SendWr::new(1, SendOperation::LocalInvalidate { key: region.key }, []);
    assert_eq!(world.post(1, pair, [shut]), [DONE]);
    refused(&mut world, pair, binding(window, &region, AccessFlags::REMOTE_WRITE));
}

//= test mw-type1-zero-based
//= test mw-type2-free
//= test mw-type2-empty
#[test]
fn type_1_is_not_zero_based_and_type_2_neither_bound_twice_nor_to_nothing() {
    let (mut world, pair) = World::connected();
    let region = world.bindable();
    let window = world.window(PD, WindowType::Type1);
    let to = binding(window, &region, AccessFlags::REMOTE_WRITE);
    let access = to.access | AccessFlags::ZERO_BASED;
    refused(&mut world, pair, WindowBinding { access, ..to });

    let pair = world.connect(Service::Rc, PD);
    let window = world.window(PD, WindowType::Type2B);
    let to = binding(window, &region, AccessFlags::REMOTE_WRITE);
    refused(&mut world, pair, WindowBinding { len: 0, ..to });

    let pair = world.connect(Service::Rc, PD);
    assert_eq!(world.bind(pair, to), DONE);
    assert_eq!(world.bind(pair, WindowBinding { tag: 8, ..to }), BIND_ERROR);
    // The first binding is as it was, but its queue pair takes no requests any more.
    assert_eq!(world.net.hosts[1].memory.window_state(window), Some((to.rkey(), true)));
    assert_eq!(world.state(1, pair), QpState::Error);
}

#[test]
fn a_new_binding_of_type_1_ends_the_one_before_and_an_empty_one_ends_it_without_another() {
    let (mut world, pair) = World::connected();
    let regions = [world.bindable(), world.bindable()];
    let window = world.window(PD, WindowType::Type1);
    let first = binding(window, &regions[0], AccessFlags::REMOTE_WRITE);
    let second = WindowBinding { tag: 8, lkey: regions[1].key, ..first };
    assert_eq!(world.bind(pair, first), DONE);
    assert_eq!(world.bind(pair, second), DONE);
    assert_eq!(world.write(pair, second.rkey(), second.addr), DONE);
    assert_eq!((byte(&regions[0], 128), byte(&regions[1], 128)), (0, b'w'));
    assert_eq!(world.write(pair, first.rkey(), first.addr), REFUSED);
    let bound = regions.each_ref().map(|it| world.net.hosts[1].memory.windows_bound_to(it.key));
    assert_eq!(bound, [0, 1]);

    let pair = world.connect(Service::Rc, PD);
    // An empty binding looks at no region.
    let empty = WindowBinding { tag: 9, lkey: 0, addr: 0, len: 0, ..first };
    assert_eq!(world.bind(pair, empty), DONE);
    assert_eq!(world.net.hosts[1].memory.window_state(window), Some((empty.rkey(), false)));
    assert_eq!(world.net.hosts[1].memory.windows_bound_to(regions[1].key), 0);
    for key in [second.rkey(), empty.rkey()] {
        let pair = world.connect(Service::Rc, PD);
        assert_eq!(world.write(pair, key, second.addr), REFUSED);
    }
    assert_eq!(world.bind(pair, first), DONE);
    assert_eq!(world.write(pair, first.rkey(), first.addr), DONE);
}

//= test mw-bind-order
#[test]
fn a_binding_is_executed_behind_all_requests_before_it_and_in_front_of_those_behind() {
    let (mut world, pair) = World::connected();
    let region = world.bindable();
    let open = world.register(0, PD, AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_WRITE);
    let window = world.window(PD, WindowType::Type1);
    let first = binding(window, &region, AccessFlags::REMOTE_WRITE);
    let second = WindowBinding { tag: 8, ..first };
    let remote = RemoteAddr { addr: FIRST, rkey: open.key };
    let write = || SendWr::inline(1, SendOperation::write(remote), vec![1; 64]);
    // Nothing has left yet: the table is as it was.
    for work in [write(), bind(first), write(), bind(second), write()] {
        let now = roce_transport::Instant::from_nanos(1);
        world.net.hosts[1].endpoint.post_send(now, pair.0, work).unwrap();
    }
    assert_eq!(world.net.hosts[1].memory.windows_bound_to(region.key), 0);
    let done = world.post(1, pair, []);
    assert_eq!(done, [DONE; 5]);
    assert_eq!(world.net.hosts[1].memory.window_state(window), Some((second.rkey(), true)));
    let operation = SendOperation::BindWindow(first).completion_operation();
    assert_eq!((operation, operation.code()), (CompletionOperation::BindWindow, 5));
}
