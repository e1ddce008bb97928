//! One lane: the queue pairs to both neighbours, what those write, and how work is posted.
//!
//! For a message of a few bytes, posting, completing and acknowledging cost as much as the
//! message. So receives are armed many at a time, which takes a few more of them than the
//! protocol needs; short messages are max_bounce when they are posted, so that nobody waits for
//! their completion; and of what nobody waits for, one in many is signaled, to keep count of
//! the send queue, and the rest is acknowledged when it suits.
//!
//! What does not fit into a work request is copied into the *outbox*: a cell for each of the
//! neighbour's slots. Before a slot is written again the neighbour has told that it consumed what
//! was there, so all of it had arrived, and the cell is free.

use roce_ring::{Geometry, Side, WindowRecord};
use roce_verbs::{
    AccessFlags, MemoryRegion, QueuePair, RecvWr, RemoteAddr, SendOperation, SendWr, Sge,
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
    pub(crate) previous_record: RemoteAddr,
    next: LaneQp,
    previous: LaneQp,
}

/// A queue pair, and what was put off there.
#[derive(Debug)]
struct LaneQp {
    queue_pair: QueuePair,
    /// The neighbour writes data here.
    staging: MemoryRegion,
    /// And we write here.
    remote_staging: RemoteAddr,
    /// Copies of short messages into its slots, a cell for each.
    bounce_buffer: MemoryRegion,
    /// Bytes of a cell.
    bounce_slot: usize,
    /// Receives to be armed.
    unarmed: u32,
    /// How many of them are armed at a time.
    batch: u32,
    /// Sends since the last one that was signaled.
    unsignaled: u32,
    /// One in so many is signaled.
    signal_every: u32,
    /// Sends to be posted.
    deferred: Vec<SendWr>,
}

