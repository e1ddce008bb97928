//! Every prefix and every flipped bit of every message, in every state.
//!
//! An ICRC stops what the network has damaged. These datagrams have a right one: a neighbour made them.

use roce_wire::management::{CmDatagram, CmMessage, CommunicationId, Req};

use super::stages::{
    GUID, NOW, OUR_QPN, PEER, Stage, THEIR_QPN, Victim, addresses, dreq, encoded, messages, req,
};
use crate::connection::State;
use crate::{AgentUsage, DatagramAddresses, Disposition, DropReason, Event, Transmit};

/// Bytes in front of a message.
const HEADER: usize = 24;

impl Victim {
    fn state(&self) -> Option<State> {
        self.agent.tables.connections.get(&self.id).map(|it| it.state)
    }

    /// How often each counter of a received datagram has counted.
    fn counts(&self, handled: u64) -> u64 {
        let counters = self.agent.counters();
        let dropped: u64 = DropReason::ALL.iter().map(|it| counters.dropped(*it)).sum();
        handled + counters.stray + counters.foreign + dropped
    }

    /// Passes bytes to the agent, and checks what holds for all bytes. Returns what the agent did.
    fn damage(&mut self, addresses: DatagramAddresses, bytes: &[u8]) -> Outcome {
        let (before, state) = (self.agent.usage(), self.state());
        let counted = self.counts(0);
        let received = self.agent.counters().received;
        let disposition = self.agent.handle_datagram(NOW, addresses, bytes);
        let handled = u64::from(disposition == Disposition::Handled);
        assert_eq!(self.counts(handled), counted + 1, "counted once, as {disposition:?}");
        assert_eq!(self.agent.counters().received, received + 1);
        let sent: Vec<_> = std::iter::from_fn(|| self.agent.poll_transmit()).collect();
        let events: Vec<_> = std::iter::from_fn(|| self.agent.poll_event()).collect();
        let after = self.agent.usage();
        if disposition == Disposition::Handled {
            assert!(sent.len() <= 2 && events.len() <= 1, "{sent:?} {events:?}");
            assert!(is_at_most_one_more(before, after), "{before:?} {after:?}");
        } else {
            assert_eq!((sent.len(), events.len(), after), (0, 0, before), "{disposition:?}");
            assert_eq!(self.state(), state, "{disposition:?}");
        }
        for transmit in &sent {
            assert_eq!(transmit.addresses, addresses_of(transmit, addresses));
            CmDatagram::decode(&transmit.datagram[..]).expect("an agent sends what agents read");
        }
        Outcome { disposition, events, sent: sent.len() }
    }

    /// Ends everything, and checks that nothing is left.
    fn end(mut self, outcome: &Outcome) {
        for event in &outcome.events {
            if let Event::ConnectRequest { id, .. } | Event::ServiceRequest { id, .. } = event {
                self.agent.destroy(NOW, *id).unwrap();
            }
        }
        self.agent.destroy_all(NOW);
        while let Some(at) = self.agent.poll_timeout() {
            while self.agent.poll_transmit().is_some() {}
            self.agent.handle_timeout(at);
        }
        let left = AgentUsage { listeners: 2, ..AgentUsage::default() };
        assert_eq!(self.agent.usage(), left);
    }
}

struct Outcome {
    disposition: Disposition,
    events: Vec<Event>,
    sent: usize,
}

/// A datagram goes to the sender of what it answers, or to the peer.
fn addresses_of(transmit: &Transmit, answered: DatagramAddresses) -> DatagramAddresses {
    if transmit.addresses == answered { answered } else { addresses() }
}

fn is_at_most_one_more(before: AgentUsage, after: AgentUsage) -> bool {
    let pairs = [
        (before.connections, after.connections, 1),
        (before.resolutions, after.resolutions, 1),
        (before.unanswered_requests, after.unanswered_requests, 1),
        (before.timewaits, after.timewaits, 1),
        (before.kept_replies, after.kept_replies, 1),
        (before.timers, after.timers, 1),
        (before.remote_names, after.remote_names, 2),
        (before.listeners, after.listeners, 0),
    ];
    pairs.iter().all(|(before, after, more)| *after <= before + more)
}

/// Whether a datagram from the peer's address may end the established connection `id`, read from its
/// bytes without the codec.
fn names_connection(bytes: &[u8; 256], id: CommunicationId) -> bool {
    let word = |at| u32::from_be_bytes(bytes[HEADER + at..][..4].try_into().unwrap());
    let guid = |at| u64::from(word(at)) << 32 | u64::from(word(at + 4));
    let is_cm = bytes[..4] == [1, 7, 2, 3] && bytes[16] == 0;
    let names_both = word(0) == PEER.0 && word(4) == id.0;
    is_cm
        && match bytes[17] {
            // A REQ of the peer's queue pair for another connection: the peer has forgotten this one.
            0x10 => word(0) != PEER.0 && guid(16) == GUID && word(32) >> 8 == THEIR_QPN,
            // A REJ of reason 4 names the receiver by nothing but the sender.
            0x12 if word(8) & 0xffff == 4 => word(0) == PEER.0 && guid(12) == GUID,
            0x12 => names_both,
            0x15 => names_both && word(8) >> 8 == OUR_QPN,
            _ => false,
        }
}

