//! Playing a lesson: its script against a world.

use std::collections::HashMap;
use std::time::Duration;

use roce_ring::{DataType, Operation, ReduceOp, Settings};
use roce_sim::{Chances, Fate, Misfortune};
use roce_transport::{
    AccessFlags, AckTimeout, EndpointConfig, QpState, RecvWork, RemoteSpan, ScatterList,
    SendOperation, SendWork, WindowConfig,
};
use roce_wire::{PathMtu, RnrTimer};

use super::{ChunkState, Shown, Story, Told};
use crate::connection::{Connection, ConnectionOptions};
use crate::lesson::{
    Action, ConnectionData, Lesson, LessonError, RegionData, Right, RingData, Show, StateName,
    Until, WorldData,
};
use crate::memory::Region;
use crate::ring::{Ring, RingOptions};
use crate::world::{End, World, WorldConfig};

/// Plays the whole lesson.
pub(super) fn play(lesson: &Lesson) -> Result<Story, LessonError> {
    let mut stage = Stage::build(lesson)?;
    let mut moments = Vec::new();
    for (place, moment) in lesson.moment.iter().enumerate() {
        stage.moment = place + 1;
        let (packets, events) = stage.mark();
        for action in &moment.actions {
            stage.act(action)?;
        }
        stage.watch(&moment.until)?;
        let shown = moment.show.iter().map(|show| stage.show(show)).collect::<Result<_, _>>()?;
        let (packets_end, events_end) = stage.mark();
        moments.push(Told {
            packets: packets..packets_end,
            events: events..events_end,
            end: stage.world.now(),
            shown,
        });
    }
    Ok(Story {
        lesson: lesson.clone(),
        timeline: stage.world.into_timeline(),
        moments,
        chunks: stage.chunks,
    })
}

/// A world with the names that the script uses.
struct Stage {
    world: World,
    connection: Option<Connection>,
    ring: Option<Ring>,
    /// Elements of a ring's vector, and what its chunks held whenever that changed.
    elements: u64,
    chunks: Vec<ChunkState>,
    regions: HashMap<String, (usize, Region)>,
    /// The work posted last; each has a number of its own.
    work: u64,
    /// Fates that the script has planned for the frames of each host, by their place.
    plans: Vec<HashMap<usize, Fate>>,
    /// Which moment it is, for error messages.
    moment: usize,
}

/// More steps than any lesson takes.
const MAX_STEPS: usize = 1_000_000;

impl Stage {
    fn build(lesson: &Lesson) -> Result<Self, LessonError> {
        let WorldData { hosts, delay, rate, window } = &lesson.world;
        if !(2..=64).contains(&hosts.len()) {
            return Err(out_of_range("the number of hosts", hosts.len()));
        }
        let mut endpoint = EndpointConfig::default();
        if let Some(packets) = *window {
            endpoint.window =
                WindowConfig { initial_packets: packets, max_packets: packets, ..endpoint.window };
        }
        let config = WorldConfig {
            delay: delay.duration(),
            bits_per_sec: rate.map(|rate| rate.bits_per_sec()),
            endpoint,
            ..WorldConfig::default()
        };
        let mut world = World::new(hosts, config);
        let mut regions = HashMap::new();
        for data in &lesson.region {
            let host = place_of(&world, &data.host, 0)?;
            let region = register(&mut world, host, data);
            regions.insert(data.name.clone(), (host, region));
        }
        let connection = match lesson.ring {
            Some(_) => None,
            None => {
                let options = options(&lesson.connection)?;
                let open =
                    if lesson.connection.open { Connection::open } else { Connection::create };
                Some(open(&mut world, [0, 1], options))
            }
        };
        let mut ring = None;
        let elements = lesson.ring.map_or(0, |data| data.elements);
        if let Some(data) = lesson.ring {
            ring = Some(build_ring(&mut world, &data, options(&lesson.connection)?)?);
        }
        let plans = vec![HashMap::new(); hosts.len()];
        let chunks = Vec::new();
        let mut stage =
            Self { world, connection, ring, elements, chunks, regions, work: 0, plans, moment: 0 };
        stage.look_at_chunks();
        Ok(stage)
    }

