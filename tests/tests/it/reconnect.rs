//! Queue pairs that connect again while packets of the connection before are on their way.

use roce_test_macros::tier1;
use std::time::Duration;

use roce_tests::fixtures::{Cable, TestDevice, connect, contents};
use roce_verbs::exchange::QpDest;
use roce_verbs::{
    AckTimeout, AddressVector, CompletionStatus, ConnectOptions, DeviceConfig, FaultConfig,
    FaultRule, PathMtu, QpAttributes, QpState, QueuePair, RecvWr, RnrTimer, SendOperation, SendWr,
};

/// How late the message of the old connection comes: both ends have connected again by then.
const OLD_DELAY: Duration = Duration::from_millis(100);
/// How late packets come that are sent behind it: the old message is the first to arrive.
const NEW_DELAY: Duration = Duration::from_millis(250);
/// Packets that are late by script, repetitions included.
const LATE_PACKETS: u64 = 16;

fn faults() -> FaultConfig {
    let (old, new) = (OLD_DELAY.as_millis(), NEW_DELAY.as_millis());
    let rules = [
        format!("delay sent packet 1 by {old}ms"),
        format!("delay sent packets 2 to {LATE_PACKETS} by {new}ms"),
    ];
    let script = rules.iter().map(|rule| FaultRule::parse(rule).expect("a rule")).collect();
    FaultConfig { script, ..FaultConfig::default() }
}

fn options() -> ConnectOptions {
    // The ACK timeout of 4 s is longer than any delay here.
    ConnectOptions { timeout: 20, path_mtu: Some(PathMtu::B1024), ..ConnectOptions::default() }
}

fn dest(qp: &QueuePair) -> QpDest {
    qp.dest(None).unwrap()
}

fn modify(qp: &QueuePair, state: QpState) {
    qp.modify(&QpAttributes { state: Some(state), ..QpAttributes::default() }).unwrap();
}

/// Connects with `modify` alone, as a port of a program for libibverbs does.
fn connect_by_hand(end: &TestDevice, qp: &QueuePair, peer: &QpDest) {
    let index = end.device.default_gid_index().unwrap().unwrap();
    let path = end.device.resolve(&AddressVector::new(index, peer.gid)).unwrap();
    qp.init(&options()).unwrap();
    let ready_to_receive = QpAttributes {
        state: Some(QpState::ReadyToReceive),
        path_mtu: Some(PathMtu::B1024),
        dest_qpn: Some(peer.qpn),
        rq_psn: Some(peer.psn),
        max_dest_rd_atomic: Some(1),
        min_rnr_timer: Some(RnrTimer::DEFAULT),
        ..QpAttributes::default()
    };
    qp.modify_with_path(&ready_to_receive, &path).unwrap();
    let ready_to_send = QpAttributes {
        state: Some(QpState::ReadyToSend),
        sq_psn: Some(qp.first_psn()),
        ack_timeout: AckTimeout::new(20),
        retry_count: Some(7),
        rnr_retry: Some(7),
        max_rd_atomic: Some(1),
        ..QpAttributes::default()
    };
    qp.modify(&ready_to_send).unwrap();
}

/// Leaves a message of the old connection on its way, connects the pair again by `reconnect`, and
/// sends another message.
fn reconnect_with_a_message_in_flight(
    reconnect: impl Fn([&TestDevice; 2], [&QueuePair; 2]),
    name: &'static str,
) {
    let cable = Cable::with_mtu(1500);
    let config = DeviceConfig { faults: Some(faults()), ..DeviceConfig::default() };
    let left = TestDevice::on(&cable.left, config);
    let right = TestDevice::on(&cable.right, DeviceConfig::default());
    let (here, there) = connect(&left, &right, &options());
    let (old, new, theirs) = (left.region(64, 1), left.region(64, 2), right.region(64, 9));
    let message = |region: &roce_verbs::MemoryRegion, id| {
        SendWr::new(id, SendOperation::send(), [region.sge(..).unwrap()]).signaled()
    };
    here.post_send([message(&old, 1)]).unwrap();
    reconnect([&left, &right], [&here, &there]);
    // What was flushed is of no interest.
    let _flushed = left.cq.poll_all();
    there.post_recv([RecvWr::new(2, [theirs.sge(..).unwrap()])]).unwrap();
    here.post_send([message(&new, 3)]).unwrap();
    let (received, sent) = (right.completion(), left.completion());
    assert_eq!((received.status, received.wr_id), (CompletionStatus::Success, 2), "{name}");
    assert_eq!((sent.status, sent.wr_id), (CompletionStatus::Success, 3), "{name}");
    assert_eq!(contents(&theirs), contents(&new), "{name}: the first message");
}

#[tier1]
fn a_message_of_the_connection_before_is_never_received_by_the_next() {
    reconnect_with_a_message_in_flight(
        |_, [here, there]| {
            [here, there].into_iter().for_each(|qp| modify(qp, QpState::Reset));
            let (mine, its) = (dest(here), dest(there));
            here.connect(&its, &options()).unwrap();
            there.connect(&mine, &options()).unwrap();
        },
        "destinations are returned after RESET",
    );
    reconnect_with_a_message_in_flight(
        |_, [here, there]| {
            modify(here, QpState::Reset);
            modify(there, QpState::Error);
            let its = dest(there);
            here.connect(&its, &options()).unwrap();
            modify(there, QpState::Reset);
            there.connect(&dest(here), &options()).unwrap();
        },
        "one end reads its destination in ERR, the other once it has connected",
    );
    reconnect_with_a_message_in_flight(
        |[left, right], [here, there]| {
            [here, there].into_iter().for_each(|qp| modify(qp, QpState::Reset));
            let (mine, its) = (dest(here), dest(there));
            connect_by_hand(left, here, &its);
            connect_by_hand(right, there, &mine);
        },
        "both ends are modified by hand",
    );
}
