//! The queue pair of a connection on our side.

use roce_verbs::cm::{ConnectionParameters, Error, Id};
use roce_verbs::{
    AccessFlags, CompletionQueue, CompletionStatus, MemoryRegion, QueuePair, RecvWr, SendOperation,
    SendWr,
};

use super::events::LIMIT;
use crate::fault::{Fault, expect};

pub(super) const MESSAGE: usize = 4096;

/// The queue pair of a connection, with its memory.
pub(super) struct Side {
    pub(super) qp: QueuePair,
    pub(super) cq: CompletionQueue,
    pub(super) region: MemoryRegion,
}

impl Side {
    pub(super) fn of(id: &Id) -> Result<Self, Fault> {
        let make = || {
            let device = id.device().ok_or(Error::Destroyed)?;
            let cq = device.create_cq(16, None)?;
            let pd = device.alloc_pd()?;
            let qp = pd.queue_pair(&cq, &cq).build()?;
            let region = pd.register(2 * MESSAGE, AccessFlags::LOCAL_WRITE)?;
            id.init_queue_pair(&qp)?;
            Ok::<_, Error>(Self { qp, cq, region })
        };
        let made = make().map_err(Fault::ours("make a queue pair"))?;
        let receive = RecvWr::new(1, [made.region.sge(MESSAGE..).expect("in range")]);
        made.qp.post_recv([receive]).map_err(Fault::ours("post a receive"))?;
        Ok(made)
    }

    pub(super) fn parameters(&self) -> ConnectionParameters<'static> {
        ConnectionParameters {
            private_data: b"hello",
            ..ConnectionParameters::new(self.qp.number())
        }
    }

    pub(super) fn complete(&self) -> Result<(), Fault> {
        let completion = self.cq.spin_wait(LIMIT);
        let completion =
            completion.ok_or(Fault::TooFew { end: "ours", seen: 0, wanted: 1, limit: LIMIT })?;
        let is_success = completion.status == CompletionStatus::Success;
        expect(is_success, || format!("{completion:?}"))
    }

    pub(super) fn send(&self, message: &[u8]) -> Result<(), Fault> {
        self.region.write(0, message).map_err(Fault::ours("write"))?;
        let data = self.region.sge(..MESSAGE).expect("in range");
        let work = SendWr::new(2, SendOperation::send(), [data]).signaled();
        self.qp.post_send([work]).map_err(Fault::ours("post a send"))?;
        self.complete()
    }

    pub(super) fn receive(&self) -> Result<Vec<u8>, Fault> {
        self.complete()?;
        let mut message = vec![0; MESSAGE];
        self.region.read(MESSAGE, &mut message).map_err(Fault::ours("read"))?;
        Ok(message)
    }
}
