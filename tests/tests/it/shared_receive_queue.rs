//! Shared receive queues: several queue pairs on one, over the wire.

use std::collections::BTreeMap;

use roce_test_macros::tier1;
use roce_tests::datagrams::{Q_KEY, address_handle};
use roce_tests::fixtures::{COMPLETION_TIMEOUT, Cable, TestDevice, pattern};
use roce_tests::ip::wait_until;
use roce_verbs::{
    AddressHandle, AsyncEvent, CompletionOperation, CompletionStatus, ConnectOptions, DeviceConfig,
    Error, GRH_LEN, MemoryRegion, ModifySrqError, PostError, Qpn, QueuePair, RecvWr, SendOperation,
    SendWr, Service, SharedReceiveQueue, SrqAttributes, WrError,
};

const PAIRS: usize = 4;
const SLOT: usize = 3000;

/// Queue pairs of a service, of which the second end's share a receive queue.
struct Ends {
    left: TestDevice,
    right: TestDevice,
    here: Vec<QueuePair>,
    there: Vec<QueuePair>,
    srq: SharedReceiveQueue,
    ah: AddressHandle,
    slots: MemoryRegion,
    _cable: Cable,
}

impl Ends {
    fn new(service: Service, max_wr: u32) -> Self {
        let cable = Cable::with_mtu(1500);
        let left = TestDevice::on(&cable.left, DeviceConfig::default());
        let right = TestDevice::on(&cable.right, DeviceConfig::default());
        let srq = right.pd.create_srq(max_wr, 1).unwrap();
        let make = |end: &TestDevice| end.pd.queue_pair(&end.cq, &end.cq).service(service);
        let here: Vec<_> = (0..PAIRS).map(|_| make(&left).build().unwrap()).collect();
        let there: Vec<_> = (0..PAIRS).map(|_| make(&right).srq(&srq).build().unwrap()).collect();
        let options = ConnectOptions::default();
        let ah = address_handle(&left, "10.1.0.2", None);
        for (mine, theirs) in here.iter().zip(&there) {
            if service == Service::Ud {
                mine.ready_for_datagrams(Q_KEY).unwrap();
                theirs.ready_for_datagrams(Q_KEY).unwrap();
                continue;
            }
            let dest = mine.dest(None).unwrap();
            mine.connect(&theirs.dest(None).unwrap(), &options).unwrap();
            theirs.connect(&dest, &options).unwrap();
        }
        let slots = right.region(max_wr as usize * SLOT, 0);
        Self { left, right, here, there, srq, ah, slots, _cable: cable }
    }

    /// Posts to queue pair number `index`; a datagram goes to the one with the same index.
    fn post_send(&self, index: usize, work: SendWr) {
        let qp = &self.here[index];
        match qp.service() {
            Service::Ud => qp.post_send_to([work], &self.ah, self.there[index].number(), Q_KEY),
            _ => qp.post_send([work]),
        }
        .unwrap();
    }

    fn post_receive(&self, slot: usize) {
        let place = self.slots.sge(slot * SLOT..(slot + 1) * SLOT).unwrap();
        self.srq.post_recv([RecvWr::new(slot as u64, [place])]).unwrap();
    }
}

#[tier1]
fn messages_of_four_queue_pairs_take_their_receives_from_one_queue() {
    const EACH: usize = 50;
    for service in [Service::Rc, Service::Uc, Service::Ud] {
        // Datagrams have at most a path MTU, and 40 bytes in front.
        let (header, len) = if service == Service::Ud { (GRH_LEN, 1000) } else { (0, SLOT) };
        let ends = Ends::new(service, 16);
        (0..16).for_each(|slot| ends.post_receive(slot));
        let ours = ends.left.region(PAIRS * SLOT, 0);
        let mut received: BTreeMap<Qpn, usize> = BTreeMap::new();
        for round in 0..EACH {
            for index in 0..PAIRS {
                let message = pattern(len, (round * PAIRS + index) as u8);
                ours.write(index * SLOT, &message).unwrap();
                let piece = ours.sge(index * SLOT..index * SLOT + len).unwrap();
                ends.post_send(index, SendWr::new(9, SendOperation::send(), [piece]).signaled());
            }
            for _ in 0..PAIRS {
                let done = ends.right.completion();
                assert_eq!(done.status, CompletionStatus::Success, "{done:?}");
                assert_eq!(done.operation, CompletionOperation::Recv);
                let index = ends.there.iter().position(|qp| qp.number() == done.qpn).unwrap();
                let sender = (header > 0).then(|| ends.here[index].number());
                assert_eq!((done.byte_len as usize, done.source_qpn), (header + len, sender));
                let mut bytes = vec![0; len];
                ends.slots.read(done.wr_id as usize * SLOT + header, &mut bytes).unwrap();
                assert!(bytes == pattern(len, (round * PAIRS + index) as u8), "{done:?}");
                *received.entry(done.qpn).or_default() += 1;
                ends.post_receive(done.wr_id as usize);
            }
            for _ in 0..PAIRS {
                assert_eq!(ends.left.completion().status, CompletionStatus::Success);
            }
        }
        assert_eq!(received.into_values().collect::<Vec<_>>(), [EACH; PAIRS]);
        assert_eq!(ends.srq.query().unwrap().posted, 16);
        assert_eq!(ends.srq.query().unwrap().users, PAIRS as u32);
    }
}