/// Passes every prefix and every flip of every message to an agent in this stage.
fn damage_all(stage: Stage, mut check: impl FnMut(&str, usize, &[u8; 256], &Victim, &Outcome)) {
    let mut victim = Victim::new(stage);
    for (name, message) in messages(victim.id) {
        let whole = encoded(message);
        for len in 0..whole.len() {
            let outcome = victim.damage(addresses(), &whole[..len]);
            let dropped = Disposition::Dropped(DropReason::Length);
            assert_eq!(outcome.disposition, dropped, "{stage:?}, {name}, {len} bytes");
        }
        let longer = [&whole[..], &[0]].concat();
        let outcome = victim.damage(addresses(), &longer);
        assert_eq!(outcome.disposition, Disposition::Dropped(DropReason::Length));
        for bit in 0..8 * whole.len() {
            let mut bytes = whole;
            bytes[bit / 8] ^= 1 << (bit % 8);
            let outcome = victim.damage(addresses(), &bytes);
            check(name, bit, &bytes, &victim, &outcome);
            if outcome.disposition == Disposition::Handled {
                victim.end(&outcome);
                victim = Victim::new(stage);
            }
        }
    }
}

#[test]
fn no_prefix_and_no_flipped_bit_ends_a_connection_that_the_datagram_does_not_name() {
    for stage in Stage::ALL.into_iter().filter(|stage| stage.is_established()) {
        let (mut ended, mut spared) = (0, 0);
        damage_all(stage, |name, bit, bytes, victim, outcome| {
            let is_alive = victim.state() == Some(State::Established)
                && !outcome.events.iter().any(|event| event.id() == victim.id);
            let may_end = names_connection(bytes, victim.id);
            assert!(is_alive || may_end, "{stage:?}: bit {bit} of {name} ends the connection");
            assert!(!is_alive || !may_end, "{stage:?}: bit {bit} of {name} is no longer heeded");
            if is_alive { spared += 1 } else { ended += 1 }
        });
        // Flips of what a DREQ or a REJ says beside its addressee.
        assert!(ended > 4000 && spared > 15_000, "{stage:?}: {ended} ended, {spared} spared");
    }
}

#[test]
fn every_prefix_and_every_flipped_bit_is_counted_once_and_leaves_nothing_behind() {
    for stage in Stage::ALL.into_iter().filter(|stage| !stage.is_established()) {
        let (mut handled, mut dropped) = (0, 0);
        damage_all(stage, |_, _, _, _, outcome| match outcome.disposition {
            Disposition::Handled => handled += 1,
            _ => dropped += 1,
        });
        assert!(handled > 0 && dropped > 0, "{stage:?}: {handled} handled, {dropped} dropped");
    }
}

#[test]
fn no_datagram_from_another_host_ends_a_connection() {
    let elsewhere = DatagramAddresses { remote: [10, 0, 0, 3].into(), ..addresses() };
    for stage in [Stage::ReqSent, Stage::RepSent, Stage::RepReceived] {
        let mut victim = Victim::new(stage);
        let state = victim.state();
        for (name, message) in messages(victim.id) {
            let outcome = victim.damage(elsewhere, &encoded(message));
            assert_eq!(victim.state(), state, "{stage:?}, {name}: {:?}", outcome.disposition);
        }
    }
    for stage in [Stage::EstablishedAsActive, Stage::EstablishedAsPassive] {
        let mut victim = Victim::new(stage);
        // The same queue pair of a device with the same GUID, which a neighbour can say that it has.
        let stale = CmMessage::Req(Req { local_id: CommunicationId(0x78), ..req() });
        let all = messages(victim.id).into_iter().chain([("a stale REQ", stale)]);
        for (name, message) in all {
            let outcome = victim.damage(elsewhere, &encoded(message));
            let events: Vec<_> = outcome.events.iter().map(Event::id).collect();
            assert!(!events.contains(&victim.id), "{stage:?}, {name}");
            assert_eq!(victim.state(), Some(State::Established), "{stage:?}, {name}");
            assert!(outcome.sent <= 1, "{stage:?}, {name}");
        }
        victim.receive(CmMessage::Dreq(dreq(victim.id)));
        assert_eq!(victim.agent.poll_event(), Some(Event::Disconnected { id: victim.id }));
    }
}