/// What a message carries.
#[derive(Debug)]
pub(crate) enum Payload<'a> {
    /// Bytes to be copied now into the work request: at most [`Lane::INLINE`].
    Inline(&'a [u8]),
    /// Bytes to be copied now into the outbox: at most [`Lane::copied`]. They go to this slot.
    Bounced { slot: u32, bytes: &'a [u8] },
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
    pub(crate) const MAX_BOUNCE: usize = 16 << 10;

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
            previous_record: NO_REMOTE,
            next: LaneQp::open(rail, geometry, Side::Next, config)?,
            previous: LaneQp::open(rail, geometry, Side::Previous, config)?,
        })
    }

    /// How many completions a lane can have outstanding.
    pub(crate) fn completions(geometry: &Geometry) -> u32 {
        2 * (LaneQp::receives(geometry.receives()) + geometry.sends())
    }

    fn qp_of(&self, side: Side) -> &LaneQp {
        match side {
            Side::Next => &self.next,
            Side::Previous => &self.previous,
        }
    }

    fn qp_of_mut(&mut self, side: Side) -> &mut LaneQp {
        match side {
            Side::Next => &mut self.next,
            Side::Previous => &mut self.previous,
        }
    }

    pub(crate) fn queue_pair(&self, side: Side) -> &QueuePair {
        &self.qp_of(side).queue_pair
    }

    /// What a neighbour writes data to.
    pub(crate) fn staging(&self, side: Side) -> &MemoryRegion {
        &self.qp_of(side).staging
    }

    /// What we write data to at a neighbour.
    pub(crate) fn remote_staging(&self, side: Side) -> RemoteAddr {
        self.qp_of(side).remote_staging
    }

    pub(crate) fn set_remote_staging(&mut self, side: Side, span: RemoteAddr) {
        self.qp_of_mut(side).remote_staging = span;
    }

    /// Up to how many bytes to a slot of this neighbour can be copied into the outbox.
    pub(crate) fn max_bounce(&self, side: Side) -> u64 {
        self.qp_of(side).bounce_slot as u64
    }

    /// Bytes that neighbours write to, and the outboxes.
    pub(crate) fn registered_bytes(&self) -> u64 {
        let of = |qp_of: &LaneQp| qp_of.staging.len() + qp_of.bounce_buffer.len();
        (of(&self.next) + of(&self.previous) + self.record.len()) as u64
    }

    /// Writes to a neighbour, at once: it waits for this.
    pub(crate) fn send(
        &mut self,
        side: Side,
        id: u64,
        remote: RemoteAddr,
        immediate: u32,
        payload: Payload<'_>,
    ) -> Result<(), Error> {
        let qp_of = self.qp_of_mut(side);
        let work = qp_of.work(id, remote, immediate, payload)?;
        if qp_of.deferred.is_empty() {
            return Ok(qp_of.queue_pair.post_send([work])?);
        }
        qp_of.deferred.push(work);
        qp_of.post()
    }

    /// Tells a neighbour what was consumed.
    pub(crate) fn credit(&mut self, side: Side, id: u64, immediate: u32) -> Result<(), Error> {
        self.qp_of_mut(side).defer(id, NO_REMOTE, immediate, &[])
    }

    /// Tells the previous rank where to write.
    pub(crate) fn announce(
        &mut self,
        id: u64,
        immediate: u32,
        record: &WindowRecord,
    ) -> Result<(), Error> {
        let bytes = record.to_bytes();
        self.previous.defer(id, self.previous_record, immediate, &bytes)
    }

    /// Posts the sends that were put off.
    pub(crate) fn post(&mut self) -> Result<(), Error> {
        self.next.post()?;
        self.previous.post()
    }

    /// Arms a receive, now or a little later: there are enough.
    pub(crate) fn rearm(&mut self, side: Side) -> Result<(), Error> {
        let qp_of = self.qp_of_mut(side);
        qp_of.unarmed += 1;
        if qp_of.unarmed == qp_of.batch { qp_of.arm() } else { Ok(()) }
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
const NO_REMOTE: RemoteAddr = RemoteAddr { addr: 0, rkey: 0 };
/// After as many frames the engine asks the peer for an acknowledgement anyway.
const MAX_UNSIGNALED: u32 = 24;

impl LaneQp {
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
        let bounce_slot = pitch.min(Lane::MAX_BOUNCE);
        let armed = Self::receives(receives);
        let builder = rail.pd.queue_pair(&rail.cq, &rail.cq);
        let builder = builder.max_send_wr(sends).max_recv_wr(armed).max_send_sge(1);
        let queue_pair = builder.build()?;
        queue_pair.init(&options(config))?;
        let mut qp_of = Self {
            queue_pair,
            staging: rail.pd.register(bytes, ACCESS)?,
            remote_staging: NO_REMOTE,
            bounce_buffer: rail
                .pd
                .register(bounce_slot * geometry.slots() as usize, AccessFlags::LOCAL_WRITE)?,
            bounce_slot,
            unarmed: armed,
            batch: receives.div_ceil(2),
            unsignaled: 0,
            // The machine waits when it has sent as many credits, or as much data, as there is room
            // for: long before that, it hears of room.
            signal_every: (2 * geometry.slots()).min(MAX_UNSIGNALED),
            deferred: Vec::new(),
        };
        qp_of.arm()?;
        Ok(qp_of)
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
        Ok(self.queue_pair.post_recv((0..count).map(|_| RecvWr::new(0, [])))?)
    }

    /// What does not hurry: it is posted together with what else there is.
    fn defer(
        &mut self,
        id: u64,
        remote: RemoteAddr,
        immediate: u32,
        bytes: &[u8],
    ) -> Result<(), Error> {
        let work = self.work(id, remote, immediate, Payload::Inline(bytes))?;
        self.deferred.push(work);
        Ok(())
    }

    /// The request that writes this.
    fn work(
        &mut self,
        id: u64,
        remote: RemoteAddr,
        immediate: u32,
        payload: Payload<'_>,
    ) -> Result<SendWr, Error> {
        let operation = SendOperation::Write { remote, immediate: Some(immediate.to_be_bytes()) };
        let work = match payload {
            Payload::Inline(bytes) => SendWr::inline(id, operation, bytes).defer_ack(),
            Payload::Bounced { slot, bytes } => {
                let start = slot as usize * self.bounce_slot;
                self.bounce_buffer.write(start, bytes)?;
                let copy = self.bounce_buffer.sge(start..start + bytes.len())?;
                SendWr::new(id, operation, [copy]).defer_ack()
            }
            Payload::Memory(sge) => SendWr::new(id, operation, [sge]).signaled(),
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
        if self.deferred.is_empty() {
            return Ok(());
        }
        Ok(self.queue_pair.post_send(self.deferred.drain(..))?)
    }
}