    /// How far the timeline has come.
    fn mark(&self) -> (usize, usize) {
        let timeline = self.world.timeline();
        (timeline.packets.len(), timeline.events.len())
    }

    fn unknown(&self, what: &'static str, name: &str) -> LessonError {
        LessonError::Unknown { moment: self.moment, what, name: name.to_owned() }
    }

    fn refused(&self, why: impl ToString) -> LessonError {
        LessonError::Refused { moment: self.moment, why: why.to_string() }
    }

    fn region(&self, name: &str) -> Result<(usize, Region), LessonError> {
        self.regions.get(name).copied().ok_or_else(|| self.unknown("region", name))
    }

    fn host(&self, name: &str) -> Result<usize, LessonError> {
        place_of(&self.world, name, self.moment)
    }

    /// The end of the connection on this host, and which side that is.
    fn end(&self, name: &str) -> Result<(End, usize), LessonError> {
        let host = self.host(name)?;
        let ends = self.connection.map(|connection| connection.ends);
        let side = ends.and_then(|ends| ends.iter().position(|end| end.host == host));
        match (ends, side) {
            (Some(ends), Some(side)) => Ok((ends[side], side)),
            _ => Err(self.unknown("connected host", name)),
        }
    }

    fn next_work(&mut self) -> u64 {
        self.work += 1;
        self.work
    }

    fn act(&mut self, action: &Action) -> Result<(), LessonError> {
        match action {
            Action::Modify { host, to } => self.modify(host, *to)?,
            Action::Receive { host, region, bytes, count } => {
                let ((end, _), (_, region)) = (self.end(host)?, self.region(region)?);
                for _ in 0..*count {
                    let work = RecvWork::new(self.next_work(), [region.piece(0, *bytes)]);
                    self.world.post_recv(end, work).map_err(|why| self.refused(why))?;
                }
            }
            Action::Send { from, region, bytes, immediate, count } => {
                let immediate = immediate.map(u32::to_be_bytes);
                for _ in 0..*count {
                    let operation = SendOperation::Send { immediate, invalidate: None };
                    self.post(from, operation, region, *bytes)?;
                }
            }
            Action::Write { from, region, bytes, to, offset, key, immediate } => {
                let remote = self.remote(to, *offset, *key)?;
                let immediate = immediate.map(u32::to_be_bytes);
                self.post(from, SendOperation::Write { remote, immediate }, region, *bytes)?;
            }
            Action::Read { from, into, bytes, of } => {
                let remote = self.remote(of, 0, None)?;
                self.post(from, SendOperation::Read { remote }, into, *bytes)?;
            }
            Action::CompareSwap { from, into, of, compare, swap } => {
                let remote = self.remote(of, 0, None)?;
                let (compare, swap) = (*compare, *swap);
                self.post(from, SendOperation::CompareSwap { remote, compare, swap }, into, 8)?;
            }
            Action::FetchAdd { from, into, of, add } => {
                let remote = self.remote(of, 0, None)?;
                self.post(from, SendOperation::FetchAdd { remote, add: *add }, into, 8)?;
            }
            Action::Lose { from, frames } => {
                let fates = frames.iter().map(|frame| (*frame, Fate::Drop));
                let what = match frames[..] {
                    [frame] => format!("(the network will lose frame {frame} from here)"),
                    _ => format!("(the network will lose frames {frames:?} from here)"),
                };
                self.plan(from, fates, what)?;
            }
            Action::Damage { from, frame, bit } => {
                let what = format!("(the network will flip bit {bit} of frame {frame} from here)");
                self.plan(from, [(*frame, Fate::Corrupt { bit: *bit })], what)?;
            }
            Action::Delay { from, frame, by } => {
                let what = format!("(the network will hold up frame {frame} from here for {by})");
                self.plan(from, [(*frame, Fate::Delay(by.duration()))], what)?;
            }
            Action::Copy { from, frame, lag } => {
                let what = format!("(the network will deliver frame {frame} from here twice)");
                self.plan(from, [(*frame, Fate::Duplicate(lag.duration()))], what)?;
            }
            Action::Unplug { host } => {
                let place = self.host(host)?;
                let gone = Misfortune::by_chance(0, Chances { drop: 1.0, ..Chances::default() });
                self.world.set_misfortune(place, gone);
                self.world.stage(place, "(the cable from here is unplugged)");
            }
            Action::Plug { host } => {
                let place = self.host(host)?;
                self.world.set_misfortune(place, Misfortune::default());
                self.world.stage(place, "(the cable is plugged in again)");
            }
            Action::Deregister { region } => {
                let (host, span) = self.region(region)?;
                self.world.host_mut(host).memory.deregister(span);
                self.world.stage(host, format!("deregisters {region}: key {:#x}", span.key));
            }
            Action::StartRing {} => {
                let Self { world, ring, moment, .. } = self;
                let refused = |why: &dyn ToString| LessonError::Refused {
                    moment: *moment,
                    why: why.to_string(),
                };
                let ring = ring.as_mut().ok_or_else(|| refused(&"the lesson has no ring"))?;
                ring.start(world).map_err(|why| refused(&why))?;
            }
        }
        Ok(())
    }

