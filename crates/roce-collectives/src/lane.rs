//! A lane: the queue pairs to both neighbours, the memory that these write, and the posting of
//! work.
//!
//! For a message of a few bytes, posting, completing and acknowledging cost as much as the message.
//! So receives are posted in batches, with a few more than the protocol needs. Short messages are
//! copied when they are posted, so no operation waits for their completion. Of these sends one in
//! many is signaled, to track the send queue, and the acknowledgements of the others are deferred.
//!
//! A short message that does not fit inline is copied into the *bounce buffer*, which has a slot
//! for each of the neighbour's slots. A slot is written again only after the neighbour reported it
//! consumed, so all of its bytes had arrived and the bounce slot is free.

use roce_ring::{Geometry, Side, WindowRecord};
use roce_verbs::{
    AccessFlags, MemoryRegion, QueuePair, RecvWr, RemoteAddr, SendOperation, SendWr, Sge,
};

use crate::config::GroupConfig;
use crate::error::Error;
use crate::rail::{Rail, options};

/// The queue pairs to the next and the previous rank, and the memory that these write.
#[derive(Debug)]
pub(crate) struct Lane {
    pub(crate) rail: usize,
    /// The record that the next rank writes.
    pub(crate) record: MemoryRegion,
    /// The previous rank's record.
    pub(crate) previous_record: RemoteAddr,
    next: LaneQp,
    previous: LaneQp,
}

/// The queue pair to one neighbour, with its deferred work.
#[derive(Debug)]
struct LaneQp {
    queue_pair: QueuePair,
    /// The memory that the neighbour writes data to.
    staging: MemoryRegion,
    /// The neighbour's memory that this rank writes data to.
    remote_staging: RemoteAddr,
    /// Copies of short messages, a bounce slot for each of the neighbour's slots.
    bounce_buffer: MemoryRegion,
    /// Bytes of a bounce slot.
    bounce_slot: usize,
    /// Receives to post.
    unarmed: u32,
    /// The number of receives posted at a time.
    batch: u32,
    /// Sends since the last signaled one.
    unsignaled: u32,
    /// One send in this many is signaled.
    signal_every: u32,
    /// Deferred sends.
    deferred: Vec<SendWr>,
}

/// The payload of a message.
#[derive(Debug)]
pub(crate) enum Payload<'a> {
    /// At most [`Lane::INLINE`] bytes to copy into the work request.
    Inline(&'a [u8]),
    /// At most [`Lane::max_bounce`] bytes to copy into the bounce buffer, for this slot.
    Bounced { slot: u32, bytes: &'a [u8] },
    /// Memory that does not change until the signaled completion.
    Memory(Sge),
}

impl Lane {
    /// The most inline bytes of a message; a work request allocates memory for more.
    pub(crate) const INLINE: usize = 64;
    /// The most bytes that are copied into the bounce buffer. Over veth with two ranks the copy
    /// takes a third off an allreduce of 1 KiB, a quarter off 8 and 16 KiB, and nothing off 32 KiB.
    pub(crate) const MAX_BOUNCE: usize = 16 << 10;

    /// Creates the queue pairs and posts all receives.
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

    /// Returns the most outstanding completions of a lane.
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

    /// Returns the memory that a neighbour writes data to.
    pub(crate) fn staging(&self, side: Side) -> &MemoryRegion {
        &self.qp_of(side).staging
    }

    /// Returns the neighbour's memory that this rank writes data to.
    pub(crate) fn remote_staging(&self, side: Side) -> RemoteAddr {
        self.qp_of(side).remote_staging
    }

    pub(crate) fn set_remote_staging(&mut self, side: Side, span: RemoteAddr) {
        self.qp_of_mut(side).remote_staging = span;
    }

    /// Returns the most bytes of a message to this neighbour that fit a bounce slot.
    pub(crate) fn max_bounce(&self, side: Side) -> u64 {
        self.qp_of(side).bounce_slot as u64
    }

    /// Returns the bytes of staging memory, records and bounce buffers.
    pub(crate) fn registered_bytes(&self) -> u64 {
        let of = |qp_of: &LaneQp| qp_of.staging.len() + qp_of.bounce_buffer.len();
        (of(&self.next) + of(&self.previous) + self.record.len()) as u64
    }

    /// Posts a write at once, since the neighbour waits for it.
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

    /// Defers a credit to a neighbour.
    pub(crate) fn credit(&mut self, side: Side, id: u64, immediate: u32) -> Result<(), Error> {
        self.qp_of_mut(side).defer(id, NO_REMOTE, immediate, &[])
    }

    /// Defers the announcement of this rank's window to the previous rank.
    pub(crate) fn announce(
        &mut self,
        id: u64,
        immediate: u32,
        record: &WindowRecord,
    ) -> Result<(), Error> {
        let bytes = record.to_bytes();
        self.previous.defer(id, self.previous_record, immediate, &bytes)
    }

    /// Posts the deferred sends.
    pub(crate) fn post(&mut self) -> Result<(), Error> {
        self.next.post()?;
        self.previous.post()
    }

    /// Posts a receive, now or with the next batch.
    pub(crate) fn rearm(&mut self, side: Side) -> Result<(), Error> {
        let qp_of = self.qp_of_mut(side);
        qp_of.unarmed += 1;
        if qp_of.unarmed == qp_of.batch { qp_of.arm() } else { Ok(()) }
    }

    /// Returns the window that the next rank announced last.
    pub(crate) fn window(&self) -> Result<WindowRecord, Error> {
        let mut bytes = [0; WindowRecord::LEN];
        self.record.read(0, &mut bytes)?;
        Ok(WindowRecord::from_bytes(&bytes))
    }
}

/// The neighbours' access to this rank's memory.
const ACCESS: AccessFlags = AccessFlags::LOCAL_WRITE.union(AccessFlags::REMOTE_WRITE);
const NO_REMOTE: RemoteAddr = RemoteAddr { addr: 0, rkey: 0 };
/// After this many frames the engine requests an acknowledgement anyway.
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
        // This rank is at the opposite side of the neighbour.
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
            // The machine waits when its credits or data fill the send queue; signals come long
            // before that.
            signal_every: (2 * geometry.slots()).min(MAX_UNSIGNALED),
            deferred: Vec::new(),
        };
        qp_of.arm()?;
        Ok(qp_of)
    }

    /// Returns the number of receives to post where `needed` are required. They are posted in
    /// batches of half of `needed`, and a neighbour that defers acknowledgements requests one when
    /// it has used half of the receives that it knows of.
    const fn receives(needed: u32) -> u32 {
        2 * needed + needed.div_ceil(2)
    }

    /// Posts the deferred receives. They have no memory, since all messages are writes.
    fn arm(&mut self) -> Result<(), Error> {
        let count = std::mem::take(&mut self.unarmed);
        Ok(self.queue_pair.post_recv((0..count).map(|_| RecvWr::new(0, [])))?)
    }

    /// Defers a send that is not urgent, to post it together with others.
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

    /// Returns the work request of a write.
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

    /// Posts the deferred sends.
    fn post(&mut self) -> Result<(), Error> {
        if self.deferred.is_empty() {
            return Ok(());
        }
        Ok(self.queue_pair.post_send(self.deferred.drain(..))?)
    }
}
