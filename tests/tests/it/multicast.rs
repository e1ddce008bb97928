//! Multicast: datagrams to groups, between hosts, processes and queue pairs.

use std::net::IpAddr;

use roce_test_macros::tier1;
use roce_tests::datagrams::{DatagramEnd, Q_KEY, address_handle};
use roce_tests::fixtures::{Cable, TestDevice, pattern};
use roce_tests::ip::wait_until;
use roce_tests::verbs_program::VerbsProgram;
use roce_verbs::{
    AddressHandle, CompletionOperation, CompletionStatus, DeviceConfig, Error, Qpn, SendOperation,
    SendWr,
};

const GROUPS: [&str; 2] = ["239.1.2.3", "ff15::1:2"];

/// Sends a datagram of 1000 bytes to a group.
fn send(end: &TestDevice, from: &DatagramEnd, members: &AddressHandle, seed: u8) {
    let piece = from.region.sge(..1000).unwrap();
    from.region.write(0, &pattern(1000, seed)).unwrap();
    let work = SendWr::new(9, SendOperation::send(), [piece]).signaled();
    from.qp.post_send_to([work], members, Qpn::MULTICAST, Q_KEY).unwrap();
    let sent = loop {
        // A sender that is a member may receive its own datagram first.
        let completion = end.completion();
        if completion.operation == CompletionOperation::Send {
            break completion;
        }
    };
    assert_eq!(sent.status, CompletionStatus::Success);
}

/// Waits for one datagram of `send`, and returns the queue pair that received it.
fn receive(end: &TestDevice, members: &[&DatagramEnd], seed: u8) -> Qpn {
    let received = end.completion();
    assert_eq!(received.status, CompletionStatus::Success, "{received:?}");
    assert_eq!(received.operation, CompletionOperation::Recv, "{received:?}");
    let member = members.iter().find(|it| it.qp.number() == received.qpn).expect("a member");
    assert!(member.contents(received.wr_id as usize, &received) == pattern(1000, seed));
    received.qpn
}

/// Two devices joined by a cable.
fn ends(cable: &Cable) -> [TestDevice; 2] {
    [&cable.left, &cable.right].map(|host| TestDevice::on(host, DeviceConfig::default()))
}

#[tier1]
fn each_member_on_each_host_receives_one_copy_and_others_none() {
    let cable = Cable::with_mtu(1500);
    let [left, right] = ends(&cable);
    // A second context of the left host shares its engine; its queue is apart.
    let beside = TestDevice::on(&cable.left, DeviceConfig::default());
    let sender = DatagramEnd::new(&left, 4);
    let local = DatagramEnd::new(&beside, 4);
    let remote = [0; 3].map(|_| DatagramEnd::new(&right, 4));
    for (seed, group) in (1..).zip(GROUPS) {
        let address: IpAddr = group.parse().unwrap();
        local.qp.attach(address).unwrap();
        // The third one is no member.
        remote[..2].iter().for_each(|it| it.qp.attach(address).unwrap());
        local.post_receive(0);
        remote.iter().for_each(|it| it.post_receive(0));
        send(&left, &sender, &address_handle(&left, group, None), seed);
        assert_eq!(receive(&beside, &[&local], seed), local.qp.number());
        let members: Vec<&DatagramEnd> = remote.iter().collect();
        let mut seen = [(); 2].map(|()| receive(&right, &members, seed));
        seen.sort_unstable();
        let mut expected = [&remote[0], &remote[1]].map(|it| it.qp.number());
        expected.sort_unstable();
        assert_eq!(seen, expected);
    }
    // A second copy would have found no receive.
    for end in [&left, &right] {
        assert_eq!(end.device.counter("out_of_buffer").unwrap(), 0);
    }
}

