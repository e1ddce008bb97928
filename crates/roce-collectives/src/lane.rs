//! One lane: the queue pairs to both neighbours, what those write, and how work is posted.
//!
//! For a message of a few bytes, posting, completing and acknowledging cost as much as the
//! message. So receives are armed many at a time, which takes a few more of them than the
//! protocol needs; short messages are copied when they are posted, so that nobody waits for
//! their completion; and of what nobody waits for, one in many is signaled, to keep count of
//! the send queue, and the rest is acknowledged when it suits.
//!
//! What does not fit into a work request is copied into the *outbox*: a cell for each of the
//! neighbour's slots. Before a slot is written again the neighbour has told that it consumed what
//! was there, so all of it had arrived, and the cell is free.

use roce_ring::{Geometry, Side, WindowRecord};
use roce_verbs::{
    AccessFlags, MemoryRegion, QueuePair, RecvWork, RemoteSpan, SendOperation, SendWork, Sge,
};

use crate::config::GroupConfig;
use crate::error::Error;
use crate::rail::{Rail, options};

/// One queue pair to the next rank, one to the previous rank, and what those write.
#[derive(Debug)]
pub(crate) struct Lane {
    pub(crate) rail: usize,
    /// The next rank writes its window here.
    pub(crate) record: MemoryRegion,
    /// The previous rank's record.
    pub(crate) previous_record: RemoteSpan,
    next: End,
    previous: End,
}

