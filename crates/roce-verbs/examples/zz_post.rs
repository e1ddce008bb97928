//! Instructions of posts.
use roce_netns::{Host, Link, VirtualNetwork};
use roce_verbs::{
    AccessFlags, CompletionQueue, ConnectOptions, Device, DeviceConfig, ProtectionDomain,
    QueuePair, RemoteAddr, SendOperation, SendWr,
};
use std::error::Error;
use std::time::Duration;
struct End {
    pd: ProtectionDomain,
    cq: CompletionQueue,
    queue_pair: QueuePair,
}
impl End {
    fn open(host: &Host) -> Result<Self, Box<dyn Error>> {
        let device = host.run(|| Device::open("eth0", DeviceConfig::default()))?;
        let (pd, cq) = (device.alloc_pd()?, device.create_cq(64, None)?);
        let queue_pair = pd.queue_pair(&cq, &cq).build()?;
        Ok(Self { pd, cq, queue_pair })
    }
}
#[unsafe(no_mangle)]
#[inline(never)]
fn turn_of_post(qp: &QueuePair, work: SendWr) {
    qp.post_send([work]).unwrap();
}
fn main() -> Result<(), Box<dyn Error>> {
    roce_netns::enter_user_namespace_if_needed()?;
    let network = VirtualNetwork::new()?;
    let (left, right) = (network.host("left")?, network.host("right")?);
    network.veth((&left, "eth0"), (&right, "eth0"), Link { mtu: 4200 })?;
    left.address("eth0", "10.0.0.1/24".parse()?)?;
    right.address("eth0", "10.0.0.2/24".parse()?)?;
    let (here, there) = (End::open(&left)?, End::open(&right)?);
    let options = ConnectOptions::default();
    here.queue_pair.connect(&there.queue_pair.dest(None)?, &options)?;
    there.queue_pair.connect(&here.queue_pair.dest(None)?, &options)?;
    let target = there.pd.register(4096, AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_WRITE)?;
    let remote = RemoteAddr { addr: target.address() + 100, rkey: target.rkey() };
    let count: u64 = std::env::args().nth(1).unwrap().parse()?;
    for n in 0..count {
        let write = SendWr::inline(n, SendOperation::write(remote), b"hello").signaled();
        turn_of_post(&here.queue_pair, write);
        here.cq.spin_wait(Duration::from_secs(10)).ok_or("no completion")?;
    }
    Ok(())
}
