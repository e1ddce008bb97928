//! Calls that concern shared receive queues.

use roce_wire::Qpn;

use super::Endpoint;
use crate::{
    ApiMisuse, Instant, ModifySrqError, Observer, PostError, RecvWr, SrqAttributes, SrqHandle,
    SrqInfo, SrqInit,
};

/// Shared receive queues. Queue pairs of services RC, UC and UD may take their receives from one:
/// [`QpInit::srq`](crate::QpInit::srq).
///
/// ```
/// use roce_transport::{Endpoint, Instant, PdHandle, RecvWr, SrqAttributes, SrqInit};
///
/// let mut endpoint = Endpoint::new(Default::default());
/// let init = SrqInit { pd: PdHandle(1), max_wr: 4, max_sge: 1 };
/// let srq = endpoint.create_srq(init).unwrap();
/// endpoint.post_srq_recv(Instant::default(), srq, RecvWr::new(7, [])).unwrap();
/// // An event is raised once as soon as fewer than 1 receive is left.
/// let limit = SrqAttributes { limit: Some(1), ..SrqAttributes::default() };
/// endpoint.modify_srq(srq, &limit).unwrap();
/// let info = endpoint.query_srq(srq).unwrap();
/// assert_eq!((info.posted, info.limit, info.users), (1, 1, 0));
/// endpoint.destroy_srq(srq).unwrap();
/// ```
impl<O: Observer> Endpoint<O> {
    /// Creates a shared receive queue without receives, and with no limit armed.
    ///
    /// # Errors
    /// [`ApiMisuse::CapacityTooLarge`].
    pub fn create_srq(&mut self, init: SrqInit) -> Result<SrqHandle, ApiMisuse> {
        self.srqs.create(init)
    }

    /// Sets attributes of a shared receive queue. A limit above the number of receives posted is
    /// reached at once.
    ///
    /// # Errors
    /// [`ModifySrqError`]; then the queue is as it was.
    pub fn modify_srq(
        &mut self,
        srq: SrqHandle,
        attributes: &SrqAttributes,
    ) -> Result<(), ModifySrqError> {
        let queue = self.srqs.get_mut(srq).ok_or(ModifySrqError::UnknownSrq(srq))?;
        let event = queue.modify(srq, attributes)?;
        self.out.events.extend(event);
        Ok(())
    }

    /// Returns the attributes of a shared receive queue; `None` if there is no such queue.
    pub fn query_srq(&self, srq: SrqHandle) -> Option<SrqInfo> {
        self.srqs.info(srq)
    }

    /// Removes a shared receive queue. Its receives do not complete.
    ///
    /// # Errors
    /// [`ApiMisuse::SrqInUse`] while queue pairs take from it; [`ApiMisuse::UnknownSrq`].
    pub fn destroy_srq(&mut self, srq: SrqHandle) -> Result<(), ApiMisuse> {
        self.srqs.destroy(srq)
    }

    /// Returns true if a message to this queue pair has taken a receive from a shared queue and is not
    /// whole: the receive never completes if the queue pair is reset or destroyed.
    pub fn holds_shared_receive(&self, qpn: Qpn) -> bool {
        let slot = self.by_qpn.get(&qpn).and_then(|index| self.qps.get(*index)?.as_ref());
        slot.is_some_and(|slot| slot.srq.is_some() && slot.queue_pair.holds_receive())
    }

    /// Posts a request to a shared receive queue.
    ///
    /// # Errors
    /// [`PostError`]; then nothing was posted.
    pub fn post_srq_recv(
        &mut self,
        now: Instant,
        srq: SrqHandle,
        wr: RecvWr,
    ) -> Result<(), PostError> {
        let wr_id = wr.wr_id;
        self.srqs.get_mut(srq).ok_or(PostError::UnknownSrq(srq))?.post(wr)?;
        self.out.observer.posted_shared_recv(now, srq, wr_id);
        Ok(())
    }
}
