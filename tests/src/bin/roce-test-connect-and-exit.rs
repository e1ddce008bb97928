//! Connects by connection management and leaves the connections to the end of the process.
//!
//! `roce-test-connect-and-exit ADDRESS:PORT COUNT` makes so many connections, one after the other, and ends by
//! `exit`, without dropping anything.

use std::error::Error;
use std::net::SocketAddr;
use std::time::Duration;

use roce_tests::fixtures::device_config;
use roce_verbs::QueuePair;
use roce_verbs::cm::{ConnectionParameters, EventChannel, EventKind, Id, PortSpace};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let address = arguments.next().ok_or("no address")?.parse()?;
    let count: usize = arguments.next().ok_or("no count")?.parse()?;
    let channel = EventChannel::new(device_config())?;
    let made: Result<Vec<_>, _> = (0..count).map(|_| connect(&channel, address)).collect();
    let _kept = made?;
    std::process::exit(0)
}

/// Makes a connection.
fn connect(
    channel: &EventChannel,
    address: SocketAddr,
) -> Result<(Id, Option<QueuePair>), Box<dyn Error>> {
    let id = channel.create_id(PortSpace::TCP, 0)?;
    id.resolve_addr(None, address, Duration::from_secs(4))?;
    let mut queue_pair = None;
    loop {
        let event = channel.next(Some(Duration::from_secs(20)))?.ok_or("no event")?;
        match event.kind {
            EventKind::AddressResolved => id.resolve_route()?,
            EventKind::RouteResolved => {
                let device = id.device().ok_or("no device")?;
                let cq = device.create_cq(4, None)?;
                let made = device.alloc_pd()?.queue_pair(&cq, &cq).build()?;
                id.init_queue_pair(&made)?;
                id.connect(&ConnectionParameters::new(made.number()))?;
                queue_pair = Some(made);
            }
            EventKind::ConnectResponse(_) => {
                id.ready_queue_pair(queue_pair.as_ref().ok_or("no queue pair")?)?;
                id.establish()?;
                return Ok((id, queue_pair));
            }
            other => return Err(format!("{other:?}").into()),
        }
    }
}
