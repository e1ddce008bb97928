//! Two endpoints side by side, packets carried by hand: every operation once, to know that
//! the parts fit together. The laws are in `tests/`.

use core::net::{IpAddr, Ipv4Addr};

use roce_wire::{Frame, Operation, OuterHeaders, PathMtu, Psn, Qpn, RnrTimer, UdpChecksum, seal};

use crate::*;

const QPN: Qpn = Qpn::GSI;
const PD: PdHandle = PdHandle(1);
const KEY: u32 = 7;

/// One region that everybody may use, at address 0 under [`KEY`].
#[derive(Debug)]
struct Bytes(Vec<u8>);

impl Memory for Bytes {
    type Grant = usize;

    fn check(
        &self,
        _pd: PdHandle,
        key: u32,
        address: u64,
        len: u64,
        _access: Access,
    ) -> Result<usize, MemoryFault> {
        let end = address.checked_add(len).ok_or(MemoryFault::OutOfBounds)?;
        match key {
            KEY if end <= self.0.len() as u64 => Ok(address as usize),
            KEY => Err(MemoryFault::OutOfBounds),
            _ => Err(MemoryFault::UnknownKey),
        }
    }
    fn write(&mut self, grant: usize, offset: u64, bytes: &[u8]) {
        self.0[grant + offset as usize..][..bytes.len()].copy_from_slice(bytes);
    }
    fn read(&self, grant: usize, offset: u64, into: &mut [u8]) {
        into.copy_from_slice(&self.0[grant + offset as usize..][..into.len()]);
    }
    fn atomic(&mut self, grant: usize, change: AtomicChange) -> u64 {
        let word = self.0[grant..].first_chunk_mut().unwrap();
        let original = u64::from_ne_bytes(*word);
        *word = change.apply(original).to_ne_bytes();
        original
    }
    fn invalidate(&mut self, _pd: PdHandle, key: u32) -> Result<(), MemoryFault> {
        if key == 99 { Ok(()) } else { Err(MemoryFault::NotInvalidatable) }
    }
}

struct Side {
    endpoint: Endpoint,
    memory: Bytes,
    address: IpAddr,
}

/// Both sides connected, their memories filled with 1 and 2.
fn pair() -> [Side; 2] {
    let address = |last| IpAddr::V4(Ipv4Addr::new(10, 0, 0, last));
    [1, 2].map(|it| {
        let mut endpoint = Endpoint::new(EndpointConfig::default());
        let init = QpInit {
            pd: PD,
            send_cq: CqHandle(1),
            recv_cq: CqHandle(2),
            capacities: Capacities::default(),
            signal_all: false,
            service: Service::Rc,
        };
        endpoint.create_qp(QPN, init).unwrap();
        let now = Instant::default();
        for asked in to_ready_to_send(address(it), address(3 - it)) {
            endpoint.modify_qp(now, QPN, &asked).unwrap();
        }
        Side { endpoint, memory: Bytes(vec![it; 10_000]), address: address(it) }
    })
}

fn to_ready_to_send(local: IpAddr, remote: IpAddr) -> [QpAttributes; 3] {
    let psn = Psn::new(0xff_fffe);
    [
        QpAttributes {
            state: Some(QpState::Init),
            pkey_index: Some(0),
            port: Some(1),
            access: Some(AccessFlags::ALL),
            ..QpAttributes::default()
        },
        QpAttributes {
            state: Some(QpState::ReadyToReceive),
            path: Some(PathAttributes { handle: PathHandle(5), local, remote }),
            path_mtu: Some(PathMtu::B256),
            dest_qpn: Some(QPN),
            rq_psn: psn,
            max_dest_rd_atomic: Some(2),
            min_rnr_timer: Some(RnrTimer::DEFAULT),
            ..QpAttributes::default()
        },
        QpAttributes {
            state: Some(QpState::ReadyToSend),
            sq_psn: psn,
            max_rd_atomic: Some(2),
            ack_timeout: AckTimeout::new(14),
            retry_count: Some(7),
            rnr_retry: Some(7),
            ..QpAttributes::default()
        },
    ]
}