    fn post(
        &mut self,
        from: &str,
        operation: SendOperation,
        region: &str,
        bytes: u32,
    ) -> Result<(), LessonError> {
        let ((end, _), (_, region)) = (self.end(from)?, self.region(region)?);
        let pieces = if bytes == 0 {
            ScatterList::default()
        } else {
            ScatterList::from([region.piece(0, bytes)])
        };
        let work = SendWork::new(self.next_work(), operation, pieces).signaled();
        self.world.post_send(end, work).map_err(|why| self.refused(why))
    }

    fn remote(&self, name: &str, offset: u64, key: Option<u32>) -> Result<RemoteSpan, LessonError> {
        let (_, region) = self.region(name)?;
        let address = region.address.wrapping_add(offset);
        Ok(RemoteSpan { address, key: key.unwrap_or(region.key) })
    }

    /// Adds to what befalls the frames that leave a host from now on.
    fn plan(
        &mut self,
        from: &str,
        fates: impl IntoIterator<Item = (usize, Fate)>,
        what: String,
    ) -> Result<(), LessonError> {
        let host = self.host(from)?;
        let plan = &mut self.plans[host];
        plan.clear();
        plan.extend(fates);
        let last = plan.keys().copied().max().unwrap_or(0);
        if plan.contains_key(&0) || last > MAX_PLAN {
            return Err(out_of_range("a frame", format!("{:?}; the first is 1", plan.keys())));
        }
        let script = (1..=last).map(|frame| plan.get(&frame).copied().unwrap_or(Fate::Pass));
        let script: Vec<_> = script.collect();
        self.world.set_misfortune(host, Misfortune::scripted(script));
        self.world.stage(host, what);
        Ok(())
    }

    fn modify(&mut self, host: &str, to: StateName) -> Result<(), LessonError> {
        let (end, side) = self.end(host)?;
        let connection = self.connection.ok_or_else(|| self.unknown("connection", host))?;
        let state = match to {
            StateName::Init => QpState::Init,
            StateName::Rtr => QpState::ReadyToReceive,
            StateName::Rts => QpState::ReadyToSend,
        };
        let told = connection
            .bring(&mut self.world, side, state)
            .map_err(|why| LessonError::Refused { moment: self.moment, why: why.to_string() })?;
        self.world.stage(end.host, format!("told {}", attributes_in_words(&told)));
        Ok(())
    }

