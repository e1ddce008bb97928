//! What the injectors of several devices share: how far the script is, and the generators.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use rand::{SeedableRng, rngs::StdRng};
use roce_faults::{
    FaultAction, FaultDirection, FaultRule, LinkRule, Outage, PacketFacts, PacketKind, RuleCounter,
    SeenPacket, Sender,
};

use super::{ActivityKind, ActivityLog, FaultConfig, FaultEvent, FaultEventOf, FaultLog, clock};
use crate::device::Direction;

/// Most queue pairs of one direction that are told from one another; further ones have no number.
const MAX_SENDERS: usize = 1 << 20;

/// The state of the faults of a process: one script counts its packets over all devices and over all
/// the times that a device is opened. Clones share it.
///
/// Random faults are drawn from a generator for each queue pair that sends, for each direction, and for
/// requests and other packets apart. So what a seed decides for the packets of a queue pair does not
/// depend on when packets of others come.
#[derive(Clone, Debug)]
pub struct FaultScript {
    state: Arc<Mutex<State>>,
}

impl FaultScript {
    /// Begins before the first packet.
    pub fn new(config: &FaultConfig) -> Self {
        let seeded = |(rule, place): (&FaultRule, u64)| {
            // Rules with the same share choose other packets.
            Rule::new(*rule, config.seed.wrapping_add(place << 48))
        };
        let state = State {
            rules: config.script.iter().zip(0..).map(seeded).collect(),
            links: config.links.iter().map(|rule| Link::new(*rule)).collect(),
            first_link: config.script.len() + config.verbs.len(),
            began: clock::since(config.began),
            seed: config.seed,
            ranks: [config.peer_rank, config.rank],
            numbers: Default::default(),
            generators: HashMap::new(),
            log: FaultLog::open(config.log.as_deref(), config.rank),
            activity: config
                .activity
                .as_deref()
                .and_then(|path| ActivityLog::open(path, config.rank, config.began)),
        };
        Self { state: Arc::new(Mutex::new(state)) }
    }

    /// Returns what happened in this process so far: of each rule the first sixteen events, then those
    /// whose number is a power of two.
    pub fn events(&self) -> Vec<FaultEvent> {
        self.lock().log.events().to_vec()
    }

    /// Notes that this end sees the link of a rail lose its carrier, or get it back, in the events of each rule about
    /// that link.
    pub fn note_carrier(&self, rail: u32, is_up: bool) {
        let mut state = self.lock();
        let State { links, first_link, log, ranks: [_, rank], .. } = &mut *state;
        for (place, link) in (*first_link..).zip(links) {
            let LinkRule { rail: of, rank: whose, .. } = link.rule;
            if of == rail && (whose.is_none() || whose == *rank) {
                link.seen += 1;
                let state = if is_up { "back" } else { "lost" };
                log.note_of(FaultEventOf::Carrier, place, link.seen, || {
                    format!("sees the carrier of rail {rail} {state}")
                });
            }
        }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        // A thread that panicked has counted a packet at worst.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug)]
pub(super) struct State {
    rules: Vec<Rule>,
    links: Vec<Link>,
    /// Place of the first rule of links in the script of all kinds.
    first_link: usize,
    began: Instant,
    seed: u64,
    /// Ranks of the senders of received and of sent packets.
    ranks: [Option<u32>; 2],
    /// Numbers of the senders of received and of sent packets.
    numbers: [HashMap<Sender, u32>; 2],
    generators: HashMap<Stream, StdRng>,
    log: FaultLog,
    activity: Option<ActivityLog>,
}

#[derive(Debug)]
struct Rule {
    rule: FaultRule,
    counter: RuleCounter,
    /// Of rules that hold packets until another one comes by.
    until: Option<RuleCounter>,
    /// How often that one came by.
    released: u64,
    happened: u64,
    /// How often an obstacle left a packet as it was.
    hindered: u64,
}

/// A link that a rule is about.
#[derive(Debug)]
struct Link {
    rule: LinkRule,
    /// Of rules that begin with a packet.
    counter: Option<RuleCounter>,
    /// When that packet came by.
    met: Option<Duration>,
    /// Packets lost.
    happened: u64,
    /// Changes of the carrier that this end has seen.
    seen: u64,
    /// Outages that began at a packet of another link.
    begun: u64,
}

/// What becomes of a packet at a link.
enum Fate {
    Passes,
    Lost,
    /// Another link goes down at this packet.
    Met,
}

impl Link {
    fn new(rule: LinkRule) -> Self {
        let counter = match rule.outage {
            Outage::At { packets, .. } => Some(RuleCounter::new(packets)),
            Outage::During(_) | Outage::Flap { .. } => None,
        };
        Self { rule, counter, met: None, happened: 0, seen: 0, begun: 0 }
    }

    /// Returns what becomes of a packet of this end, whose rank is `rank`.
    fn fate(&mut self, packet: &SeenPacket, rank: Option<u32>) -> Fate {
        let LinkRule { rail, rank: of, .. } = self.rule;
        let is_down = self.rule.is_down(packet.time, self.met);
        let is_met =
            !is_down && self.counter.as_mut().is_some_and(|counter| counter.admits(packet));
        if is_met {
            self.met = Some(packet.time);
        }
        let is_this = Some(rail) == packet.rail && (of.is_none() || of == rank);
        match (is_down || is_met, is_this) {
            (true, true) => Fate::Lost,
            (true, false) if is_met => Fate::Met,
            _ => Fate::Passes,
        }
    }
}

impl Rule {
    fn new(rule: FaultRule, seed: u64) -> Self {
        let until = match rule.action {
            FaultAction::HoldUntil(packets) => Some(RuleCounter::new(packets).with_seed(seed)),
            _ => None,
        };
        let counter = RuleCounter::new(rule.packets).with_seed(seed);
        Self { rule, counter, until, released: 0, happened: 0, hindered: 0 }
    }
}

/// Packets that share a generator: direction, number of the sender, and whether they are requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Stream {
    direction: Direction,
    queue_pair: Option<u32>,
    is_request: bool,
}

/// A packet as the script sees it.
#[derive(Debug)]
pub(super) struct Admitted {
    seen: SeenPacket,
    pub(super) stream: Stream,
    /// Rules that the packet meets, by their places in the script.
    pub(super) rules: Vec<usize>,
}

impl State {
    /// Counts the next packet.
    pub(super) fn admit(
        &mut self,
        packet: &[u8],
        direction: Direction,
        rail: Option<u32>,
        now: Instant,
    ) -> Admitted {
        let facts = PacketFacts::of(packet);
        let side = usize::from(direction == Direction::Out);
        let numbers = &mut self.numbers[side];
        let queue_pair = facts.and_then(|facts| {
            let next = numbers.len() as u32 + 1;
            match numbers.get(&facts.sender) {
                None if numbers.len() >= MAX_SENDERS => None,
                None => Some(*numbers.entry(facts.sender).or_insert(next)),
                Some(number) => Some(*number),
            }
        });
        let seen = SeenPacket {
            facts,
            direction: match direction {
                Direction::In => FaultDirection::Received,
                Direction::Out => FaultDirection::Sent,
            },
            queue_pair,
            rank: self.ranks[side],
            rail,
            time: now.saturating_duration_since(self.began),
        };
        let mut rules = Vec::new();
        let [_, rank] = self.ranks;
        // What is lost here is lost first: other rules count it, and do nothing to it.
        for (place, link) in (self.first_link..).zip(&mut self.links) {
            match link.fate(&seen, rank) {
                Fate::Passes => {}
                Fate::Lost => rules.push(place),
                Fate::Met => {
                    link.begun += 1;
                    let subject = || format!("meets {}", describe(&seen));
                    self.log.note_of(FaultEventOf::Outage, place, link.begun, subject);
                }
            }
        }
        for (place, rule) in self.rules.iter_mut().enumerate() {
            if rule.counter.admits(&seen) {
                rules.push(place);
            }
            if rule.until.as_mut().is_some_and(|until| until.admits(&seen)) {
                rule.released += 1;
            }
        }
        let is_request = PacketKind::Request.includes(facts.as_ref());
        Admitted { seen, stream: Stream { direction, queue_pair, is_request }, rules }
    }

