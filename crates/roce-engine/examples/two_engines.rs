//! Two engines on the ends of a cable in memory: a WRITE and its ACK, in rounds that this program runs.

use std::collections::VecDeque;
use std::error::Error;
use std::net::IpAddr;
use std::rc::Rc;

use roce_engine::policy::{Cause, PostRuns};
use roce_engine::{
    Consumer, Engine, EngineParts, GidTable, NextHop, PathEntry, PlainRegion, Pushed, Region,
    Registration, SendQueue,
};
use roce_io::{MemoryConfig, MemoryDevice, memory_pair};
use roce_transport::{
    AccessFlags, AsyncEvent, Completion, CompletionStatus, CqHandle, Endpoint, EndpointConfig,
    Instant, PathAttributes, PdHandle, PostError, QpAttributes, QpInit, RemoteAddr, SendOperation,
    SendWr, Service, Sge,
};
use roce_wire::{MacAddr, OuterHeaders, PathMtu, Psn, Qpn};

const QPN: Qpn = Qpn::new(0x11).unwrap();
const PD: PdHandle = PdHandle(1);
/// Address and key of the region of each end.
const REGION: RemoteAddr = RemoteAddr { addr: 0x1000, rkey: 7 };
const REGION_LEN: usize = 4096;

/// What completions go to: one queue, which has room for all.
#[derive(Debug, Default)]
struct Program(VecDeque<Completion>);

impl Consumer for Program {
    type Observer = ();
    type Region = Rc<PlainRegion>;
    type Queue = ();
    type Refusal = PostError;

    fn can_bypass((): &(), _: CqHandle) -> bool {
        false
    }
    fn has_channel((): &()) -> bool {
        false
    }
    fn push(&mut self, _: CqHandle, completion: Completion, _: Instant) -> Pushed {
        self.0.push_back(completion);
        Pushed::Queued
    }
    fn drop_oldest(&mut self, _: CqHandle) -> bool {
        false
    }
    fn push_event(&mut self, event: AsyncEvent) {
        println!("{event:?}");
    }
    fn may_mistake_reports(&self) -> bool {
        false
    }
    fn publish_counters(&self, _: impl FnOnce() -> Vec<(&'static str, u64)>) {}
}

/// The send queue of the client, which posts when time begins.
struct SendQueueOfClient;

impl SendQueue for SendQueueOfClient {
    fn queue_pair(&self) -> Qpn {
        QPN
    }
    fn now(&self) -> Instant {
        Instant::default()
    }
}

type End = (Engine<Program>, Rc<PlainRegion>);

/// Makes an engine with a region, a path to its peer and a queue pair in RTS.
fn end(
    wire: MemoryDevice,
    addresses: [IpAddr; 2],
    macs: [MacAddr; 2],
) -> Result<End, Box<dyn Error>> {
    let [local, remote] = addresses;
    let mut engine = Engine::new(EngineParts {
        endpoint: Endpoint::new(EndpointConfig::default()),
        wire: Box::new(wire),
        lo: None,
        loopback: None,
        gids: GidTable::of(macs[0], &[local]),
        consumer: Program::default(),
        source_ports: Vec::new(),
    });
    let region = Rc::new(PlainRegion::new(REGION_LEN));
    let (access, iova) = (AccessFlags::ALL, REGION.addr);
    let how = Registration { pd: PD, access, iova, invalidatable: false, on_demand: false };
    engine.memory_mut().insert(Rc::clone(&region), how, || REGION.rkey);

    let entry = PathEntry::new(OuterHeaders::new(local, remote))?;
    let entry = entry.with_next_hop(Some(NextHop::Neighbour(macs[1])), macs[0]);
    let path =
        PathAttributes { handle: engine.paths_mut().insert(entry), local, remote, max_rate: None };
    engine.endpoint_mut().create_qp(QPN, QpInit::new(Service::Rc, PD, CqHandle(1)))?;
    for step in [
        QpAttributes::init(AccessFlags::REMOTE_WRITE),
        QpAttributes::ready_to_receive(path, PathMtu::B1024, QPN, Psn::ZERO),
        QpAttributes::ready_to_send(Psn::ZERO),
    ] {
        engine.endpoint_mut().modify_qp(Instant::default(), QPN, &step.with_default_limits())?;
    }
    Ok((engine, region))
}

fn main() -> Result<(), Box<dyn Error>> {
    let addresses: [IpAddr; 2] = [[10, 0, 0, 1].into(), [10, 0, 0, 2].into()];
    let macs = [1, 2].map(|last| MacAddr([2, 0, 0, 0, 0, last]));
    let (here, there) = memory_pair(&MemoryConfig::default());
    let (mut client, source) = end(here, addresses, macs)?;
    let [local, remote] = addresses;
    let (mut server, target) = end(there, [remote, local], [macs[1], macs[0]])?;

    source.write(0, b"hello")?;
    let piece = Sge { lkey: REGION.rkey, addr: REGION.addr, len: 5 };
    let remote = RemoteAddr { addr: REGION.addr + 100, ..REGION };
    let write = SendWr::new(1, SendOperation::write(remote), piece).signaled();
    let mut requests = Some(write);
    let posted = client.post(&SendQueueOfClient, &mut PostRuns::default(), |_| requests.take());
    posted.result.map_err(|(_, refused)| refused)?;

    // A post sends only; the ACK is received by those rounds in which the program polls.
    let mut rounds = 0;
    let completion = loop {
        let now = Instant::from_nanos(1_000 * rounds);
        client.run(now, Cause::Poll, None);
        server.run(now, Cause::Poll, None);
        if let Some(completion) = client.consumer_mut().0.pop_front() {
            break completion;
        }
        rounds += 1;
        assert!(rounds < 10_000, "the WRITE ends within 10 ms");
    };
    let mut written = [0; 5];
    target.read(100, &mut written)?;
    assert_eq!((completion.wr_id, completion.status), (1, CompletionStatus::Success));
    assert_eq!(&written, b"hello");
    println!("written and acknowledged within {rounds} µs");
    Ok(())
}
