//! What the key of a bound window opens, and to which queue pairs.

use roce_engine::WindowType;
use roce_transport::{
    AccessFlags, CompletionStatus, QpState, RemoteAddr, SendOperation, SendWr, Service, Sge,
    WindowBinding,
};

use super::pair::{FIRST, LEN, OTHER_PD, PD, World, binding, byte};

const TYPES: [WindowType; 2] = [WindowType::Type1, WindowType::Type2B];
const REFUSED: CompletionStatus = CompletionStatus::RemoteAccessError;
const DONE: CompletionStatus = CompletionStatus::Success;

//= test mw-access
#[test]
fn a_window_opens_its_own_bytes_of_a_region_that_is_closed_to_peers() {
    // First byte behind the window's first, bytes, and what becomes of it.
    for (offset, len, expected) in [
        (0, 64, DONE),
        (0, 1, DONE),
        (63, 1, DONE),
        (-1, 1, REFUSED),
        (-1, 66, REFUSED),
        (0, 65, REFUSED),
        (64, 1, REFUSED),
        (-128, 1, REFUSED),
        (i64::MIN, 8, REFUSED),
    ] {
        for window_type in TYPES {
            let (mut world, pair) = World::connected();
            let region = world.bindable();
            let window = world.window(PD, window_type);
            let to = binding(window, &region, AccessFlags::REMOTE_WRITE);
            assert_eq!(world.bind(pair, to), DONE);
            let remote = RemoteAddr { addr: to.addr.wrapping_add_signed(offset), rkey: to.rkey() };
            let bytes = vec![9; len];
            let work = SendWr::inline(1, SendOperation::write(remote), bytes);
            let done = world.post(0, pair, [work]);
            assert_eq!(done, [expected], "{offset} {len} {window_type:?}");
            for at in 0..LEN {
                let from_first = (at as i64 - 128).wrapping_sub(offset);
                let is_written = expected == DONE && (0..len as i64).contains(&from_first);
                assert_eq!(byte(&region, at), if is_written { 9 } else { 0 }, "byte {at}");
            }
        }
    }
}

//= test mw-access
#[test]
fn each_access_needs_its_right_of_the_window_and_none_of_the_region() {
    let all = [AccessFlags::REMOTE_WRITE, AccessFlags::REMOTE_READ, AccessFlags::REMOTE_ATOMIC];
    for right in all {
        for given in [right, all.into_iter().filter(|it| *it != right).collect()] {
            let (mut world, pair) = World::connected();
            let region = world.bindable();
            let local = world.register(0, PD, AccessFlags::LOCAL_WRITE);
            let window = world.window(PD, WindowType::Type2B);
            let to = binding(window, &region, given);
            assert_eq!(world.bind(pair, to), DONE);
            let remote = RemoteAddr { addr: to.addr, rkey: to.rkey() };
            let operation = match right {
                AccessFlags::REMOTE_WRITE => SendOperation::write(remote),
                AccessFlags::REMOTE_READ => SendOperation::read(remote),
                _ => SendOperation::FetchAdd { remote, add: 1 },
            };
            let place = Sge { lkey: local.key, addr: FIRST, len: 8 };
            let done = world.post(0, pair, [SendWr::new(1, operation, [place])]);
            let expected = if given == right { DONE } else { REFUSED };
            assert_eq!(done, [expected], "{right:?} of {given:?}");
        }
    }
}

//= test mw-access
#[test]
fn a_window_of_type_1_opens_to_its_domain_and_one_of_type_2_to_the_queue_pair_that_bound_it() {
    for window_type in TYPES {
        let (mut world, pair) = World::connected();
        let region = world.bindable();
        let window = world.window(PD, window_type);
        let to = binding(window, &region, AccessFlags::REMOTE_WRITE);
        assert_eq!(world.bind(pair, to), DONE);
        let same_domain = world.connect(Service::Rc, PD);
        let other_domain = world.connect(Service::Rc, OTHER_PD);
        let of_domain = if window_type == WindowType::Type1 { DONE } else { REFUSED };
        assert_eq!(world.write(same_domain, to.rkey(), to.addr), of_domain, "{window_type:?}");
        assert_eq!(world.write(other_domain, to.rkey(), to.addr), REFUSED);
        assert_eq!(world.write(pair, to.rkey(), to.addr), DONE);
        assert_eq!(world.state(1, other_domain), QpState::Error);
    }
}

//= test mw-type1-zero-based
#[test]
fn a_window_of_type_2_may_begin_at_address_0_for_peers() {
    let (mut world, pair) = World::connected();
    let region = world.bindable();
    let window = world.window(PD, WindowType::Type2B);
    let to = binding(window, &region, AccessFlags::REMOTE_WRITE | AccessFlags::ZERO_BASED);
    assert_eq!(world.bind(pair, to), DONE);
    assert_eq!(world.write(pair, to.rkey(), 63), DONE);
    assert_eq!(byte(&region, 128 + 63), b'w');
    assert_eq!(world.write(pair, to.rkey(), 64), REFUSED);
}

#[test]
fn a_local_request_cannot_name_a_window() {
    let (mut world, pair) = World::connected();
    let region = world.bindable();
    let open = world.register(0, PD, AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_WRITE);
    let window = world.window(PD, WindowType::Type1);
    let to = binding(window, &region, AccessFlags::REMOTE_READ);
    assert_eq!(world.bind(pair, to), DONE);
    let remote = RemoteAddr { addr: FIRST, rkey: open.key };
    let piece = Sge { lkey: to.rkey(), addr: to.addr, len: 8 };
    let done = world.post(1, pair, [SendWr::new(1, SendOperation::write(remote), [piece])]);
    assert_eq!(done, [CompletionStatus::LocalProtectionError]);
}

//= test qp-operations-of-service
#[test]
fn an_unreliable_connection_binds_windows_that_its_peer_writes_through() {
    for window_type in TYPES {
        let mut world = World::new();
        let pair = world.connect(Service::Uc, PD);
        let region = world.bindable();
        let window = world.window(PD, window_type);
        let to = binding(window, &region, AccessFlags::REMOTE_WRITE);
        // Behind a request, and in front of one.
        let send = || SendWr::inline(1, SendOperation::send(), b"s");
        let bind = super::pair::bind(to);
        let done = world.post(1, pair, [send(), bind.clone(), send()]);
        assert_eq!(done, [DONE; 3]);
        world.write(pair, to.rkey(), to.addr);
        assert_eq!(byte(&region, 128), b'w');
        // A key of no window is dropped without a word.
        world.write(pair, to.rkey() ^ 1, to.addr + 1);
        assert_eq!(byte(&region, 129), 0);
        let wrong = WindowBinding { len: LEN as u64, ..to };
        let done = world.post(1, pair, [super::pair::bind(wrong), send()]);
        let expected =
            [CompletionStatus::MemoryWindowBindError, CompletionStatus::WorkRequestFlushed];
        assert_eq!(done, expected, "{window_type:?}");
        assert_eq!(world.state(1, pair), QpState::SendQueueError);
    }
}