/// Carries packets until nobody has any; returns what each was.
fn shuttle(sides: &mut [Side; 2]) -> Vec<Operation> {
    let mut carried = vec![];
    let mut buf = vec![0; 65_536];
    let (now, limits) = (Instant::default(), TransmitLimits { max_packets: 64 });
    for _round in 0..1000 {
        let before = carried.len();
        for from in [0, 1] {
            let [from, to] = sides.get_disjoint_mut([from, 1 - from]).unwrap();
            let outer = OuterHeaders::new(from.address, to.address);
            let memory = &mut from.memory;
            let room = &mut buf[outer.len()..];
            let Some(train) = from.endpoint.poll_transmit(now, memory, limits, room) else {
                continue;
            };
            assert_eq!((train.qpn, train.path), (QPN, PathHandle(5)));
            let frame = &mut buf[..outer.len() + train.len];
            seal(&outer, 0, frame, train.segment_len, UdpChecksum::Zero).unwrap();
            for packet in Frame::parse(frame).unwrap().packets(Some(train.segment_len)) {
                let packet = packet.unwrap().verify_icrc().unwrap();
                carried.push(packet.headers().bth.opcode.shape().operation);
                to.endpoint.handle_packet(now, &packet, &mut to.memory);
            }
        }
        if carried.len() == before {
            return carried;
        }
    }
    panic!("they never come to an end");
}

fn piece(address: u64, len: u32) -> Sge {
    Sge { key: KEY, address, len }
}

/// Posts on the first side, carries, and returns the one completion that must come of it.
fn carry_out(sides: &mut [Side; 2], operation: SendOperation, data: Sge) -> Completion {
    let work = SendWork::new(9, operation, data).signaled();
    sides[0].endpoint.post_send(Instant::default(), QPN, work).unwrap();
    shuttle(sides);
    let (cq, completion) = sides[0].endpoint.poll_completion().unwrap();
    assert_eq!((cq, completion.work_id), (CqHandle(1), 9));
    assert_eq!(completion.status, CompletionStatus::Success);
    assert_eq!(sides[0].endpoint.poll_completion(), None);
    completion
}

fn post_receive(side: &mut Side, place: Sge) {
    side.endpoint.post_recv(Instant::default(), QPN, RecvWork::new(4, place)).unwrap();
}

const REMOTE: RemoteSpan = RemoteSpan { address: 2000, key: KEY };

#[test]
fn a_send_arrives_with_what_it_carries() {
    let cases = [
        SendOperation::send(),
        SendOperation::Send { immediate: Some([1, 2, 3, 4]), invalidate: None },
        SendOperation::Send { immediate: None, invalidate: Some(99) },
    ];
    for operation in cases {
        let SendOperation::Send { immediate, invalidate } = operation else { panic!() };
        let mut sides = pair();
        post_receive(&mut sides[1], piece(5000, 1000));
        carry_out(&mut sides, operation, piece(0, 600));
        let (cq, received) = sides[1].endpoint.poll_completion().unwrap();
        assert_eq!((cq, received.work_id, received.byte_len), (CqHandle(2), 4, 600));
        assert_eq!((received.immediate, received.invalidated_key), (immediate, invalidate));
        assert_eq!(sides[1].memory.0[5000..5601], [&[1; 600][..], &[2]].concat());
    }
}

#[test]
fn a_write_lands_where_it_says() {
    for immediate in [None, Some([1, 2, 3, 4])] {
        let mut sides = pair();
        post_receive(&mut sides[1], piece(0, 0));
        carry_out(&mut sides, SendOperation::Write { remote: REMOTE, immediate }, piece(0, 700));
        assert_eq!(sides[1].memory.0[1999..2701], [&[2][..], &[1; 700], &[2]].concat());
        let received = sides[1].endpoint.poll_completion();
        assert_eq!(received.and_then(|(_, it)| it.immediate), immediate);
    }
}

#[test]
fn a_read_brings_the_bytes() {
    let mut sides = pair();
    let completion = carry_out(&mut sides, SendOperation::read(REMOTE), piece(100, 700));
    assert_eq!(completion.byte_len, 700);
    assert_eq!(sides[0].memory.0[99..801], [&[1][..], &[2; 700], &[1]].concat());
}

