//! A rank with its machine and buffers.

use std::collections::HashMap;

use roce_ring::{
    Geometry, Machine, MachineError, MemoryKind, MemorySpan, Operation, RankMemory, Side,
    WindowRecord,
};
use roce_transport::{AccessFlags, Instant, SgList};
use roce_wire::Qpn;

use super::{RingError, RingOptions};
use roce_simnet::{End, Host, Region, World};

/// A rank with its machine and buffers.
#[derive(Debug)]
pub(super) struct Rank {
    pub(super) machine: Machine,
    pub(super) ends: HashMap<Qpn, (Side, u32)>,
    /// Queue pairs to the previous rank, by lane.
    pub(super) previous: Vec<End>,
    /// Queue pairs to the next rank, by lane.
    pub(super) next: Vec<End>,
    pub(super) buffer: Region,
    pub(super) scratch: Region,
    /// Slots of this rank for both neighbours, by lane.
    pub(super) staging: Vec<[Region; 2]>,
    /// Records of the next rank's output window, by lane.
    pub(super) records: Vec<Region>,
    /// Slots for this rank at both neighbours, by lane.
    pub(super) remote_staging: Vec<[Region; 2]>,
    /// Records of the previous rank, by lane.
    pub(super) previous_records: Vec<Region>,
    /// Number of steps whose messages were received.
    pub(super) steps: u32,
    pub(super) done_at: Option<Instant>,
}

impl Rank {
    pub(super) fn new(
        world: &mut World,
        rank: usize,
        geometry: Geometry,
        operation: &Operation,
        options: &RingOptions,
    ) -> Result<Self, RingError> {
        let (input, output) = operation.buffer_bytes(&geometry)?;
        let memory = &mut world.hosts[rank].memory;
        let mut register = |bytes: u64, rights| -> Result<Region, RingError> {
            if !options.keep_data {
                return Ok(memory.register_unkept(bytes, rights));
            }
            let len = usize::try_from(bytes).map_err(|_| RingError::TooLarge { bytes })?;
            Ok(memory.register(len, rights))
        };
        let from_afar = AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_WRITE;
        let buffer = register(input.max(output), from_afar)?;
        let scratch = register(geometry.scratch_bytes(), AccessFlags::LOCAL_WRITE)?;
        let lanes = 0..geometry.lanes();
        let staging = lanes.clone().map(|_| {
            let previous = register(geometry.staging_bytes(), from_afar)?;
            Ok([previous, register(geometry.back_staging_bytes(), from_afar)?])
        });
        let staging = staging.collect::<Result<_, RingError>>()?;
        // The records are kept in any case: addresses are read from them.
        let memory = &mut world.hosts[rank].memory;
        let records = lanes.map(|_| memory.register(WindowRecord::LEN, from_afar)).collect();
        Ok(Self {
            machine: Machine::new(geometry),
            ends: HashMap::new(),
            previous: Vec::new(),
            next: Vec::new(),
            buffer,
            scratch,
            staging,
            records,
            remote_staging: Vec::new(),
            previous_records: Vec::new(),
            steps: 0,
            done_at: None,
        })
    }

    /// The queue pair to a neighbour.
    pub(super) fn end(&self, side: Side, lane: u32) -> End {
        match side {
            Side::Previous => self.previous[lane as usize],
            Side::Next => self.next[lane as usize],
        }
    }

    pub(super) fn receive(
        &mut self,
        world: &World,
        rank: usize,
        completion: &roce_transport::Completion,
    ) -> Result<(), RingError> {
        let Some((side, lane)) = self.ends.get(&completion.qpn).copied() else { return Ok(()) };
        let immediate = u32::from_be_bytes(completion.immediate.unwrap_or_default());
        let record = self.records[lane as usize];
        let read = || {
            let bytes = world.hosts[rank].memory.bytes(record);
            let bytes = bytes.first_chunk().copied().unwrap_or_default();
            WindowRecord::from_bytes(&bytes)
        };
        let len = completion.byte_len;
        let handled = self.machine.handle_message(side, lane, immediate, len, read);
        handled.map_err(|fault| match fault {
            MachineError::Peer(why) => RingError::Violation { rank, why },
            MachineError::Caller(why) => RingError::UsageError { rank, why },
        })
    }

    /// Which registered bytes a place begins with, and how far its part is from there.
    pub(super) fn region(&self, memory: MemoryKind) -> (Region, u64) {
        match memory {
            MemoryKind::Input | MemoryKind::Output => (self.buffer, 0),
            MemoryKind::Scratch => (self.scratch, 0),
            MemoryKind::Slot { side, lane, index } => {
                let start = u64::from(index) * self.machine.geometry().slot_pitch(side);
                (self.staging[lane as usize][side as usize], start)
            }
        }
    }

    pub(super) fn pieces(&self, span: MemorySpan) -> SgList {
        if span.len == 0 {
            return SgList::default();
        }
        let (region, start) = self.region(span.memory);
        // A piece is never longer than a slot.
        SgList::from([region.piece(start + span.offset, span.len as u32)])
    }
}

/// A rank's memory, as its computations see it.
pub(super) struct Buffers<'a> {
    pub(super) host: &'a mut Host,
    pub(super) rank: &'a Rank,
}

impl RankMemory for Buffers<'_> {
    fn read(&mut self, memory: MemoryKind, offset: u64, into: &mut [u8]) {
        let (region, start) = self.rank.region(memory);
        let bytes = self.host.memory.bytes(region);
        into.copy_from_slice(&bytes[(start + offset) as usize..][..into.len()]);
    }

    fn write(&mut self, memory: MemoryKind, offset: u64, bytes: &[u8]) {
        let (region, start) = self.rank.region(memory);
        let into = self.host.memory.bytes_mut(region);
        into[(start + offset) as usize..][..bytes.len()].copy_from_slice(bytes);
    }
}
