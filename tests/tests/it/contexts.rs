//! Two contexts of one interface in one process, as two libraries of a program open them.

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use roce_io::interface_index;
use roce_netns::Host;
use roce_test_macros::tier1;
use roce_tests::fixtures::{Cable, TestDevice, connect, device_config, every_right};
use roce_tests::ip::{ip, wait_until};
use roce_verbs::{
    AsyncEvent, CompletionStatus, ConnectOptions, Device, DeviceConfig, Error, EventSource,
    MemoryRegion, QpState, RemoteAddr, SendOperation, SendWr,
};

/// All events that a context has for the application.
fn events(context: &Device) -> Vec<AsyncEvent> {
    std::iter::from_fn(|| context.poll_event()).collect()
}

fn start_of(region: &MemoryRegion) -> RemoteAddr {
    RemoteAddr { addr: region.address(), rkey: region.rkey() }
}

/// Two contexts of the left end's interface, and the right end.
fn two_contexts(cable: &Cable) -> [TestDevice; 3] {
    let first = TestDevice::on(&cable.left, DeviceConfig::default());
    let second = TestDevice::on(&cable.left, DeviceConfig::default());
    [first, second, TestDevice::on(&cable.right, DeviceConfig::default())]
}

#[tier1]
fn events_of_an_object_go_to_its_context_and_those_of_the_port_to_both() {
    let cable = Cable::with_mtu(1500);
    let [first, second, right] = two_contexts(&cable);
    // A completion queue of one entry overflows with the second completion.
    let small = second.device.create_cq(1, None).unwrap();
    let qp = second.pd.queue_pair(&small, &small).build().unwrap();
    let peer = right.queue_pair();
    let dest = peer.dest(None).unwrap();
    peer.connect(&qp.dest(None).unwrap(), &ConnectOptions::default()).unwrap();
    qp.connect(&dest, &ConnectOptions::default()).unwrap();
    let target = right.region(8, 0);
    let write = |id| SendWr::inline(id, SendOperation::write(start_of(&target)), b"12345678");
    qp.post_send([write(1).signaled(), write(2).signaled()]).unwrap();
    let mut got = Vec::new();
    wait_until("the overflow is reported", || {
        got.extend(events(&second.device));
        got.iter().any(|it| it.source() == EventSource::CompletionQueue(small.handle()))
    });
    let of_objects = |it: &AsyncEvent| it.source() != EventSource::Port;
    assert!(!events(&first.device).iter().any(of_objects), "they are not of this context");

    ip(&cable.left, "address add 10.9.9.9/24 dev eth0");
    for context in [&first.device, &second.device] {
        wait_until("each is told", || events(context).contains(&AsyncEvent::GidChange));
    }
}

#[tier1]
fn a_queue_pair_that_is_dropped_takes_its_events_along() {
    let cable = Cable::with_mtu(1500);
    let [_first, second, right] = two_contexts(&cable);
    let options = ConnectOptions::default();
    let (qp, peer) = connect(&second, &right, &options);
    // The peer refuses a key that does not exist, and is in error from then on.
    let nowhere = RemoteAddr { addr: 0, rkey: 0xdead_beef };
    peer.post_send([SendWr::inline(1, SendOperation::write(nowhere), b"x").signaled()]).unwrap();
    assert_eq!(right.completion().status, CompletionStatus::RemoteAccessError);
    wait_until("it is in error", || qp.query().unwrap().state == QpState::Error);
    let source = EventSource::QueuePair(qp.number());
    drop(qp);
    assert!(!events(&second.device).iter().any(|it| it.source() == source));
}

#[tier1]
fn a_queue_is_resized_down_to_what_it_holds_and_polled_without_a_list() {
    let cable = Cable::with_mtu(1500);
    let [left, _, right] = two_contexts(&cable);
    let (qp, _peer) = connect(&left, &right, &ConnectOptions::default());
    let target = right.pd.register(8, every_right()).unwrap();
    let write = |id| SendWr::inline(id, SendOperation::write(start_of(&target)), b"x").signaled();
    qp.post_send((0..3).map(write)).unwrap();
    wait_until("all three are complete", || qp.query().unwrap().sends_outstanding == 0);
    assert!(matches!(left.cq.resize(2), Err(Error::QueueInUse { requested: 2, held: 3 })));
    left.cq.resize(3).unwrap();
    assert_eq!(left.cq.capacity(), 3);
    assert!(matches!(left.cq.resize(0), Err(Error::QueueCapacity { .. })));
    let mut ids = Vec::new();
    assert_eq!(left.cq.poll_with(2, |it| ids.push(it.wr_id)), 2);
    assert_eq!(left.cq.poll_with(9, |it| ids.push(it.wr_id)), 1);
    assert_eq!(ids, [0, 1, 2]);
}

/// Runs work in a host without `/proc`.
fn without_proc<T: Send>(host: &Host, work: impl FnOnce() -> T + Send) -> T {
    host.run(|| {
        unshare(CloneFlags::CLONE_NEWNS).expect("a mount namespace");
        let none = None::<&str>;
        mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none)
            .expect("private mounts");
        mount(Some("none"), "/proc", Some("tmpfs"), MsFlags::empty(), none).expect("a mount");
        assert!(!std::path::Path::new("/proc/self").exists());
        work()
    })
}

#[tier1]
fn interfaces_of_one_number_in_two_hosts_are_two_devices_without_proc() {
    let cable = Cable::with_mtu(1500);
    let number = |host: &Host| host.run(|| interface_index("eth0")).unwrap();
    assert_eq!(number(&cable.left), number(&cable.right));
    let open = || Device::open("eth0", device_config()).expect("the device opens");
    let left = without_proc(&cable.left, open);
    let right = without_proc(&cable.right, open);
    let addresses = |device: &Device| -> Vec<_> {
        device.gid_table().unwrap().into_iter().map(|row| row.gid).collect()
    };
    assert_ne!(addresses(&left), addresses(&right));
}