    pub(super) fn note_activity(&mut self, kind: ActivityKind, now: Instant) {
        if let Some(log) = &mut self.activity {
            log.note(kind, now);
        }
    }

    pub(super) fn action(&self, rule: usize) -> FaultAction {
        self.rules.get(rule).map_or(FaultAction::Drop, |rule| rule.rule.action)
    }

    /// Returns how often the packet came by for which a rule holds others.
    pub(super) fn released(&self, rule: usize) -> u64 {
        self.rules.get(rule).map_or(0, |rule| rule.released)
    }

    /// Returns the generator of packets.
    pub(super) fn generator(&mut self, stream: Stream) -> &mut StdRng {
        let seed = self.seed;
        self.generators.entry(stream).or_insert_with(|| {
            let of_stream = u64::from(stream.queue_pair.unwrap_or(0)) << 2
                | u64::from(stream.is_request) << 1
                | u64::from(stream.direction == Direction::Out);
            let mut bytes = [0; 32];
            bytes[..8].copy_from_slice(&seed.to_le_bytes());
            bytes[8..16].copy_from_slice(&of_stream.to_le_bytes());
            StdRng::from_seed(bytes)
        })
    }

    /// Notes that a packet met a rule, or that an obstacle left it as it was.
    pub(super) fn note(&mut self, rule: usize, admitted: &Admitted, obstacle: Option<String>) {
        let count = match (self.rules.get_mut(rule), rule.checked_sub(self.first_link)) {
            (Some(rule), _) if obstacle.is_some() => &mut rule.hindered,
            (Some(rule), _) => &mut rule.happened,
            (None, link) => match link.and_then(|link| self.links.get_mut(link)) {
                Some(link) => &mut link.happened,
                None => return,
            },
        };
        *count += 1;
        self.log.note(rule, *count, || describe(&admitted.seen), obstacle);
    }
}

fn describe(packet: &SeenPacket) -> String {
    let way = match packet.direction {
        FaultDirection::Sent => "sent",
        FaultDirection::Received => "received",
    };
    let Some(facts) = packet.facts else { return format!("{way} frame without a RoCE packet") };
    let (mut name, psn) = (facts.opcode.name().to_owned(), facts.psn.get());
    if let Some(message) = facts.management {
        name += &format!(" ({})", message.name());
    }
    let by = packet.queue_pair.map(|number| format!(" by queue pair {number}")).unwrap_or_default();
    format!("{name} with PSN {psn}, {way}{by}")
}
