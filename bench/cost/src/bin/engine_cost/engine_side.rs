//! A side as it ships: the engine of a device, which runs rounds on an interface.

use std::collections::VecDeque;
use std::io;
use std::os::fd::BorrowedFd;
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use roce_cost::{ADDRESSES, Bytes, Drive, NUMBERS, Wire, bring_up};
use roce_engine::policy::Cause;
use roce_engine::{
    Consumer, Engine, EngineParts, GidTable, NextHop, PathEntry, PlainRegion, Pushed, Region,
    Registration,
};
use roce_io::{DeviceCapabilities, FrameDevice, RxFrame, TxFrame};
use roce_simnet::PD;
use roce_transport::{
    AccessFlags, AsyncEvent, Completion, CompletionStatus, CqHandle, Endpoint, EndpointConfig,
    Instant, PathAttributes, PostError, RecvWr, SendWr,
};
use roce_wire::{MacAddr, OuterHeaders, PathMtu, Qpn};

/// An engine with one connected queue pair, whose program polls.
#[derive(Debug)]
pub(crate) struct EngineSide {
    engine: Engine<Program>,
    memory: Rc<PlainRegion>,
    len: usize,
    qpn: Qpn,
    interface: Interface,
}

/// What completions go to.
#[derive(Debug, Default)]
struct Program {
    completions: VecDeque<Completion>,
}

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
        self.completions.push_back(completion);
        Pushed::Queued
    }

    fn drop_oldest(&mut self, _: CqHandle) -> bool {
        false
    }

    fn push_event(&mut self, _: AsyncEvent) {}

    fn may_mistake_reports(&self) -> bool {
        false
    }

    fn publish_counters(&self, _: impl FnOnce() -> Vec<(&'static str, u64)>) {}
}

/// The interface of a side: frames that have arrived, and those to send.
#[derive(Clone, Debug, Default)]
struct Interface(Arc<Mutex<Wires>>);

#[derive(Debug, Default)]
struct Wires {
    incoming: Wire,
    outgoing: Wire,
    sent_packets: u64,
}

impl Interface {
    fn wires(&self) -> MutexGuard<'_, Wires> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl FrameDevice for Interface {
    fn receive(
        &mut self,
        _budget: usize,
        on_frame: &mut dyn FnMut(RxFrame<'_>),
    ) -> io::Result<usize> {
        let mut wires = self.wires();
        let mut count = 0;
        for (bytes, segment_len) in wires.incoming.frames() {
            on_frame(RxFrame { segment_len, udp_checksum_partial: true, ..RxFrame::packet(bytes) });
            count += 1;
        }
        wires.incoming.clear();
        Ok(count)
    }

    fn transmit(
        &mut self,
        fill: &mut dyn FnMut(&mut [u8]) -> Option<TxFrame>,
    ) -> io::Result<usize> {
        let mut wires = self.wires();
        let mut count = 0;
        while let Some(slot) = wires.outgoing.slot() {
            let Some(TxFrame { len, segment_len, headers_len }) = fill(slot) else { break };
            let packets = segment_len.map_or(1, |segment| (len - headers_len).div_ceil(segment));
            wires.sent_packets += packets as u64;
            wires.outgoing.send(len, segment_len);
            count += 1;
        }
        Ok(count)
    }

    fn has_unsent(&self) -> bool {
        false
    }

    fn capabilities(&self) -> DeviceCapabilities {
        DeviceCapabilities { mtu: 4300, max_frame_len: Wire::SLOT_LEN, max_train_packets: 64 }
    }

    fn wait_fds(&self) -> Vec<BorrowedFd<'_>> {
        Vec::new()
    }
}

impl Drive for EngineSide {
    fn pair(path_mtu: PathMtu, memory: usize) -> [Self; 2] {
        [(0, 1), (1, 0)].map(|(mine, theirs)| {
            let (local, remote) = (ADDRESSES[mine], ADDRESSES[theirs]);
            let macs = [mine, theirs].map(|side| MacAddr([2, 0, 0, 0, 0, side as u8]));
            let interface = Interface::default();
            let mut engine = Engine::new(EngineParts {
                endpoint: Endpoint::new(EndpointConfig::default()),
                wire: Box::new(interface.clone()),
                lo: None,
                loopback: None,
                gids: GidTable::of(macs[0], &[local]),
                consumer: Program::default(),
                source_ports: Vec::new(),
            });
            let region = Rc::new(PlainRegion::new(memory));
            let how = Registration {
                pd: PD,
                access: AccessFlags::ALL,
                iova: 0,
                invalidatable: false,
                on_demand: false,
            };
            let key = engine.memory_mut().insert(Rc::clone(&region), how, || Bytes::KEY);
            assert_eq!(key, Bytes::KEY, "the first key");
            let entry = PathEntry::new(OuterHeaders::new(local, remote)).expect("one family");
            let next_hop = NextHop::Neighbour(macs[1]);
            let handle = engine.paths_mut().insert(entry.with_next_hop(Some(next_hop), macs[0]));
            let path = PathAttributes { handle, local, remote, max_rate: None };
            bring_up(engine.endpoint_mut(), mine, path, path_mtu);
            Self { engine, memory: region, len: memory, qpn: NUMBERS[mine], interface }
        })
    }

    fn post_send(&mut self, now: Instant, work: SendWr) {
        self.engine.on_send(self.qpn);
        let posted = self.engine.endpoint_mut().post_send(now, self.qpn, work);
        posted.expect("room in the send queue");
    }

    fn post_recv(&mut self, now: Instant, work: RecvWr) {
        let posted = self.engine.endpoint_mut().post_recv(now, self.qpn, work);
        posted.expect("room in the receive queue");
    }

    fn receive(&mut self, now: Instant, wire: &mut Wire) {
        std::mem::swap(&mut self.interface.wires().incoming, wire);
        self.engine.run(now, Cause::Poll, None);
    }

    fn transmit(&mut self, now: Instant, wire: &mut Wire) {
        self.engine.run(now, Cause::Post, None);
        std::mem::swap(&mut self.interface.wires().outgoing, wire);
    }

    fn take_completions(&mut self) -> u64 {
        let mut count = 0;
        while let Some(completion) = self.engine.consumer_mut().completions.pop_front() {
            assert_eq!(completion.status, CompletionStatus::Success);
            count += 1;
        }
        count
    }

    fn fill(&mut self, bytes: &[u8]) {
        self.memory.write(0, bytes).expect("the region is as long");
    }

    fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.len];
        self.memory.read(0, &mut bytes).expect("the region is as long");
        bytes
    }

    fn counter(&self, name: &str) -> u64 {
        let counters = self.engine.counters();
        counters.iter().find(|(known, _)| *known == name).map_or(0, |(_, count)| *count)
    }

    fn sent(&self) -> u64 {
        self.interface.wires().sent_packets
    }
}
