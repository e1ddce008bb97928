//! One host writes into the memory of another, whose program only looks at the bytes.
//!
//! Both hosts are private ones of this machine, joined by a cable: `cargo run -p roce-verbs --example rdma_write`.

use std::error::Error;
use std::thread;
use std::time::{Duration, Instant};

use roce_netns::{Host, Link, VirtualNetwork};
use roce_verbs::{
    AccessFlags, CompletionQueue, CompletionStatus, ConnectOptions, Device, DeviceConfig,
    ProtectionDomain, QueuePair, RemoteAddr, SendOperation, SendWr,
};

const PATIENCE: Duration = Duration::from_secs(10);

/// What a host has to have for a connection.
struct End {
    pd: ProtectionDomain,
    cq: CompletionQueue,
    queue_pair: QueuePair,
}

impl End {
    fn open(host: &Host) -> Result<Self, Box<dyn Error>> {
        let device = host.run(|| Device::open("eth0", DeviceConfig::default()))?;
        let (pd, cq) = (device.alloc_pd()?, device.create_cq(16, None)?);
        let queue_pair = pd.queue_pair(&cq, &cq).build()?;
        Ok(Self { pd, cq, queue_pair })
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    // Before any thread exists: without root, namespaces need one of users.
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

    let source = here.pd.register(4096, AccessFlags::empty())?;
    let target = there.pd.register(4096, AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_WRITE)?;
    // Two programs would tell each other address and key: by a SEND, or over TCP.
    let remote = RemoteAddr { addr: target.address() + 100, rkey: target.rkey() };
    source.write(0, b"hello")?;
    let write = SendWr::new(1, SendOperation::write(remote), [source.sge(..5)?]).signaled();
    here.queue_pair.post_send([write])?;
    let completion = here.cq.spin_wait(PATIENCE).ok_or("no completion")?;
    assert_eq!((completion.wr_id, completion.status), (1, CompletionStatus::Success));

    let (mut written, until) = ([0; 5], Instant::now() + PATIENCE);
    while written != *b"hello" && Instant::now() < until {
        thread::sleep(Duration::from_millis(1));
        target.read(100, &mut written)?;
    }
    assert_eq!(written, *b"hello");
    println!("written: {}", String::from_utf8_lossy(&written));
    Ok(())
}
