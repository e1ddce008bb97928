//! One lane: the queue pairs to both neighbours, what those write, and how work is posted.
//!
//! For a message of a few bytes, posting, completing and acknowledging cost as much as the
//! message. So receives are armed many at a time, which takes a few more of them than the
//! protocol needs; short messages are copied when they are posted, so that nobody waits for
//! their completion; and of what nobody waits for, one in many is signaled, to keep count of
//! the send queue.

use roce_ring::{Geometry, Side, WindowRecord};
use roce_verbs::{
    AccessFlags, Data, MemoryRegion, QueuePair, RecvWork, RemoteSpan, SendOperation, SendWork, Sge,
};

use crate::config::GroupConfig;
use crate::error::Error;
use crate::rail::{Rail, options};

/// One queue pair to the next rank, one to the previous rank, and what those write.
#[derive(Debug)]
pub(crate) struct Lane {
    pub(crate) rail: usize,
    /// The previous rank writes data here.
    pub(crate) staging: MemoryRegion,
    /// The next rank writes its window here.
    pub(crate) record: MemoryRegion,
    /// The next rank's staging.
    pub(crate) next_staging: RemoteSpan,
    /// The previous rank's record.
    pub(crate) previous_record: RemoteSpan,
    next: End,
    previous: End,
}

/// A queue pair, and what was put off there.
#[derive(Debug)]
struct End {
    queue_pair: QueuePair,
    /// Receives to be armed.
    unarmed: u32,
    /// How many of them are armed at a time.
    batch: u32,
    /// Sends since the last one that was signaled.
    unsignaled: u32,
    /// One in so many is signaled.
    signal_every: u32,
    /// Sends to be posted.
    unposted: Vec<SendWork>,
}

/// What a message carries.
#[derive(Debug)]
pub(crate) enum Payload<'a> {
    /// Bytes to be copied now: at most [`Lane::COPIED`].
    Copied(&'a [u8]),
    /// Memory that stays as it is until the completion, which is signaled.
    Memory(Sge),
}

impl Lane {
    /// Up to how many bytes a message is copied when it is posted. What fits into the work
    /// request itself: anything longer would be allocated.
    pub(crate) const COPIED: usize = 64;

    /// Makes the queue pairs, all receives armed.
    pub(crate) fn open(
        rail: &Rail,
        number: usize,
        config: &GroupConfig,
        geometry: &Geometry,
    ) -> Result<Self, Error> {
        let access = AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_WRITE;
        let bytes = usize::try_from(geometry.staging_bytes()).unwrap_or(usize::MAX);
        let nowhere = RemoteSpan { address: 0, key: 0 };
        let (to_next, to_previous) = (geometry.sends_to_next(), geometry.sends_to_previous());
        Ok(Self {
            rail: number,
            staging: rail.pd.register(bytes, access)?,
            record: rail.pd.register(WindowRecord::LEN, access)?,
            next_staging: nowhere,
            previous_record: nowhere,
            next: End::open(rail, to_next, geometry.receives_at_next(), config)?,
            previous: End::open(rail, to_previous, geometry.receives_at_previous(), config)?,
        })
    }

    /// How many completions a lane can have outstanding.
    pub(crate) fn completions(geometry: &Geometry) -> u32 {
        End::receives(geometry.receives_at_next())
            + End::receives(geometry.receives_at_previous())
            + geometry.sends_to_next()
            + geometry.sends_to_previous()
    }

    pub(crate) fn queue_pair(&self, side: Side) -> &QueuePair {
        match side {
            Side::Next => &self.next.queue_pair,
            Side::Previous => &self.previous.queue_pair,
        }
    }

    /// Writes to the next rank.
    pub(crate) fn send(
        &mut self,
        id: u64,
        remote: RemoteSpan,
        immediate: u32,
        payload: Payload<'_>,
    ) -> Result<(), Error> {
        self.next.write(id, remote, immediate, payload)
    }

