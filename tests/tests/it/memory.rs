//! Regions: whose bytes they are, and when their keys die.

use roce_test_macros::tier1;
use roce_tests::fixtures::{Cable, TestDevice, connect, contents, every_right, pattern};
use roce_verbs::{
    CompletionStatus, ConnectOptions, DeviceConfig, RecvWr, RegisterOptions, RemoteAddr,
    SendOperation, SendWr,
};

/// A cable with an end on either side.
fn two_ends() -> (Cable, TestDevice, TestDevice) {
    let cable = Cable::with_mtu(1500);
    let left = TestDevice::on(&cable.left, DeviceConfig::default());
    let right = TestDevice::on(&cable.right, DeviceConfig::default());
    (cable, left, right)
}

#[tier1]
fn memory_that_the_caller_owns_is_written_by_the_peer_and_nothing_beside_it() {
    let (_cable, left, right) = two_ends();
    let (here, _there) = connect(&left, &right, &ConnectOptions::default());
    let ours = left.region(10_000, 3);
    let mut owned = vec![0xee_u8; 12_000];
    let middle = owned.as_mut_ptr().wrapping_add(1000);
    let options = RegisterOptions { iova: Some(0x7000_0000), ..RegisterOptions::default() };
    // SAFETY: the vector lives longer than the region, and no code reads it meanwhile.
    let theirs = unsafe { right.pd.register_memory(middle, 10_000, every_right(), options) };
    let theirs = theirs.unwrap();
    assert_eq!(theirs.address(), 0x7000_0000);
    let remote = RemoteAddr { addr: theirs.address(), rkey: theirs.rkey() };
    let write = SendOperation::write(remote);
    here.post_send([SendWr::new(1, write, [ours.sge(..).unwrap()]).signaled()]).unwrap();
    assert_eq!(left.completion().status, CompletionStatus::Success);
    drop(theirs);
    assert!(owned[1000..11_000] == pattern(10_000, 3));
    assert!(owned[..1000].iter().chain(&owned[11_000..]).all(|byte| *byte == 0xee));
}

#[tier1]
fn a_region_that_goes_while_it_is_being_written_ends_in_a_remote_access_error() {
    let (_cable, left, right) = two_ends();
    let (here, there) = connect(&left, &right, &ConnectOptions::default());
    let ours = left.region(1 << 20, 3);
    let theirs = right.region(1 << 20, 4);
    let remote = RemoteAddr { addr: theirs.address(), rkey: theirs.rkey() };
    let work = |id| SendWr::new(id, SendOperation::write(remote), [ours.sge(..).unwrap()]);
    here.post_send((0..200).map(|id| work(id).signaled())).unwrap();
    assert_eq!(left.completion().status, CompletionStatus::Success);
    drop(theirs);
    let mut statuses = Vec::new();
    while statuses.len() < 199 {
        statuses.push(left.completion().status);
    }
    let end = statuses.iter().position(|status| *status != CompletionStatus::Success);
    let end = end.expect("the region went before all was written");
    assert_eq!(statuses[end], CompletionStatus::RemoteAccessError);
    let flushed = CompletionStatus::WorkRequestFlushed;
    assert!(statuses[end + 1..].iter().all(|status| *status == flushed));
    drop(there);
}

#[tier1]
fn a_send_with_invalidate_ends_the_life_of_a_key_that_may_be_invalidated() {
    let (_cable, left, right) = two_ends();
    let (here, there) = connect(&left, &right, &ConnectOptions::default());
    let ours = left.region(64, 1);
    let place = right.region(64, 2);
    let options = RegisterOptions { invalidatable: true, ..RegisterOptions::default() };
    let doomed = right.pd.register_with(64, every_right(), options).unwrap();
    there.post_recv([RecvWr::new(1, [place.sge(..).unwrap()])]).unwrap();
    let send = SendOperation::Send { immediate: None, invalidate: Some(doomed.rkey()) };
    here.post_send([SendWr::new(2, send, [ours.sge(..).unwrap()])]).unwrap();
    let received = right.completion();
    assert_eq!(received.status, CompletionStatus::Success);
    assert_eq!(received.invalidated_key, Some(doomed.rkey()));
    assert!(!doomed.is_valid());
    assert!(contents(&place) == pattern(64, 1));
    let remote = RemoteAddr { addr: doomed.address(), rkey: doomed.rkey() };
    let write = SendOperation::write(remote);
    here.post_send([SendWr::new(3, write, [ours.sge(..).unwrap()])]).unwrap();
    assert_eq!(left.completion().status, CompletionStatus::RemoteAccessError);
    assert!(contents(&doomed).iter().all(|byte| *byte == 0));
}

#[tier1]
fn huge_pages_are_used_or_done_without_and_the_region_is_the_same() {
    let (_cable, left, right) = two_ends();
    let (here, _there) = connect(&left, &right, &ConnectOptions::default());
    let ours = left.region(3 << 20, 9);
    let options = RegisterOptions { huge_pages: true, ..RegisterOptions::default() };
    let theirs = right.pd.register_with(3 << 20, every_right(), options).unwrap();
    let remote = RemoteAddr { addr: theirs.address(), rkey: theirs.rkey() };
    let write = SendOperation::write(remote);
    here.post_send([SendWr::new(1, write, [ours.sge(..).unwrap()]).signaled()]).unwrap();
    assert_eq!(left.completion().status, CompletionStatus::Success);
    assert!(contents(&theirs) == contents(&ours));
}
