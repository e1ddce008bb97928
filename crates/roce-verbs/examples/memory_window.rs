//! A server that opens 64 bytes of its memory to a client, which writes there and gives the right back.
//!
//! ```text
//! server$ memory_window
//! client$ memory_window 10.0.0.1
//! ```
//!
//! Both on one machine: `roce run --local 2 -- memory_window {peer?}`.

use std::error::Error;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use roce_verbs::cm::{ConnectionParameters, Event, EventChannel, EventKind, Id, PortSpace};
use roce_verbs::{
    AccessFlags, Completion, CompletionQueue, CompletionStatus, DeviceConfig, ProtectionDomain,
    QueuePair, RecvWr, RemoteAddr, SendOperation, SendWr, WindowType,
};

const PORT: u16 = 7174;
/// Bytes of the server's region that the window opens.
const OPEN: std::ops::Range<usize> = 128..192;
const PATIENCE: Duration = Duration::from_secs(10);

type Result<T = ()> = std::result::Result<T, Box<dyn Error>>;

fn main() -> Result {
    match std::env::args().nth(1) {
        None => server(),
        Some(address) => client(SocketAddr::new(address.parse::<IpAddr>()?, PORT)),
    }
}

/// One end of the connection.
struct End {
    channel: EventChannel,
    id: Id,
    pd: ProtectionDomain,
    cq: CompletionQueue,
    queue_pair: QueuePair,
}

fn server() -> Result {
    let channel = EventChannel::new(DeviceConfig::default())?;
    let listener = channel.create_id(PortSpace::TCP, 0)?;
    listener.bind(SocketAddr::new([0, 0, 0, 0].into(), PORT))?;
    listener.listen(1)?;
    let request = next(&channel)?;
    let EventKind::ConnectRequest(_) = request.kind else { return Err(unexpected(&request)) };
    let end = End::new(channel, request.id)?;
    end.id.ready_queue_pair(&end.queue_pair)?;
    // The client ends with a message that takes the right back, and no bytes.
    end.queue_pair.post_recv([RecvWr::new(1, [])])?;
    end.id.accept(&ConnectionParameters::new(end.queue_pair.number()))?;
    end.expect(|kind| matches!(kind, EventKind::Established(_)))?;

    // Peers have no right to the region itself.
    let region = end.pd.register(4096, AccessFlags::LOCAL_WRITE | AccessFlags::MW_BIND)?;
    let window = end.pd.alloc_window(WindowType::Type2B)?;
    let binding = window.binding(window.next_tag(), &region, OPEN, AccessFlags::REMOTE_WRITE)?;
    end.execute(SendWr::new(2, SendOperation::BindWindow(binding), []))?;
    println!("window {:#010x} opens bytes {OPEN:?} of the region", binding.rkey());
    let offer = [&binding.addr.to_be_bytes()[..], &binding.rkey().to_be_bytes()].concat();
    end.execute(SendWr::inline(3, SendOperation::send(), offer))?;

    let message = end.completion()?;
    let key = message.invalidated_key.ok_or("the client has not given the right back")?;
    let mut written = [0; 5];
    region.read(OPEN.start, &mut written)?;
    println!("the client has written {:?}", String::from_utf8_lossy(&written));
    println!("window {key:#010x} is shut: {}", !window.is_bound());
    end.expect(|kind| matches!(kind, EventKind::Disconnected))?;
    Ok(())
}

fn client(server: SocketAddr) -> Result {
    let channel = EventChannel::new(DeviceConfig::default())?;
    let id = channel.create_id(PortSpace::TCP, 0)?;
    id.resolve_addr(None, server, PATIENCE)?;
    let resolved = next(&channel)?;
    let EventKind::AddressResolved = resolved.kind else { return Err(unexpected(&resolved)) };
    let end = End::new(channel, id)?;
    let inbox = end.pd.register(12, AccessFlags::LOCAL_WRITE)?;
    end.queue_pair.post_recv([RecvWr::new(1, [inbox.sge(..)?])])?;
    end.id.resolve_route()?;
    end.expect(|kind| matches!(kind, EventKind::RouteResolved))?;
    end.id.connect(&ConnectionParameters::new(end.queue_pair.number()))?;
    end.expect(|kind| matches!(kind, EventKind::ConnectResponse(_)))?;
    end.id.ready_queue_pair(&end.queue_pair)?;
    end.id.establish()?;

    let offer = end.completion()?;
    assert_eq!(offer.status, CompletionStatus::Success, "the server's offer");
    let mut bytes = [0; 12];
    inbox.read(0, &mut bytes)?;
    let remote = RemoteAddr {
        addr: u64::from_be_bytes(bytes[..8].try_into()?),
        rkey: u32::from_be_bytes(bytes[8..].try_into()?),
    };
    end.execute(SendWr::inline(2, SendOperation::write(remote), b"hello"))?;
    let give_back = SendOperation::Send { immediate: None, invalidate: Some(remote.rkey) };
    end.execute(SendWr::new(3, give_back, []))?;
    // The key is of no use now, and its use ends the connection.
    end.post(SendWr::inline(4, SendOperation::write(remote), b"again"))?;
    println!("a WRITE with the old key: {:?}", end.completion()?.status);
    end.id.disconnect()?;
    Ok(())
}

impl End {
    fn new(channel: EventChannel, id: Id) -> Result<Self> {
        let device = id.device().ok_or("the address is on no device")?;
        let (pd, cq) = (device.alloc_pd()?, device.create_cq(16, None)?);
        let queue_pair = pd.queue_pair(&cq, &cq).max_inline(16).build()?;
        id.init_queue_pair(&queue_pair)?;
        Ok(Self { channel, id, pd, cq, queue_pair })
    }

    fn expect(&self, is_expected: impl FnOnce(&EventKind) -> bool) -> Result {
        let event = next(&self.channel)?;
        if is_expected(&event.kind) { Ok(()) } else { Err(unexpected(&event)) }
    }

    fn post(&self, work: SendWr) -> Result {
        Ok(self.queue_pair.post_send([work.signaled()])?)
    }

    /// Posts a request and waits until it is executed.
    fn execute(&self, work: SendWr) -> Result {
        self.post(work)?;
        match self.completion()?.status {
            CompletionStatus::Success => Ok(()),
            status => Err(format!("a request failed: {status:?}").into()),
        }
    }

    fn completion(&self) -> Result<Completion> {
        Ok(self.cq.spin_wait(PATIENCE).ok_or("no completion came")?)
    }
}

fn next(channel: &EventChannel) -> Result<Event> {
    Ok(channel.next(Some(PATIENCE))?.ok_or("no event came")?)
}

fn unexpected(event: &Event) -> Box<dyn Error> {
    format!("an unexpected event: {:?}", event.kind).into()
}