#[tier1]
fn the_limit_event_is_raised_once_for_each_arming() {
    let ends = Ends::new(Service::Rc, 8);
    (0..4).for_each(|slot| ends.post_receive(slot));
    let limit = SrqAttributes { limit: Some(3), ..SrqAttributes::default() };
    ends.srq.modify(&limit).unwrap();
    let reached = Some(AsyncEvent::SrqLimitReached { srq: ends.srq.handle() });
    let send = |qp: &QueuePair| {
        qp.post_send([SendWr::inline(1, SendOperation::send(), b"x")]).unwrap();
        assert_eq!(ends.right.completion().status, CompletionStatus::Success);
    };
    send(&ends.here[0]);
    assert_eq!(ends.right.device.poll_event(), None, "three are left");
    send(&ends.here[1]);
    wait_until("the event comes", || ends.right.device.poll_event() == reached);
    send(&ends.here[2]);
    assert_eq!(ends.right.device.poll_event(), None, "it is not armed");
    assert_eq!(ends.srq.query().unwrap().limit, 0);
    // Armed while fewer are posted.
    ends.srq.modify(&limit).unwrap();
    assert_eq!(ends.right.device.poll_event(), reached);
}

#[tier1]
fn a_shared_queue_is_resized_and_refuses_what_it_cannot_hold() {
    let ends = Ends::new(Service::Rc, 2);
    (0..2).for_each(|slot| ends.post_receive(slot));
    let full = ends.srq.post_recv([RecvWr::new(1, [])]).unwrap_err();
    assert!(matches!(full.source, WrError::Post(PostError::ReceiveQueueFull { capacity: 2 })));
    let resize = |max_wr| {
        ends.srq.modify(&SrqAttributes { max_wr: Some(max_wr), ..SrqAttributes::default() })
    };
    resize(3).unwrap();
    ends.srq.post_recv([RecvWr::new(1, [])]).unwrap();
    let small = resize(2).unwrap_err();
    assert!(matches!(small, Error::ModifySrq(ModifySrqError::TooSmall { asked: 2, posted: 3 })));
    let own = ends.there[0].post_recv([RecvWr::new(1, [])]).unwrap_err();
    assert!(matches!(own.source, WrError::Post(PostError::HasSharedQueue)));
    let other = TestDevice::on(&ends._cable.left, DeviceConfig::default());
    let foreign = other.pd.queue_pair(&other.cq, &other.cq).srq(&ends.srq).build();
    assert!(matches!(foreign, Err(Error::OtherDevice)));
}

#[tier1]
fn a_shared_queue_and_its_queue_pairs_may_be_dropped_in_any_order() {
    for srq_first in [true, false] {
        let ends = Ends::new(Service::Rc, 8);
        (0..8).for_each(|slot| ends.post_receive(slot));
        let Ends { left, right, here, mut there, srq, .. } = ends;
        let send = |qp: &QueuePair| {
            qp.post_send([SendWr::inline(1, SendOperation::send(), b"x").signaled()]).unwrap();
            left.completion().status
        };
        let handle = srq.handle();
        let srq = if srq_first {
            drop(srq);
            // The queue pairs keep it alive.
            assert_eq!(there[3].srq().unwrap().query().unwrap().users, PAIRS as u32);
            assert_eq!(send(&here[3]), CompletionStatus::Success);
            assert_eq!(right.completion().status, CompletionStatus::Success);
            None
        } else {
            Some(srq)
        };
        there.pop();
        assert_eq!(there[0].srq().unwrap().query().unwrap().users, PAIRS as u32 - 1);
        drop(there);
        if let Some(srq) = srq {
            assert_eq!(srq.query().unwrap().users, 0);
        }
        // The name is free again. Shards take turns to name a queue.
        let shards = roce_verbs::environment::shards().unwrap();
        let next: Vec<_> = (0..shards).map(|_| right.pd.create_srq(1, 1).unwrap()).collect();
        assert!(next.iter().any(|srq| srq.handle() == handle), "{handle:?} is not free");
    }
}

#[tier1]
fn a_queue_pair_in_error_reports_that_it_takes_no_more_receives() {
    let ends = Ends::new(Service::Rc, 4);
    ends.post_receive(0);
    let to_error = roce_verbs::QpAttributes {
        state: Some(roce_verbs::QpState::Error),
        ..roce_verbs::QpAttributes::default()
    };
    ends.there[0].modify(&to_error).unwrap();
    let last = Some(AsyncEvent::LastWqeReached { qpn: ends.there[0].number() });
    assert_eq!(ends.right.device.poll_event(), last);
    // Its receives are the others', and are not flushed.
    assert_eq!(ends.srq.query().unwrap().posted, 1);
    ends.here[1].post_send([SendWr::inline(1, SendOperation::send(), b"x")]).unwrap();
    let done = ends.right.cq.spin_wait(COMPLETION_TIMEOUT).unwrap();
    assert_eq!((done.status, done.qpn), (CompletionStatus::Success, ends.there[1].number()));
}