    fn watch(&mut self, until: &Until) -> Result<(), LessonError> {
        let (sent, events) = self.mark();
        if let Some(span) = until.time {
            let end = self.world.now() + span.duration();
            self.world.run_until(end);
            return Ok(());
        }
        let settled = self.settled();
        let waits_for_rest = until.step.is_none()
            && until.sent.is_none()
            && until.settled.is_none()
            && until.event.is_none();
        for _ in 0..MAX_STEPS {
            let timeline = self.world.timeline();
            let is_over = until.sent.is_some_and(|count| timeline.packets.len() >= sent + count)
                || until.settled.is_some_and(|count| self.settled() >= settled + count)
                || until.event.as_ref().is_some_and(|words| {
                    let news = &timeline.events[events..];
                    news.iter().any(|event| event.kind.to_string().contains(words.as_str()))
                })
                || until.step.is_some_and(|steps| self.ring_steps() >= steps)
                || (waits_for_rest && self.world.is_at_rest());
            if is_over {
                return Ok(());
            }
            if !self.step()? {
                return Err(self.never(until.to_string()));
            }
        }
        Err(self.never("rest".to_owned()))
    }

    /// Goes on by one step; false when nothing more will happen.
    fn step(&mut self) -> Result<bool, LessonError> {
        let went_on = self.world.step();
        if let Some(ring) = &mut self.ring {
            let turned = ring.progress(&mut self.world);
            let refused = |why: crate::RingError| LessonError::Refused {
                moment: self.moment,
                why: why.to_string(),
            };
            turned.map_err(refused)?;
            self.look_at_chunks();
        }
        Ok(went_on)
    }

    /// Steps that all ranks have done.
    fn ring_steps(&self) -> u32 {
        let ring = self.ring.as_ref();
        let steps =
            |ring: &Ring| (0..self.world.hosts().len()).map(|rank| ring.steps_done(rank)).min();
        ring.and_then(steps).unwrap_or(0)
    }

    /// The first element of every chunk of a rank.
    fn chunks_of(&self, rank: usize) -> Vec<f32> {
        let Some(ring) = &self.ring else { return Vec::new() };
        let bytes = self.world.hosts()[rank].memory.bytes(ring.buffer(rank));
        let size = self.world.hosts().len() as u64;
        let first =
            |chunk: u64| (chunk * (self.elements / size) + chunk.min(self.elements % size)) * 4;
        (0..size)
            .filter_map(|chunk| bytes.get(first(chunk) as usize..)?.first_chunk())
            .map(|word| f32::from_ne_bytes(*word))
            .collect()
    }

    /// Notes which chunks have changed.
    fn look_at_chunks(&mut self) {
        if self.ring.is_none() {
            return;
        }
        let at = self.world.now();
        for rank in 0..self.world.hosts().len() {
            for (chunk, value) in self.chunks_of(rank).into_iter().enumerate() {
                let known =
                    self.chunks.iter().rev().find(|it| it.rank == rank && it.chunk == chunk);
                if known.is_none_or(|it| it.value != value) {
                    self.chunks.push(ChunkState { at, rank, chunk, value });
                }
            }
        }
    }

    fn never(&self, what: String) -> LessonError {
        LessonError::NeverHappens { moment: self.moment, what }
    }

    /// Packets that have arrived or are lost.
    fn settled(&self) -> usize {
        let packets = self.world.timeline().packets.iter();
        packets.filter(|packet| packet.lost || !packet.arrivals.is_empty()).count()
    }