    /// Tells the previous rank what was consumed.
    pub(crate) fn credit(&mut self, id: u64, immediate: u32) -> Result<(), Error> {
        let nowhere = RemoteSpan { address: 0, key: 0 };
        self.previous.write(id, nowhere, immediate, Payload::Copied(&[]))
    }

    /// Tells the previous rank where to write.
    pub(crate) fn announce(
        &mut self,
        id: u64,
        immediate: u32,
        record: &WindowRecord,
    ) -> Result<(), Error> {
        let bytes = record.to_bytes();
        self.previous.write(id, self.previous_record, immediate, Payload::Copied(&bytes))
    }

    /// Posts the sends that were put off.
    pub(crate) fn post(&mut self) -> Result<(), Error> {
        self.next.post()?;
        self.previous.post()
    }

    /// Arms a receive, now or a little later: there are enough.
    pub(crate) fn rearm(&mut self, side: Side) -> Result<(), Error> {
        let end = match side {
            Side::Next => &mut self.next,
            Side::Previous => &mut self.previous,
        };
        end.unarmed += 1;
        if end.unarmed == end.batch { end.arm() } else { Ok(()) }
    }

    /// The window that the next rank announced last.
    pub(crate) fn window(&self) -> Result<WindowRecord, Error> {
        let mut bytes = [0; WindowRecord::LEN];
        self.record.read(0, &mut bytes)?;
        Ok(WindowRecord::from_bytes(&bytes))
    }
}

/// More would leave a full queue unnoticed for longer, and save nothing that can be measured.
const MOST_UNSIGNALED: u32 = 16;

impl End {
    /// At a queue pair that sends at most `sends` and needs `receives`.
    fn open(rail: &Rail, sends: u32, receives: u32, config: &GroupConfig) -> Result<Self, Error> {
        let armed = Self::receives(receives);
        let builder = rail.pd.queue_pair(&rail.cq, &rail.cq);
        let builder = builder.max_send_wr(sends).max_recv_wr(armed).max_send_sge(1);
        let queue_pair = builder.build()?;
        queue_pair.init(&options(config))?;
        let mut end = Self {
            queue_pair,
            unarmed: armed,
            batch: armed - receives,
            unsignaled: 0,
            // The machine waits when the queue is full: long before that, it hears of room.
            signal_every: (sends / 2).clamp(1, MOST_UNSIGNALED),
            unposted: Vec::new(),
        };
        end.arm()?;
        Ok(end)
    }

    /// How many receives are armed where so many are needed.
    const fn receives(needed: u32) -> u32 {
        needed + needed.div_ceil(2)
    }

    /// Posts the receives that were put off; they need no memory, since all messages are
    /// writes.
    fn arm(&mut self) -> Result<(), Error> {
        let count = std::mem::take(&mut self.unarmed);
        Ok(self.queue_pair.post_recv((0..count).map(|_| RecvWork::new(0, [])))?)
    }

    fn write(
        &mut self,
        id: u64,
        remote: RemoteSpan,
        immediate: u32,
        payload: Payload<'_>,
    ) -> Result<(), Error> {
        let operation = SendOperation::Write { remote, immediate: Some(immediate.to_be_bytes()) };
        let work = match payload {
            Payload::Copied(bytes) => SendWork::inline(id, operation, bytes),
            Payload::Memory(sge) => SendWork::new(id, operation, [sge]).signaled(),
        };
        self.unsignaled += 1;
        let work = if self.unsignaled >= self.signal_every { work.signaled() } else { work };
        if work.signaled {
            self.unsignaled = 0;
        }
        let is_long = matches!(work.data, Data::Gather(_));
        self.unposted.push(work);
        if is_long { self.post() } else { Ok(()) }
    }

    /// Posts the sends that were put off.
    fn post(&mut self) -> Result<(), Error> {
        if self.unposted.is_empty() {
            return Ok(());
        }
        Ok(self.queue_pair.post_send(self.unposted.drain(..))?)
    }
}
