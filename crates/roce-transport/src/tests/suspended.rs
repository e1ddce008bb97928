//! Transmit queues of the driver that are full.

use super::*;

const FULL: TransmitQueue = TransmitQueue(0);
const FREE: TransmitQueue = TransmitQueue(1);

/// Paths 0 to 9 leave through [`FULL`], all others through [`FREE`].
struct ByPath;

impl PacketSealer for ByPath {
    fn begin(&mut self, _: Qpn, _: Qpn, _: PathHandle) {}
    fn seal(&mut self, _: &mut [u8], _: Option<roce_wire::PayloadCrc>) {}
    fn transmit_queue(&self, _: Qpn, path: PathHandle, _: Option<u8>) -> Option<TransmitQueue> {
        Some(if path.0 < 10 { FULL } else { FREE })
    }
}

/// An endpoint whose queue pairs 1.. send along these paths, each to an address of its own, and
/// its memory.
fn endpoint(config: &EndpointConfig, paths: &[u32]) -> (Endpoint, Bytes) {
    let mut endpoint = Endpoint::new(config.clone());
    for (number, path) in (1..).zip(paths) {
        let qpn = Qpn::new(number).unwrap();
        let init = QpInit { signal_all: true, ..QpInit::new(Service::Rc, PD, CqHandle(1)) };
        endpoint.create_qp(qpn, init).unwrap();
        let address = |last| IpAddr::V4(Ipv4Addr::new(10, 0, 0, last));
        let mut steps = to_ready_to_send(address(1), address(2 + *path as u8));
        let path_and_dest = steps[1].path.as_mut().unwrap();
        path_and_dest.handle = PathHandle(u64::from(*path));
        for asked in steps {
            endpoint.modify_qp(NOW, qpn, &asked).unwrap();
        }
    }
    (endpoint, Bytes(vec![1; 10_000]))
}

fn post_write(endpoint: &mut Endpoint, number: u32, len: u32) {
    let write = SendOperation::write(REMOTE);
    let qpn = Qpn::new(number).unwrap();
    endpoint.post_send(NOW, qpn, SendWr::new(1, write, [piece(0, len)])).unwrap();
}

/// The queue pairs that send, train by train.
fn senders(endpoint: &mut Endpoint, memory: &mut Bytes) -> Vec<u32> {
    let limits = TransmitLimits { max_packets: 1 };
    let mut buf = vec![0; 65_536];
    let mut next = || endpoint.poll_transmit_sealed(NOW, memory, limits, &mut buf, &mut ByPath);
    std::iter::from_fn(|| next().map(|sent| sent.qpn.get())).collect()
}

#[test]
fn a_full_transmit_queue_stops_its_own_queue_pairs_and_no_other() {
    let (mut endpoint, mut memory) = endpoint(&EndpointConfig::default(), &[0, 10, 1, 11]);
    endpoint.suspend_transmit(FULL);
    for number in [1, 2, 3, 4, 1] {
        post_write(&mut endpoint, number, 8);
    }
    assert_eq!(senders(&mut endpoint, &mut memory), [2, 4]);
    assert!(!endpoint.has_pending_transmit(), "what waits for the transmit queue is no work");
    // Waiting queue pairs are found again whatever happens to them meanwhile.
    endpoint.handle_timeout(NOW);
    post_write(&mut endpoint, 3, 8);
    assert_eq!(senders(&mut endpoint, &mut memory), [0; 0]);
    endpoint.resume_transmit(FREE);
    assert_eq!(senders(&mut endpoint, &mut memory), [0; 0]);
    endpoint.resume_transmit(FULL);
    assert!(endpoint.has_pending_transmit());
    assert_eq!(senders(&mut endpoint, &mut memory), [1, 3, 1, 3]);
    post_write(&mut endpoint, 1, 8);
    assert_eq!(senders(&mut endpoint, &mut memory), [1]);
}

#[test]
fn a_queue_pair_that_waits_for_its_peer_waits_for_the_transmit_queue_as_well() {
    let peer = PeerWindowConfig { initial_frames: 1, min_frames: 1, max_frames: 1 };
    let config = EndpointConfig { peer_window: peer, ..EndpointConfig::default() };
    let (mut endpoint, mut memory) = endpoint(&config, &[0, 0, 0]);
    (1..=3).for_each(|number| post_write(&mut endpoint, number, 8));
    assert_eq!(senders(&mut endpoint, &mut memory), [1]);
    endpoint.suspend_transmit(FULL);
    // The peer timeouts have opened the peer window.
    let later = NOW + core::time::Duration::from_millis(16);
    // A driver that does not call by the deadline counts as not running.
    while let Some(at) = endpoint.poll_timeout().filter(|at| *at <= later) {
        endpoint.handle_timeout(at);
    }
    assert_eq!(senders(&mut endpoint, &mut memory), [0; 0]);
    endpoint.resume_transmit(FULL);
    assert_eq!(senders(&mut endpoint, &mut memory), [2]);
}

#[test]
fn a_queue_pair_that_is_destroyed_while_it_waits_is_forgotten() {
    let (mut endpoint, mut memory) = endpoint(&EndpointConfig::default(), &[0, 1]);
    endpoint.suspend_transmit(FULL);
    (1..=2).for_each(|number| post_write(&mut endpoint, number, 8));
    assert_eq!(senders(&mut endpoint, &mut memory), [0; 0]);
    assert!(endpoint.destroy_qp(Qpn::new(1).unwrap()));
    endpoint.resume_transmit(FULL);
    assert_eq!(senders(&mut endpoint, &mut memory), [2]);
}

#[test]
fn requests_that_wait_for_a_transmit_queue_end_at_their_bound() {
    let (mut endpoint, mut memory) = endpoint(&EndpointConfig::default(), &[0, 0]);
    endpoint.suspend_transmit(FULL);
    (1..=2).for_each(|number| post_write(&mut endpoint, number, 8));
    assert_eq!(senders(&mut endpoint, &mut memory), [0; 0]);
    let mut last = NOW;
    while let Some(at) = endpoint.poll_timeout() {
        last = at;
        endpoint.handle_timeout(at);
        assert_eq!(senders(&mut endpoint, &mut memory), [0; 0]);
    }
    // Eight times 67 ms.
    assert_eq!(last, NOW + core::time::Duration::from_nanos(8 * (4096 << 14)));
    let ends = std::iter::from_fn(|| endpoint.poll_completion()).map(|(_, it)| it.status);
    assert!(ends.eq([CompletionStatus::RetryExceeded; 2]));
}
