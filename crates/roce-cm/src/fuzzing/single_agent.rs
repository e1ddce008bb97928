//! An agent that receives anything.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use roce_fuzz_support::Script;
use roce_wire::management::{CmDatagram, CommunicationId, PortSpace};
use roce_wire::{Instant, Qpn};

use super::datagrams;
use super::events::{Seen, SeenEvents};
use crate::{
    AcceptParameters, Agent, AgentConfig, AgentUsage, ConnectParameters, ConnectionAddresses,
    DatagramAddresses, Disposition, DropReason, ListenParameters, RejectParameters,
    ResolveParameters, ServiceAnswer,
};

const BACKLOG: u32 = 4;

struct Run<'a> {
    script: Script<'a>,
    now: Instant,
    agent: Agent,
    seen: SeenEvents,
    /// Connections and resolutions that the program has not destroyed.
    held: Vec<CommunicationId>,
    /// The last ids that were seen, destroyed ones included.
    ids: Vec<CommunicationId>,
    qpn: Qpn,
    /// Datagrams that were handled.
    handled: u64,
}

/// Passes an agent what the bytes say, and checks it after each step.
pub(super) fn run(bytes: &[u8]) {
    let local: IpAddr = [10, 0, 0, 1].into();
    let mut run = Run {
        script: Script::new(bytes),
        now: Instant::START,
        agent: Agent::new(AgentConfig::new(1, 1, vec![local])),
        seen: SeenEvents::default(),
        held: Vec::new(),
        ids: Vec::new(),
        qpn: Qpn::new(0x11).unwrap(),
        handled: 0,
    };
    for space in [PortSpace::TCP, PortSpace::UDP] {
        let listen = ListenParameters { space, port: 7, address: local, backlog: BACKLOG };
        run.agent.listen(&listen).unwrap();
    }
    while !run.script.is_over() {
        run.step();
    }
    run.end();
}

impl Run<'_> {
    fn addresses(&mut self) -> DatagramAddresses {
        let remote = [10, 0, 0, self.script.pick(&[2, 2, 2, 3])].into();
        DatagramAddresses { local: [10, 0, 0, 1].into(), remote }
    }

    fn step(&mut self) {
        match self.script.byte() % 16 {
            0..=8 => self.receive(),
            9 => self.wait(),
            10 => self.start(),
            _ => self.call(),
        }
        self.take_events();
    }

    fn receive(&mut self) {
        let addresses = self.addresses();
        let bytes = datagrams::read(&mut self.script, addresses, &self.ids, self.qpn);
        let (dropped, held_back) = (self.dropped(), self.held_back());
        match self.agent.handle_datagram(self.now, addresses, &bytes) {
            Disposition::Handled => self.handled += 1,
            Disposition::Stray => self.agent.answer_stray(addresses, &bytes),
            Disposition::HeldStray | Disposition::Foreign => {}
            Disposition::Dropped(_) => assert_eq!(self.dropped(), dropped + 1),
        }
        assert!(self.take_transmits() + self.held_back() <= held_back + 2);
    }

    /// Answers the strays that have waited for their turn.
    fn answer_held(&mut self) {
        while let Some(stray) = self.agent.poll_stray(self.now) {
            self.agent.answer_stray(stray.addresses, &stray.datagram[..]);
        }
    }

    fn dropped(&self) -> u64 {
        DropReason::ALL.iter().map(|reason| self.agent.counters().dropped(*reason)).sum()
    }

    fn wait(&mut self) {
        let next = self.agent.poll_timeout();
        self.now = match next {
            Some(next) if self.script.byte().is_multiple_of(2) => self.now.max(next),
            _ => self.now + Duration::from_millis(self.script.number::<u16>().into()),
        };
        self.agent.handle_timeout(self.now);
        self.answer_held();
        assert!(self.agent.poll_timeout().is_none_or(|next| next > self.now));
        self.take_transmits();
    }

    fn start(&mut self) {
        let local = SocketAddr::from(([10, 0, 0, 1], 40_000));
        let ends = ConnectionAddresses { local, remote: ([10, 0, 0, 2], 7).into() };
        let held_back = self.held_back();
        let id = if self.script.byte().is_multiple_of(4) {
            self.agent.resolve(self.now, &ResolveParameters::new(ends))
        } else {
            self.agent.connect(self.now, &ConnectParameters::new(ends, self.qpn))
        };
        let id = id.unwrap();
        self.held.push(id);
        self.remember(id);
        // It leaves, or waits; others that waited may leave.
        assert_eq!(self.take_transmits() + self.held_back(), held_back + 1);
    }

    /// Requests that wait until fewer are in flight.
    fn held_back(&self) -> usize {
        self.agent.usage().requests_held_back
    }

    fn call(&mut self) {
        if self.held.is_empty() {
            return;
        }
        let id = self.script.pick(&self.held[self.held.len().saturating_sub(256)..]);
        let held_back = self.held_back();
        let (agent, now) = (&mut self.agent, self.now);
        // What the state does not allow has no effect.
        let _ = match self.script.byte() % 12 {
            0..=3 => agent.accept(now, id, &AcceptParameters::new(self.qpn)),
            4 | 5 => agent.establish(id, &[]),
            6 => agent.disconnect(now, id),
            7 => agent.answer(now, id, &ServiceAnswer::new(self.qpn)),
            8 => agent.communication_established(id),
            9 => agent.reject(now, id, &RejectParameters::new()),
            _ => {
                self.held.retain(|it| *it != id);
                agent.destroy(now, id)
            }
        };
        let _ = (agent.init_attributes(id), agent.rtr_attributes(id), agent.rts_attributes(id));
        assert!(self.take_transmits() + self.held_back() <= held_back + 1);
    }

    fn remember(&mut self, id: CommunicationId) {
        if self.ids.len() == 16 {
            self.ids.remove(0);
        }
        self.ids.push(id);
    }

    fn take_transmits(&mut self) -> usize {
        let mut taken = 0;
        while let Some(transmit) = self.agent.poll_transmit() {
            CmDatagram::decode(&transmit.datagram[..]).expect("an agent sends what agents read");
            taken += 1;
        }
        taken
    }

    fn take_events(&mut self) {
        // Sometimes the program takes its time.
        if self.script.byte().is_multiple_of(4) {
            return;
        }
        while let Some(event) = self.agent.poll_event() {
            let id = event.id();
            if matches!(self.seen.add(&event), Seen::ConnectRequest | Seen::ServiceRequest) {
                self.held.push(id);
                self.remember(id);
            }
            assert!(self.held.contains(&id), "an event of {id}, which was destroyed");
        }
    }

    fn end(&mut self) {
        while let Some(event) = self.agent.poll_event() {
            if matches!(self.seen.add(&event), Seen::ConnectRequest | Seen::ServiceRequest) {
                self.held.push(event.id());
            }
        }
        for id in std::mem::take(&mut self.held) {
            self.agent.destroy(self.now, id).unwrap();
        }
        let usage = self.agent.usage();
        assert_eq!((usage.unanswered_requests, usage.resolutions), (0, 0), "{usage:?}");
        while let Some(next) = self.agent.poll_timeout() {
            self.now = next.max(self.now);
            self.agent.handle_timeout(self.now);
            self.answer_held();
            self.take_transmits();
        }
        let expected = AgentUsage { listeners: 2, ..AgentUsage::default() };
        assert_eq!(self.agent.usage(), expected);
        assert_eq!(self.agent.poll_event(), None);
        let counters = self.agent.counters();
        let left = counters.stray + counters.foreign;
        assert_eq!(counters.received, self.handled + left + self.dropped());
    }
}