    fn show(&self, show: &Show) -> Result<Shown, LessonError> {
        Ok(match show {
            Show::Layers(number) => {
                let packets = &self.world.timeline().packets;
                let record = number.checked_sub(1).and_then(|place| packets.get(place));
                let record =
                    record.ok_or_else(|| self.unknown("packet of number", &number.to_string()))?;
                Shown {
                    title: format!("packet {number}, layer by layer"),
                    lines: crate::layers::lines(&record.frame),
                }
            }
            Show::Text { region, bytes } => {
                let (host, span) = self.region(region)?;
                let held = self.world.hosts()[host].memory.bytes(span);
                let held = &held[..held.len().min(*bytes)];
                let text: String = held
                    .iter()
                    .map(|byte| match byte {
                        b' '..=b'~' => char::from(*byte),
                        _ => '.',
                    })
                    .collect();
                let name = &self.world.hosts()[host].name;
                Shown { title: format!("{name}'s memory, {region:?}"), lines: vec![text] }
            }
            Show::Number { region } => {
                let (host, span) = self.region(region)?;
                let held = self.world.hosts()[host].memory.bytes(span);
                let word = held.first_chunk().map_or(0, |word| u64::from_ne_bytes(*word));
                let name = &self.world.hosts()[host].name;
                let title = format!("{name}'s memory, {region:?}, as a number");
                Shown { title, lines: vec![word.to_string()] }
            }
            Show::QueuePair { host } => {
                let (end, _) = self.end(host)?;
                let info = self.world.hosts()[end.host].endpoint.query_qp(end.qpn);
                let info = info.ok_or_else(|| self.unknown("queue pair of", host))?;
                let lines = vec![
                    format!("state {}", info.state),
                    attributes_in_words(&info.attributes),
                    format!(
                        "{} requests outstanding, {} receives posted",
                        info.sends_outstanding, info.receives_posted
                    ),
                ];
                Shown { title: format!("{host}'s queue pair {:#x}", end.qpn.get()), lines }
            }
            Show::Counters { host, names } => {
                let place = self.host(host)?;
                let all: HashMap<_, _> = self.world.hosts()[place].counters().iter().collect();
                let line = |name: &String| match all.get(name.as_str()) {
                    Some(count) => Ok(format!("{name} {count}")),
                    None => Err(self.unknown("counter", name)),
                };
                let lines = names.iter().map(line).collect::<Result<_, _>>()?;
                Shown { title: format!("{host}'s counters"), lines }
            }
            Show::Chunks {} => {
                let hosts = self.world.hosts();
                let width = hosts.len().max(4);
                let names = (0..hosts.len()).map(|chunk| format!("  chunk {chunk:<width$}"));
                let mut lines = vec![format!("{:8}{}", "", names.collect::<String>().trim_end())];
                for (rank, host) in hosts.iter().enumerate() {
                    let values = self.chunks_of(rank).into_iter().map(|value| {
                        let digits = format!("{value:0width$}", width = hosts.len());
                        format!("  {digits:<width$}", width = width + 6)
                    });
                    let line = format!("{:8}{}", host.name, values.collect::<String>());
                    lines.push(line.trim_end().to_owned());
                }
                Shown { title: "what every rank has, chunk by chunk".to_owned(), lines }
            }
        })
    }
}

/// A ring whose rank r contributes 10 to the power of r to every element.
fn build_ring(
    world: &mut World,
    data: &RingData,
    connection: ConnectionOptions,
) -> Result<Ring, LessonError> {
    let refused = |why: crate::RingError| LessonError::Refused { moment: 0, why: why.to_string() };
    if data.elements < world.hosts().len() as u64 || data.elements > 1 << 20 {
        return Err(out_of_range("the number of elements", data.elements));
    }
    // The large way however little there is, so that there are steps to look at.
    let settings = Settings { small_limit: 0, ..Settings::default() };
    let options = RingOptions { settings, connection, keep_data: true };
    let operation = Operation::all_reduce(DataType::F32, ReduceOp::Sum, data.elements);
    let ring = Ring::build(world, operation, options).map_err(refused)?;
    for rank in 0..world.hosts().len() {
        let contribution = 10f32.powi(rank as i32).to_ne_bytes();
        let bytes = world.host_mut(rank).memory.bytes_mut(ring.buffer(rank));
        for element in bytes.chunks_exact_mut(4) {
            element.copy_from_slice(&contribution);
        }
    }
    Ok(ring)
}

