//! Connects by connection management and leaves the connection to the end of the process.
//!
//! `roce-test-connect-and-exit ADDRESS:PORT` ends by `exit`, without dropping anything.

use std::error::Error;
use std::time::Duration;

use roce_tests::fixtures::device_config;
use roce_verbs::cm::{ConnectionParameters, EventChannel, EventKind, PortSpace};

fn main() -> Result<(), Box<dyn Error>> {
    let address = std::env::args().nth(1).ok_or("no address")?.parse()?;
    let channel = EventChannel::new(device_config())?;
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
                break;
            }
            other => return Err(format!("{other:?}").into()),
        }
    }
    std::process::exit(0)
}
