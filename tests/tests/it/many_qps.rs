//! Many queue pairs between two of ours, all at once.

use roce_test_macros::tier1;
use roce_tests::fixtures::{Cable, TestDevice, connect, contents, pattern};
use roce_verbs::{
    CompletionStatus, ConnectOptions, DeviceConfig, RemoteAddr, SendOperation, SendWr,
};

const QUEUE_PAIRS: usize = 1000;
/// Messages on each: together they fill the peer's receive ring many times.
const EACH: usize = 4;
const LEN: usize = 8 << 10;

#[tier1]
fn a_thousand_queue_pairs_that_send_at_once_do_not_flood_their_peer() {
    let cable = Cable::with_mtu(4200);
    let left = TestDevice::on(&cable.left, DeviceConfig::default());
    let right = TestDevice::on(&cable.right, DeviceConfig::default());
    let options = ConnectOptions::default();
    let pairs: Vec<_> = (0..QUEUE_PAIRS).map(|_| connect(&left, &right, &options)).collect();
    let (ours, theirs) = (left.region(QUEUE_PAIRS * LEN, 1), right.region(QUEUE_PAIRS * LEN, 2));
    for (number, (here, _)) in pairs.iter().enumerate() {
        let offset = number * LEN;
        let address = theirs.address() + offset as u64;
        let write = SendOperation::write(RemoteAddr { addr: address, rkey: theirs.rkey() });
        let piece = || [ours.sge(offset..offset + LEN).unwrap()];
        let work = |_| SendWr::new(number as u64, write, piece()).signaled();
        here.post_send((0..EACH).map(work)).unwrap();
    }
    for done in 0..QUEUE_PAIRS * EACH {
        let completion = left.completion();
        assert_eq!(completion.status, CompletionStatus::Success, "{done} were: {completion:?}");
    }
    assert!(contents(&theirs) == pattern(QUEUE_PAIRS * LEN, 1), "what was written arrived");
    for (side, end) in [("ours", &left), ("theirs", &right)] {
        let dropped = end.device.counter("socket_rcvd_dropped").unwrap();
        assert_eq!(dropped, 0, "{side}: the ring overflowed\n{:?}", end.device.counters());
    }
}
