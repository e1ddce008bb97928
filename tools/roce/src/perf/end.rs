//! What each end of a test is made of: queue pairs, a completion queue, memory.

use roce_verbs::exchange::Identity;
use roce_verbs::{
    AccessFlags, CompletionQueue, ConnectOptions, Data, Device, Gid, MemoryRegion, PathMtu, Psn,
    Qpn, QueuePair, RecvWork, RemoteSpan, SendOperation, SendWork,
};

use super::control::{Introduction, QueuePairName};
use super::plan::{AtomicKind, Plan, Test, Verb};
use crate::failure::{Failure, Outcome};

/// One end.
///
/// Its memory has two halves: messages leave from the first and arrive in the second, over
/// and over in the same place, as in perftest.
#[derive(Debug)]
pub(crate) struct End {
    pub(crate) device: Device,
    pub(crate) queue: CompletionQueue,
    pub(crate) qps: Vec<QueuePair>,
    pub(crate) memory: MemoryRegion,
    /// Where the second half begins.
    pub(crate) half: usize,
    pub(crate) gid_index: u8,
}

impl End {
    pub(crate) fn new(device: &Device, plan: &Plan, gid_index: Option<u8>) -> Outcome<Self> {
        let gid_index = match gid_index.or(device.default_gid_index()?) {
            Some(index) => index,
            None => {
                let name = device.interface();
                return Err(Failure::new(format!(
                    "{name} has no address: ip address add 10.0.0.1/24 dev {name}"
                )));
            }
        };
        let pd = device.alloc_pd()?;
        let half = (plan.longest().max(8) as usize).next_multiple_of(PAGE);
        let everything = AccessFlags::LOCAL_WRITE
            | AccessFlags::REMOTE_WRITE
            | AccessFlags::REMOTE_READ
            | AccessFlags::REMOTE_ATOMIC;
        let memory = pd.register(2 * half, everything)?;
        let receives = if plan.verb == Verb::Send { plan.rx_depth } else { 1 };
        let room = (plan.tx_depth + receives) as usize * plan.qps as usize;
        let queue = device.create_cq(room, None)?;
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
        Ok(Self { device: device.clone(), queue, qps, memory, half, gid_index })
    }

    /// What the other end has to know.
    pub(crate) fn introduce(&self, gid_index: Option<u8>) -> Outcome<Introduction> {
        let name = |qp: &QueuePair| QueuePairName {
            number: qp.number().get(),
            first_psn: qp.first_psn().get(),
        };
        let identity = self.qps[0].identity(gid_index)?;
        Ok(Introduction {
            qps: self.qps.iter().map(name).collect(),
            gid: identity.gid.0,
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
            let peer = Identity {
                qpn: Qpn::new(name.number).ok_or_else(out_of_range)?,
                psn: Psn::new(name.first_psn).ok_or_else(out_of_range)?,
                gid: Gid(theirs.gid),
            };
            qp.connect(&peer, &options)?;
        }
        Ok(())
    }

    /// Makes the server ready for messages of this size.
    pub(crate) fn prepare(&self, plan: &Plan, size: u32) -> Outcome {
        if plan.test == Test::Lat && plan.verb == Verb::Write {
            self.memory.store_u8(self.half + size as usize - 1, 0)?;
        }
        if plan.verb == Verb::Send {
            for index in 0..self.qps.len() {
                self.post_receives(index, size, self.receives_to_begin_with(plan))?;
            }
        }
        Ok(())
    }

    /// So many receives are posted on each queue pair before the first message.
    pub(crate) fn receives_to_begin_with(&self, plan: &Plan) -> u64 {
        let all = if plan.duration.is_some() { u64::MAX } else { plan.iterations };
        all.min(u64::from(plan.rx_depth))
    }

    pub(crate) fn post_receives(&self, qp: usize, size: u32, count: u64) -> Outcome {
        let buffer = self.memory.sge(self.half..self.half + size as usize)?;
        Ok(self.qps[qp].post_recv(
            (0..count).map(|_| RecvWork { work_id: qp as u64, scatter: [buffer].into() }),
        )?)
    }

    /// The work request of one message, to be reported.
    pub(crate) fn message(
        &self,
        plan: &Plan,
        theirs: &Introduction,
        size: u32,
    ) -> Outcome<SendWork> {
        let remote = RemoteSpan { address: theirs.address, key: theirs.key };
        let operation = match (plan.verb, plan.atomic) {
            (Verb::Send, _) => SendOperation::Send { immediate: None, invalidate: None },
            (Verb::Write, _) => SendOperation::Write { remote, immediate: None },
            (Verb::Read, _) => SendOperation::Read { remote },
            (Verb::Atomic, AtomicKind::FetchAndAdd) => SendOperation::FetchAdd { remote, add: 1 },
            (Verb::Atomic, AtomicKind::CompareAndSwap) => {
                SendOperation::CompareSwap { remote, compare: 0, swap: 1 }
            }
        };
        let data = if size <= plan.inline && matches!(plan.verb, Verb::Send | Verb::Write) {
            Data::Inline(self.first_half(size)?.into())
        } else {
            Data::Gather([self.memory.sge(..size as usize)?].into())
        };
        let (signaled, solicited, fence) = (true, false, false);
        Ok(SendWork { work_id: SENT, operation, data, signaled, solicited, fence })
    }

    fn first_half(&self, size: u32) -> Outcome<Vec<u8>> {
        let mut bytes = vec![0; size as usize];
        self.memory.read(0, &mut bytes)?;
        Ok(bytes)
    }
}

/// In the id of a work request: it is a message of ours, not a receive.
pub(crate) const SENT: u64 = 1 << 63;

const PAGE: usize = 4096;