#[test]
fn atomics_change_the_word_and_bring_what_it_held() {
    let mut sides = pair();
    let word = u64::from_ne_bytes([2; 8]);
    carry_out(&mut sides, SendOperation::FetchAdd { remote: REMOTE, add: 1 }, piece(0, 8));
    assert_eq!(sides[0].memory.0[..8], word.to_ne_bytes());
    let swap = SendOperation::CompareSwap { remote: REMOTE, compare: word + 1, swap: 5 };
    carry_out(&mut sides, swap, piece(8, 8));
    assert_eq!(sides[0].memory.0[8..16], (word + 1).to_ne_bytes());
    assert_eq!(sides[1].memory.0[2000..2008], 5u64.to_ne_bytes());
}

#[test]
fn a_key_of_our_own_is_invalidated_behind_what_came_before() {
    let mut sides = pair();
    let write = SendWork::new(1, SendOperation::write(REMOTE), piece(0, 10)).signaled();
    let invalidate = SendWork::new(2, SendOperation::LocalInvalidate { key: 99 }, []).signaled();
    let behind = SendWork::new(3, SendOperation::write(REMOTE), piece(0, 10)).signaled();
    for work in [write, invalidate, behind] {
        sides[0].endpoint.post_send(Instant::default(), QPN, work).unwrap();
    }
    shuttle(&mut sides);
    let done = core::iter::from_fn(|| sides[0].endpoint.poll_completion());
    let done: Vec<_> = done.map(|(_, it)| (it.work_id, it.status)).collect();
    assert_eq!(done, [1, 2, 3].map(|id| (id, CompletionStatus::Success)));
}

#[test]
fn a_batch_of_messages_is_acknowledged_once() {
    let mut sides = pair();
    for _ in 0..8 {
        let work = SendWork::new(1, SendOperation::write(REMOTE), piece(0, 10)).signaled();
        sides[0].endpoint.post_send(Instant::default(), QPN, work).unwrap();
    }
    let carried = shuttle(&mut sides);
    assert_eq!(carried.iter().filter(|it| **it == Operation::Acknowledge).count(), 1);
    assert_eq!(sides[1].endpoint.counters().ack_deferred, 7);
}

/// Lets the first side write a train and hands its packets over in the order given.
fn hand_over(sides: &mut [Side; 2], order: &[usize]) {
    let [from, to] = sides.get_disjoint_mut([0, 1]).unwrap();
    let mut buf = vec![0; 65_536];
    let outer = OuterHeaders::new(from.address, to.address);
    let (now, limits) = (Instant::default(), TransmitLimits { max_packets: 64 });
    let room = &mut buf[outer.len()..];
    let train = from.endpoint.poll_transmit(now, &mut from.memory, limits, room).unwrap();
    let frame = &mut buf[..outer.len() + train.len];
    seal(&outer, 0, frame, train.segment_len, UdpChecksum::Zero).unwrap();
    let frame = Frame::parse(frame).unwrap();
    let packets: Vec<_> = frame.packets(Some(train.segment_len)).collect();
    for index in order {
        let packet = packets[*index].unwrap().verify_icrc().unwrap();
        to.endpoint.handle_packet(now, &packet, &mut to.memory);
    }
}

/// Posts WRITEs of ten bytes, one packet each.
fn post_writes(sides: &mut [Side; 2], count: usize) {
    for _ in 0..count {
        let work = SendWork::new(1, SendOperation::write(REMOTE), piece(0, 10)).signaled();
        sides[0].endpoint.post_send(Instant::default(), QPN, work).unwrap();
    }
}

#[test]
fn packets_that_overtake_each_other_within_a_batch_and_come_again_draw_no_nak() {
    let mut sides = pair();
    post_writes(&mut sides, 3);
    hand_over(&mut sides, &[1, 0, 1, 2]);
    shuttle(&mut sides);
    assert_eq!(sides[0].endpoint.counters().rcvd_seq_err, 0);
    let done = core::iter::from_fn(|| sides[0].endpoint.poll_completion()).count();
    assert_eq!(done, 3);
}

#[test]
fn a_packet_dropped_because_it_came_early_is_asked_for_without_repeating_those_before() {
    let mut sides = pair();
    post_writes(&mut sides, 3);
    hand_over(&mut sides, &[1, 0]);
    shuttle(&mut sides);
    assert_eq!(sides[0].endpoint.counters().rcvd_seq_err, 1);
    assert_eq!(sides[1].endpoint.counters().duplicate_request, 0);
    let done = core::iter::from_fn(|| sides[0].endpoint.poll_completion()).count();
    assert_eq!(done, 3);
}