#[tier1]
fn a_sender_that_is_a_member_receives_its_own_datagram_once() {
    let cable = Cable::with_mtu(1500);
    let [left, _right] = ends(&cable);
    let only = DatagramEnd::new(&left, 4);
    only.qp.attach("239.1.2.3".parse().unwrap()).unwrap();
    only.post_receive(1);
    let members = address_handle(&left, "239.1.2.3", None);
    let work = SendWr::inline(9, SendOperation::send(), b"echo").signaled();
    only.qp.post_send_to([work], &members, Qpn::MULTICAST, Q_KEY).unwrap();
    let mut seen = [left.completion(), left.completion()];
    seen.sort_by_key(|it| it.operation.code());
    assert!(seen.iter().all(|it| it.status == CompletionStatus::Success), "{seen:?}");
    assert_eq!(only.contents(1, &seen[1]), b"echo");
    // The answer goes to the sender, from an address of this host: the group is none.
    let answer = left.pd.create_ah_from_completion(&seen[1], &only.grh(1)).unwrap();
    assert_eq!([answer.local(), answer.remote()].map(|it| it.to_string()), ["10.1.0.1"; 2]);
    assert_eq!(left.device.counter("out_of_buffer").unwrap(), 0);
}

#[tier1]
fn a_membership_ends_with_detach_with_the_queue_pair_and_in_the_kernel() {
    let cable = Cable::with_mtu(1500);
    let [left, right] = ends(&cable);
    let sender = DatagramEnd::new(&left, 4);
    let group: IpAddr = "239.1.2.3".parse().unwrap();
    let members = address_handle(&left, "239.1.2.3", None);
    let is_joined = || {
        let mut list = std::process::Command::new("ip");
        list.args(["maddr", "show", "dev", "eth0"]);
        let output = cable.right.run(|| list.output()).unwrap();
        String::from_utf8_lossy(&output.stdout).contains("239.1.2.3")
    };
    let (first, second) = (DatagramEnd::new(&right, 4), DatagramEnd::new(&right, 4));
    assert!(!is_joined());
    first.qp.attach(group).unwrap();
    first.qp.attach(group).unwrap();
    second.qp.attach(group).unwrap();
    assert!(is_joined() && first.qp.is_attached());
    first.qp.detach(group).unwrap();
    assert!(matches!(first.qp.detach(group), Err(Error::NotAttached { .. })));
    assert!(is_joined(), "the second queue pair is a member");
    first.post_receive(0);
    second.post_receive(0);
    send(&left, &sender, &members, 5);
    assert_eq!(receive(&right, &[&first, &second], 5), second.qp.number());
    drop(second);
    wait_until("the kernel has left the group", || !is_joined());
    // The filter of the socket has no multicast any more: nothing is counted.
    send(&left, &sender, &members, 6);
    first.qp.attach(group).unwrap();
    send(&left, &sender, &members, 7);
    assert_eq!(receive(&right, &[&first], 7), first.qp.number());
    let count = |name| right.device.counter(name).unwrap();
    assert_eq!((count("unknown_qp"), count("out_of_buffer")), (0, 0));
}

#[tier1]
fn attributes_of_each_member_decide_alone() {
    let cable = Cable::with_mtu(1500);
    let [left, right] = ends(&cable);
    let sender = DatagramEnd::new(&left, 4);
    let builder = || right.pd.queue_pair(&right.cq, &right.cq).service(roce_verbs::Service::Ud);
    let other_key = DatagramEnd::of(&right, 4, builder(), Q_KEY ^ 1);
    let (without_receive, taker) = (DatagramEnd::new(&right, 4), DatagramEnd::new(&right, 4));
    for member in [&other_key, &without_receive, &taker] {
        member.qp.attach("239.1.2.3".parse().unwrap()).unwrap();
    }
    other_key.post_receive(0);
    taker.post_receive(0);
    send(&left, &sender, &address_handle(&left, "239.1.2.3", None), 8);
    assert_eq!(receive(&right, &[&taker], 8), taker.qp.number());
    let count = |name| right.device.counter(name).unwrap();
    assert_eq!((count("bad_qkey"), count("out_of_buffer")), (1, 1));
}

#[tier1]
fn c_programs_attach_and_detach() {
    VerbsProgram::linked("multicast").run_scenarios("");
}
