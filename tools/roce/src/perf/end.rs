//! What each end of a test is made of: queue pairs, a completion queue, memory.

use roce_verbs::exchange::QpDest;
use roce_verbs::{
    AccessFlags, CompletionChannel, CompletionQueue, ConnectOptions, Device, Gid, MemoryRegion,
    Pages, PathMtu, Psn, Qpn, QueuePair, RecvWr, RegisterOptions, RemoteAddr, SendOperation, Sge,
};

use super::control::{Introduction, QueuePairName};
use super::message::Message;
use super::plan::{AtomicKind, Plan, Test, Verb};
use crate::failure::{Failure, Outcome};

/// One end.
///
/// Its memory has two halves: messages leave from the first and arrive in the second, over
/// and over in the same place, as in perftest, or one behind the other.
#[derive(Debug)]
pub(crate) struct End {
    pub(crate) device: Device,
    pub(crate) queue: CompletionQueue,
    /// Where the queue reports, if this end sleeps between completions.
    pub(crate) channel: Option<CompletionChannel>,
    pub(crate) qps: Vec<QueuePair>,
    pub(crate) memory: MemoryRegion,
    /// Where the second half begins.
    pub(crate) half: usize,
    pub(crate) gid_index: u8,
}

impl End {
    pub(crate) fn new(device: &Device, plan: &Plan, manner: Manner) -> Outcome<Self> {
        let gid_index = match manner.gid_index.or(device.default_gid_index()?) {
            Some(index) => index,
            None => {
                let name = device.interface();
                return Err(Failure::new(format!(
                    "{name} has no address: ip address add 10.0.0.1/24 dev {name}"
                )));
            }
        };
        let pd = device.alloc_pd()?;
        let room = usize::try_from(plan.room().max(8))
            .map_err(|_| Failure::new("so much memory has no address on this machine"))?;
        let half = room.next_multiple_of(PAGE);
        let everything = AccessFlags::LOCAL_WRITE
            | AccessFlags::REMOTE_WRITE
            | AccessFlags::REMOTE_READ
            | AccessFlags::REMOTE_ATOMIC;
        let how = RegisterOptions { huge_pages: manner.huge_pages, ..RegisterOptions::default() };
        let memory = pd.register_with(2 * half, everything, how)?;
        if memory.pages() == Pages::HugeWhereFree {
            eprintln!(
                "not enough huge pages are reserved (sysctl vm.nr_hugepages={}): the kernel gives \
                 those that it has at hand",
                memory.len().div_ceil(HUGE_PAGE)
            );
        }
        let receives = if plan.verb == Verb::Send { plan.rx_depth } else { 1 };
        let room = (plan.tx_depth + receives) as usize * plan.qps as usize;
        let channel = manner.events.then(|| device.create_completion_channel()).transpose()?;
        let queue = device.create_cq(room, channel.as_ref())?;
        let make = |_| {
            pd.queue_pair(&queue, &queue)
                .max_send_wr(plan.tx_depth)
                .max_recv_wr(receives)
                .max_send_sge(1)
                .max_recv_sge(1)
                .max_inline(plan.inline)
                .build()
        };
        let qps = (0..plan.qps).map(make).collect::<Result<Vec<_>, _>>()?;
        Ok(Self { device: device.clone(), queue, channel, qps, memory, half, gid_index })
    }

    /// What the other end has to know.
    pub(crate) fn introduce(&self, gid_index: Option<u8>) -> Outcome<Introduction> {
        let name = |qp: &QueuePair| QueuePairName {
            number: qp.number().get(),
            first_psn: qp.first_psn().get(),
        };
        let dest = self.qps[0].dest(gid_index)?;
        Ok(Introduction {
            qps: self.qps.iter().map(name).collect(),
            gid: dest.gid.0,
            address: self.memory.address() + self.half as u64,
            key: self.memory.rkey(),
        })
    }

    pub(crate) fn connect(
        &self,
        theirs: &Introduction,
        plan: &Plan,
        gid_index: Option<u8>,
    ) -> Outcome {
        let options = ConnectOptions {
            gid_index,
            path_mtu: plan.path_mtu.and_then(PathMtu::from_bytes),
            timeout: plan.qp_timeout,
            max_rd_atomic: plan.outs,
            max_dest_rd_atomic: plan.outs,
            ..ConnectOptions::default()
        };
        let out_of_range = || Failure::new("the other end named an impossible queue pair");
        for (qp, name) in self.qps.iter().zip(&theirs.qps) {
            let peer = QpDest {
                qpn: Qpn::new(name.number).ok_or_else(out_of_range)?,
                psn: Psn::new(name.first_psn).ok_or_else(out_of_range)?,
                gid: Gid(theirs.gid),
            };
            qp.connect(&peer, &options)?;
        }
        Ok(())
    }

