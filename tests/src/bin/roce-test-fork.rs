//! Forks while a device is in use, for the test of what a child may and may not do.
//!
//! `roce-test-fork INTERFACE`; exits 0 when child and parent found what they should. The devices
//! have as many shards as `ROCE_SHARDS` says, with a queue in each.

use std::error::Error as StdError;
use std::time::Duration;

use roce_tests::fixtures::{TestDevice, connect};
use roce_verbs::cm::{self, ConnectionParameters, EventChannel, EventKind, PortSpace};
use roce_verbs::{
    CompletionQueue, CompletionStatus, ConnectOptions, Device, DeviceConfig, Error, Qpn, RecvWr,
    SendOperation, SendWr, environment,
};

fn main() -> Result<(), Box<dyn StdError>> {
    let interface = std::env::args().nth(1).ok_or("roce-test-fork INTERFACE")?;
    let shards = environment::shards()?;
    let config = || DeviceConfig { shards, ..DeviceConfig::default() };
    let end = TestDevice::of(Device::open(&interface, config())?);
    let _queues = (1..shards)
        .map(|_| end.device.create_cq(1, None))
        .collect::<Result<Vec<CompletionQueue>, _>>()?;
    let (here, there) = connect(&end, &end, &ConnectOptions::default());
    let region = end.region(64, 1);
    let exchange_one = |wr_id| -> Result<(), Box<dyn StdError>> {
        there.post_recv([RecvWr::new(wr_id, [region.sge(..32)?])])?;
        here.post_send([SendWr::new(wr_id, SendOperation::send(), [region.sge(32..)?])])?;
        let done = end.completion();
        assert_eq!((done.status, done.wr_id), (CompletionStatus::Success, wr_id));
        Ok(())
    };
    exchange_one(1)?;
    let channel = EventChannel::new(config())?;
    let listener = channel.create_id(PortSpace::TCP, 0)?;
    listener.bind("0.0.0.0:7174".parse()?)?;
    listener.listen(4)?;
    let idle = channel.create_id(PortSpace::TCP, 0)?;
    // SAFETY: the child calls nothing before it knows that it is the child, and what it
    // calls then takes no lock that a thread of the parent may hold: that is the test.
    match unsafe { libc::fork() } {
        -1 => Err(std::io::Error::last_os_error().into()),
        0 => {
            assert!(matches!(end.device.alloc_pd(), Err(Error::Forked)));
            assert!(matches!(here.query(), Err(Error::Forked)));
            assert!(there.post_recv([]).is_err());
            assert!(end.cq.poll_one().is_none());
            assert!(matches!(end.device.create_cq(1, None), Err(Error::Forked)));
            let errno = |result: Result<(), cm::Error>| result.map_err(|error| error.errno());
            assert_eq!(errno(listener.listen(4)), Err(libc::EIO));
            assert_eq!(errno(idle.bind("0.0.0.0:7175".parse()?)), Err(libc::EIO));
            assert!(idle.device().is_none() && channel.create_id(PortSpace::TCP, 0).is_err());
            assert!(channel.try_next().is_none() && channel.next(None).is_err());
            listener.destroy();
            drop((listener, idle, channel));
            // Opened anew it works, with a number space of its own.
            let end = TestDevice::of(Device::open(&interface, config())?);
            let (here, _there) = connect(&end, &end, &ConnectOptions::default());
            let region = end.region(64, 2);
            let remote = roce_verbs::RemoteAddr { addr: region.address(), rkey: region.rkey() };
            let write = SendOperation::write(remote);
            here.post_send([SendWr::new(9, write, [region.sge(32..)?]).signaled()])?;
            assert_eq!(end.completion().status, CompletionStatus::Success);
            std::process::exit(0);
        }
        child => {
            let mut status = 0;
            // SAFETY: waits for the child that was just made; the status is ours.
            unsafe { libc::waitpid(child, &mut status, 0) };
            assert_eq!(status, 0, "the child found something else than it should");
            exchange_one(2)?;
            // The child has not ended the listener.
            connects_to_itself(&channel)
        }
    }
}

/// Asks the listener of this process for a connection.
fn connects_to_itself(channel: &EventChannel) -> Result<(), Box<dyn StdError>> {
    let limit = Duration::from_secs(20);
    let id = channel.create_id(PortSpace::TCP, 0)?;
    id.resolve_addr(None, "127.0.0.1:7174".parse()?, limit)?;
    loop {
        match channel.next(Some(limit))?.ok_or("no event")?.kind {
            EventKind::AddressResolved => id.resolve_route()?,
            EventKind::RouteResolved => id.connect(&ConnectionParameters::new(Qpn::MAX))?,
            EventKind::ConnectRequest(_) => return Ok(()),
            other => return Err(format!("{other:?}").into()),
        }
    }
}