/// Frames that a script may plan ahead.
const MAX_PLAN: usize = 100_000;

fn place_of(world: &World, name: &str, moment: usize) -> Result<usize, LessonError> {
    world.hosts().iter().position(|host| host.name == name).ok_or_else(|| LessonError::Unknown {
        moment,
        what: "host",
        name: name.to_owned(),
    })
}

fn register(world: &mut World, host: usize, data: &RegionData) -> Region {
    let rights = data.rights.iter().fold(AccessFlags::empty(), |rights, right| {
        rights
            | match right {
                Right::LocalWrite => AccessFlags::LOCAL_WRITE,
                Right::RemoteRead => AccessFlags::REMOTE_READ,
                Right::RemoteWrite => AccessFlags::REMOTE_WRITE,
                Right::RemoteAtomic => AccessFlags::REMOTE_ATOMIC,
            }
    });
    let memory = &mut world.host_mut(host).memory;
    let region = memory.register(data.bytes, rights);
    let bytes = memory.bytes_mut(region);
    if data.pattern {
        for (offset, byte) in bytes.iter_mut().enumerate() {
            *byte = (offset / 251 + offset) as u8;
        }
    }
    let number = data.number.map(u64::to_ne_bytes);
    for (byte, value) in bytes.iter_mut().zip(number.iter().flatten()) {
        *byte = *value;
    }
    for (byte, value) in bytes.iter_mut().zip(data.text.as_bytes()) {
        *byte = *value;
    }
    region
}

fn options(data: &ConnectionData) -> Result<ConnectionOptions, LessonError> {
    let path_mtu = PathMtu::from_bytes(data.path_mtu);
    let ack_timeout = AckTimeout::new(data.ack_timeout);
    let min_rnr_timer = RnrTimer::new(data.rnr_timer);
    Ok(ConnectionOptions {
        path_mtu: path_mtu.ok_or_else(|| out_of_range("path-mtu", data.path_mtu))?,
        first_psn: data.first_psn,
        ack_timeout: ack_timeout.ok_or_else(|| out_of_range("ack-timeout", data.ack_timeout))?,
        retry_count: data.retry_count.min(7),
        rnr_retry: data.rnr_retry.min(7),
        min_rnr_timer: min_rnr_timer.ok_or_else(|| out_of_range("rnr-timer", data.rnr_timer))?,
        ..ConnectionOptions::default()
    })
}

fn out_of_range(what: &'static str, value: impl ToString) -> LessonError {
    LessonError::OutOfRange { what, value: value.to_string() }
}

fn attributes_in_words(told: &roce_transport::QpAttributes) -> String {
    let mut words = Vec::new();
    if told.access.is_some() {
        words.push("what the peer may do".to_owned());
    }
    if let Some(path) = told.path {
        words.push(format!("the peer's address {}", path.remote));
    }
    if let Some(qpn) = told.dest_qpn {
        words.push(format!("its queue pair {:#x}", qpn.get()));
    }
    if let Some(psn) = told.rq_psn {
        words.push(format!("expected PSN {}", psn.get()));
    }
    if let Some(mtu) = told.path_mtu {
        words.push(format!("path MTU {mtu}"));
    }
    if let Some(timer) = told.min_rnr_timer {
        words.push(format!("RNR wait {:?}", timer.duration()));
    }
    if let Some(psn) = told.sq_psn {
        words.push(format!("first PSN {}", psn.get()));
    }
    if let Some(timeout) = told.ack_timeout {
        let wait = timeout.duration().unwrap_or(Duration::MAX);
        words.push(format!("ACK timeout {wait:?}"));
    }
    if let Some(count) = told.retry_count {
        words.push(format!("{count} retries"));
    }
    words.join(", ")
}