    /// Whether there is one queue pair only.
    pub(crate) fn is_alone(&self) -> bool {
        self.qps.len() == 1
    }

    /// Fills the memory that messages of this size will come from, and wipes the one that they
    /// will go to, where that is looked at afterwards.
    pub(crate) fn lay_out(&self, plan: &Plan, size: u32, is_client: bool) -> Outcome {
        if plan.test != Test::Bw || plan.verb == Verb::Atomic {
            return Ok(());
        }
        // Messages leave from the first half and arrive in the second; a READ's go the other way.
        let is_source = is_client == (plan.verb != Verb::Read);
        let base = if is_client { 0 } else { self.half };
        match is_source {
            true => plan.cycle(size).fill(&self.memory, base),
            false => plan.cycle(size).clear(&self.memory, base),
        }
    }

    /// Looks whether what arrived is what was sent, all of it, at the end where it arrived.
    pub(crate) fn look_at_data(
        &self,
        plan: &Plan,
        size: u32,
        is_client: bool,
        places_used: u64,
    ) -> Outcome {
        let is_destination = is_client == (plan.verb == Verb::Read);
        if plan.test != Test::Bw || plan.verb == Verb::Atomic || !is_destination {
            return Ok(());
        }
        let base = if is_client { 0 } else { self.half };
        plan.cycle(size).check(&self.memory, base, places_used)
    }

    /// Makes the server ready for messages of this size.
    pub(crate) fn prepare(&self, plan: &Plan, size: u32) -> Outcome {
        if plan.test == Test::Lat && plan.verb == Verb::Write {
            self.memory.store_u8(self.half + size as usize - 1, 0)?;
        }
        if plan.verb == Verb::Send {
            for index in 0..self.qps.len() {
                let first = self.receives_to_begin_with(plan);
                self.post_receives(index, plan, size, 0, first)?;
            }
        }
        Ok(())
    }

    /// So many receives are posted on each queue pair before the first message.
    pub(crate) fn receives_to_begin_with(&self, plan: &Plan) -> u64 {
        let all = if plan.duration.is_some() { u64::MAX } else { plan.iterations };
        all.min(u64::from(plan.rx_depth))
    }

    /// Posts receives for so many messages, the first at `offset`; says where the next one is.
    pub(crate) fn post_receives(
        &self,
        qp: usize,
        plan: &Plan,
        size: u32,
        offset: usize,
        count: u64,
    ) -> Outcome<usize> {
        let first = self.memory.sge(self.half..self.half + size as usize)?;
        let (cycle, mut offset) = (plan.cycle(size), offset);
        self.qps[qp].post_recv((0..count).map(|_| {
            let buffer = Sge { addr: first.addr + offset as u64, ..first };
            offset = cycle.behind(offset);
            RecvWr { wr_id: qp as u64, sg_list: [buffer].into() }
        }))?;
        Ok(offset)
    }

    /// The work requests of messages, to be reported.
    pub(crate) fn message(
        &self,
        plan: &Plan,
        theirs: &Introduction,
        size: u32,
    ) -> Outcome<Message<'_>> {
        let remote = RemoteAddr { addr: theirs.address, rkey: theirs.key };
        let operation = match (plan.verb, plan.atomic) {
            (Verb::Send, _) => SendOperation::Send { immediate: None, invalidate: None },
            (Verb::Write, _) => SendOperation::Write { remote, immediate: None },
            (Verb::Read, _) => SendOperation::Read { remote },
            (Verb::Atomic, AtomicKind::FetchAndAdd) => SendOperation::FetchAdd { remote, add: 1 },
            (Verb::Atomic, AtomicKind::CompareAndSwap) => {
                SendOperation::CompareSwap { remote, compare: 0, swap: 1 }
            }
        };
        let inline = size <= plan.inline && matches!(plan.verb, Verb::Send | Verb::Write);
        let piece = self.memory.sge(..size as usize)?;
        Ok(Message::new(&self.memory, operation, piece, inline))
    }
}

/// What an end does in its own way, whatever the other does.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Manner {
    pub(crate) gid_index: Option<u8>,
    /// Sleep until completions come, instead of polling for them.
    pub(crate) events: bool,
    pub(crate) huge_pages: bool,
}

/// In the id of a work request: it is a message of ours, not a receive.
pub(crate) const SENT: u64 = 1 << 63;

const PAGE: usize = 4096;
const HUGE_PAGE: usize = 2 << 20;