/// A queue pair, and what was put off there.
#[derive(Debug)]
struct End {
    queue_pair: QueuePair,
    /// The neighbour writes data here.
    staging: MemoryRegion,
    /// And we write here.
    remote_staging: RemoteSpan,
    /// Copies of short messages into its slots, a cell for each.
    outbox: MemoryRegion,
    /// Bytes of a cell.
    cell: usize,
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
    /// Bytes to be copied now into the work request: at most [`Lane::INLINE`].
    Inline(&'a [u8]),
    /// Bytes to be copied now into the outbox: at most [`Lane::copied`]. They go to this slot.
    Copied { slot: u32, bytes: &'a [u8] },
    /// Memory that stays as it is until the completion, which is signaled.
    Memory(Sge),
}

impl Lane {
    /// Up to how many bytes a message is copied into its work request: anything longer would be
    /// allocated.
    pub(crate) const INLINE: usize = 64;
    /// The most bytes that are copied into the outbox. Over veth with two ranks that takes a third
    /// off an allreduce of 1 KiB and a quarter off one of 8 and 16 KiB; off one of 32 KiB it takes
    /// nothing.
    pub(crate) const MOST_COPIED: usize = 16 << 10;

    /// Makes the queue pairs, all receives armed.
    pub(crate) fn open(
        rail: &Rail,
        number: usize,
        config: &GroupConfig,
        geometry: &Geometry,
    ) -> Result<Self, Error> {
        let record = rail.pd.register(WindowRecord::LEN, ACCESS)?;
        Ok(Self {
            rail: number,
            record,
            previous_record: NOWHERE,
            next: End::open(rail, geometry, Side::Next, config)?,
            previous: End::open(rail, geometry, Side::Previous, config)?,
        })
    }

    /// How many completions a lane can have outstanding.
    pub(crate) fn completions(geometry: &Geometry) -> u32 {
        2 * (End::receives(geometry.receives()) + geometry.sends())
    }

    fn end(&self, side: Side) -> &End {
        match side {
            Side::Next => &self.next,
            Side::Previous => &self.previous,
        }
    }

    fn end_mut(&mut self, side: Side) -> &mut End {
        match side {
            Side::Next => &mut self.next,
            Side::Previous => &mut self.previous,
        }
    }

    pub(crate) fn queue_pair(&self, side: Side) -> &QueuePair {
        &self.end(side).queue_pair
    }

    /// What a neighbour writes data to.
    pub(crate) fn staging(&self, side: Side) -> &MemoryRegion {
        &self.end(side).staging
    }

    /// What we write data to at a neighbour.
    pub(crate) fn remote_staging(&self, side: Side) -> RemoteSpan {
        self.end(side).remote_staging
    }

    pub(crate) fn set_remote_staging(&mut self, side: Side, span: RemoteSpan) {
        self.end_mut(side).remote_staging = span;
    }

    /// Up to how many bytes to a slot of this neighbour can be copied into the outbox.
    pub(crate) fn copied(&self, side: Side) -> u64 {
        self.end(side).cell as u64
    }

    /// Bytes that neighbours write to, and the outboxes.
    pub(crate) fn registered_bytes(&self) -> u64 {
        let of = |end: &End| end.staging.len() + end.outbox.len();
        (of(&self.next) + of(&self.previous) + self.record.len()) as u64
    }

    /// Writes to a neighbour, at once: it waits for this.
    pub(crate) fn send(
        &mut self,
        side: Side,
        id: u64,
        remote: RemoteSpan,
        immediate: u32,
        payload: Payload<'_>,
    ) -> Result<(), Error> {
        let end = self.end_mut(side);
        let work = end.work(id, remote, immediate, payload)?;
        if end.unposted.is_empty() {
            return Ok(end.queue_pair.post_send([work])?);
        }
        end.unposted.push(work);
        end.post()
    }

    /// Tells a neighbour what was consumed.
    pub(crate) fn credit(&mut self, side: Side, id: u64, immediate: u32) -> Result<(), Error> {
        self.end_mut(side).put_off(id, NOWHERE, immediate, &[])
    }

    /// Tells the previous rank where to write.
    pub(crate) fn announce(
        &mut self,
        id: u64,
        immediate: u32,
        record: &WindowRecord,
    ) -> Result<(), Error> {
        let bytes = record.to_bytes();
        self.previous.put_off(id, self.previous_record, immediate, &bytes)
    }

    /// Posts the sends that were put off.
    pub(crate) fn post(&mut self) -> Result<(), Error> {
        self.next.post()?;
        self.previous.post()
    }

    /// Arms a receive, now or a little later: there are enough.
    pub(crate) fn rearm(&mut self, side: Side) -> Result<(), Error> {
        let end = self.end_mut(side);
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

/// What neighbours may do with our memory.
const ACCESS: AccessFlags = AccessFlags::LOCAL_WRITE.union(AccessFlags::REMOTE_WRITE);
const NOWHERE: RemoteSpan = RemoteSpan { address: 0, key: 0 };
/// After as many frames the engine asks the peer for an acknowledgement anyway.
const MOST_UNSIGNALED: u32 = 24;

impl End {
    fn open(
        rail: &Rail,
        geometry: &Geometry,
        side: Side,
        config: &GroupConfig,
    ) -> Result<Self, Error> {
        let (sends, receives) = (geometry.sends(), geometry.receives());
        let bytes = usize::try_from(match side {
            Side::Next => geometry.back_staging_bytes(),
            Side::Previous => geometry.staging_bytes(),
        });
        let bytes = bytes.unwrap_or(usize::MAX);
        // The neighbour's slots are those that it keeps for who stands on its other side.
        let pitch = usize::try_from(geometry.slot_pitch(side.opposite())).unwrap_or(usize::MAX);
        let cell = pitch.min(Lane::MOST_COPIED);
        let armed = Self::receives(receives);
        let builder = rail.pd.queue_pair(&rail.cq, &rail.cq);
        let builder = builder.max_send_wr(sends).max_recv_wr(armed).max_send_sge(1);
        let queue_pair = builder.build()?;
        queue_pair.init(&options(config))?;
        let mut end = Self {
            queue_pair,
            staging: rail.pd.register(bytes, ACCESS)?,
            remote_staging: NOWHERE,
            outbox: rail.pd.register(cell * geometry.slots() as usize, AccessFlags::LOCAL_WRITE)?,
            cell,
            unarmed: armed,
            batch: receives.div_ceil(2),
            unsignaled: 0,
            // The machine waits when it has sent as many credits, or as much data, as there is room
            // for: long before that, it hears of room.
            signal_every: (2 * geometry.slots()).min(MOST_UNSIGNALED),
            unposted: Vec::new(),
        };
        end.arm()?;
        Ok(end)
    }

    /// How many receives are armed where so many are needed. They are armed half of `needed` at a
    /// time, and a neighbour that asks for no acknowledgement asks all the same when it has used
    /// half of those that it knows of.
    const fn receives(needed: u32) -> u32 {
        2 * needed + needed.div_ceil(2)
    }

    /// Posts the receives that were put off; they need no memory, since all messages are
    /// writes.
    fn arm(&mut self) -> Result<(), Error> {
        let count = std::mem::take(&mut self.unarmed);
        Ok(self.queue_pair.post_recv((0..count).map(|_| RecvWork::new(0, [])))?)
    }

    /// What does not hurry: it is posted together with what else there is.
    fn put_off(
        &mut self,
        id: u64,
        remote: RemoteSpan,
        immediate: u32,
        bytes: &[u8],
    ) -> Result<(), Error> {
        let work = self.work(id, remote, immediate, Payload::Inline(bytes))?;
        self.unposted.push(work);
        Ok(())
    }

    /// The request that writes this.
    fn work(
        &mut self,
        id: u64,
        remote: RemoteSpan,
        immediate: u32,
        payload: Payload<'_>,
    ) -> Result<SendWork, Error> {
        let operation = SendOperation::Write { remote, immediate: Some(immediate.to_be_bytes()) };
        let work = match payload {
            Payload::Inline(bytes) => SendWork::inline(id, operation, bytes).lazily(),
            Payload::Copied { slot, bytes } => {
                let start = slot as usize * self.cell;
                self.outbox.write(start, bytes)?;
                let copy = self.outbox.sge(start..start + bytes.len())?;
                SendWork::new(id, operation, [copy]).lazily()
            }
            Payload::Memory(sge) => SendWork::new(id, operation, [sge]).signaled(),
        };
        self.unsignaled += 1;
        let work = if self.unsignaled >= self.signal_every { work.signaled() } else { work };
        if work.signaled {
            self.unsignaled = 0;
        }
        Ok(work)
    }

    /// Posts the sends that were put off.
    fn post(&mut self) -> Result<(), Error> {
        if self.unposted.is_empty() {
            return Ok(());
        }
        Ok(self.queue_pair.post_send(self.unposted.drain(..))?)
    }
}
