//! A message of each service, checked, between devices of any back ends.

use roce_netns::Host;
use roce_verbs::{
    Backend, Completion, CompletionStatus, ConnectOptions, DeviceConfig, MemoryRegion, QueuePair,
    RecvWr, RemoteAddr, SendOperation, SendWr, Service, exchange,
};

use crate::datagrams::{DatagramEnd, Q_KEY, address_handle};
use crate::echo::Echo;
use crate::fixtures::{TestDevice, connect, contents, every_right, pattern};

/// Bytes of the longest message of a reliable connection.
const LEN: usize = 300_000;

/// The configuration of a device with a back end.
pub fn by(backend: Backend) -> DeviceConfig {
    DeviceConfig { backend, ..DeviceConfig::default() }
}

/// Returns a completion that is a success.
///
/// # Panics
/// When it is not.
pub fn succeeded(completion: Completion) -> Completion {
    assert_eq!(completion.status, CompletionStatus::Success, "{completion:?}");
    completion
}

/// Options of a connection between addresses of this row.
pub fn over(gid: u8) -> ConnectOptions {
    ConnectOptions { gid_index: Some(gid), ..ConnectOptions::default() }
}

/// A SEND, a WRITE, a READ and an atomic of a reliable connection.
///
/// # Panics
/// When one fails, or does something else.
pub fn reliable(left: &TestDevice, right: &TestDevice, options: &ConnectOptions) {
    let (here, there) = connect(left, right, options);
    let (ours, theirs) = (left.region(LEN, 1), right.region(LEN, 2));
    let remote = RemoteAddr { addr: theirs.address(), rkey: theirs.rkey() };
    for len in [1, 4096, LEN] {
        let data = || [ours.sge(..len).unwrap()];
        for (number, operation) in
            [SendOperation::send(), SendOperation::write(remote), SendOperation::read(remote)]
                .into_iter()
                .enumerate()
        {
            let message = pattern(len, number as u8 + 3);
            let is_read = number == 2;
            let (from, to) = if is_read { (&theirs, &ours) } else { (&ours, &theirs) };
            from.write(0, &message).unwrap();
            to.write(0, &vec![0; len]).unwrap();
            if number == 0 {
                there.post_recv([RecvWr::new(1, [theirs.sge(..len).unwrap()])]).unwrap();
            }
            here.post_send([SendWr::new(2, operation, data()).signaled()]).unwrap();
            succeeded(left.completion());
            if number == 0 {
                succeeded(right.completion());
            }
            assert!(contents(to)[..len] == message, "operation {number} of {len} bytes");
        }
    }
    theirs.write(0, &40_u64.to_ne_bytes()).unwrap();
    let add = SendOperation::FetchAdd { remote, add: 2 };
    here.post_send([SendWr::new(3, add, [ours.sge(..8).unwrap()]).signaled()]).unwrap();
    succeeded(left.completion());
    assert_eq!((ours.load_u64(0).unwrap(), theirs.load_u64(0).unwrap()), (40, 42));
}

/// A SEND of an unreliable connection.
///
/// # Panics
/// When it fails.
pub fn unreliable(left: &TestDevice, right: &TestDevice, options: &ConnectOptions) {
    let [here, there] = [left, right]
        .map(|end| end.pd.queue_pair(&end.cq, &end.cq).service(Service::Uc).build().unwrap());
    let dests = [&here, &there].map(|qp| qp.dest(options.gid_index).unwrap());
    here.connect(&dests[1], options).unwrap();
    there.connect(&dests[0], options).unwrap();
    let (ours, theirs) = (left.region(50_000, 5), right.region(50_000, 6));
    there.post_recv([RecvWr::new(1, [theirs.sge(..).unwrap()])]).unwrap();
    let work = SendWr::new(2, SendOperation::send(), [ours.sge(..).unwrap()]);
    here.post_send([work.signaled()]).unwrap();
    succeeded(left.completion());
    succeeded(right.completion());
    assert!(contents(&theirs) == contents(&ours));
}

/// A datagram to this address of the right end.
///
/// # Panics
/// When it does not arrive, or not from where it was sent.
pub fn datagrams(left: &TestDevice, right: &TestDevice, address: &str) {
    let (here, there) = (DatagramEnd::new(left, 1), DatagramEnd::new(right, 1));
    there.post_receive(0);
    let ah = address_handle(left, address, None);
    let work = SendWr::inline(7, SendOperation::send(), b"a datagram");
    here.qp.post_send_to([work], &ah, there.qp.number(), Q_KEY).unwrap();
    let received = succeeded(right.completion());
    assert_eq!(there.contents(0, &received), b"a datagram");
    let back = right.pd.create_ah_from_completion(&received, &there.grh(0)).unwrap();
    assert_eq!(back.local().to_string(), address);
}

/// A connection to an echo server.
#[derive(Debug)]
pub struct Caller {
    qp: QueuePair,
    region: MemoryRegion,
}

/// Bytes of a message to an echo server.
const MESSAGE: usize = 20_000;

impl Caller {
    /// Connects a device of a host to a server.
    ///
    /// # Panics
    /// When that fails.
    pub fn connect(host: &Host, end: &TestDevice, echo: &Echo) -> Self {
        let qp = end.queue_pair();
        let mine = qp.dest(None).unwrap();
        let theirs = host.run(|| exchange::connect(echo.address, &mine)).unwrap();
        qp.connect(&theirs, &ConnectOptions::default()).unwrap();
        let region = end.pd.register(2 * MESSAGE, every_right()).unwrap();
        Self { qp, region }
    }

    /// Sends a message, and waits for the echo and the ACK.
    ///
    /// # Panics
    /// When one fails, or differs.
    pub fn call(&self, end: &TestDevice, seed: u8) {
        self.region.write(0, &pattern(MESSAGE, seed)).unwrap();
        self.region.write(MESSAGE, &pattern(MESSAGE, !seed)).unwrap();
        self.qp.post_recv([RecvWr::new(1, [self.region.sge(MESSAGE..).unwrap()])]).unwrap();
        let work = SendWr::new(2, SendOperation::send(), [self.region.sge(..MESSAGE).unwrap()]);
        self.qp.post_send([work.signaled()]).unwrap();
        succeeded(end.completion());
        succeeded(end.completion());
        assert!(contents(&self.region)[MESSAGE..] == pattern(MESSAGE, seed), "the echo differs");
    }
}
