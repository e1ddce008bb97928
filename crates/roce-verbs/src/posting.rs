//! Posting to the send queue of a queue pair.

use roce_engine::policy::PostRuns;
use roce_engine::{InlineBuffers, Posted, SendRequest};
use roce_transport::{Destination, InlineData, SendWr};
use roce_wire::Qpn;

use crate::address_handle::AddressHandle;
use crate::driver::EngineGuard;
use crate::queue_pair::QueuePair;
use crate::wr_error::{BadWr, WrError};

/// Where a datagram goes; as the `ud` part of `ibv_send_wr`.
#[derive(Clone, Copy, Debug)]
pub struct DatagramTarget<'a> {
    /// The host, by a handle of the queue pair's domain.
    pub ah: &'a AddressHandle,
    /// The queue pair there.
    pub qpn: Qpn,
    /// Its Q_Key. If the top bit is set, the sender's own is sent instead.
    pub q_key: u32,
}

/// A datagram of a queue pair, and its target.
struct Datagram<'a> {
    work: SendWr,
    to: DatagramTarget<'a>,
    from: &'a QueuePair,
}

impl SendRequest<WrError> for Datagram<'_> {
    fn destination(&self) -> Result<Option<Destination>, WrError> {
        self.from.destination(self.to).map(Some)
    }

    fn into_work(self) -> SendWr {
        self.work
    }
}

impl QueuePair {
    /// Posts requests to the send queue in order; as `ibv_post_send`.
    ///
    /// Packets that can leave have left when this returns, with one exception. A caller that posts
    /// again and again, less than a microsecond after the last call returned and without polling,
    /// would pay for a frame with each call. After eight such posts to a queue pair, or fewer once
    /// polls have followed promptly, requests wait for the next post: at most 64 of them, or 60
    /// KiB. They leave with the next post that comes later than that or is signaled behind 64 that
    /// are not, whenever the program polls any completion queue of the device (of the queue pair's
    /// shard, if it has several), arms one, waits, modifies or drops a queue pair, and otherwise by
    /// the driver thread: within 200 µs of the last post, or 1 ms after a burst of more than 16 384
    /// posts, as far as the system lets the thread run. The first requests of a burst, and those of
    /// an RC queue pair that has no unacknowledged packets, never wait.
    ///
    /// # Errors
    /// The first request that was refused, and why; those before it are posted.
    pub fn post_send(&self, work: impl IntoIterator<Item = SendWr>) -> Result<(), BadWr> {
        let mut work = work.into_iter();
        self.post_send_with(|_| work.next())
    }

    /// As [`post_send`](Self::post_send), with requests that are made one by one until there is none.
    /// `next` runs under the device's lock: it must not wait, or call the device.
    ///
    /// # Errors
    /// As [`post_send`](Self::post_send).
    #[inline]
    pub fn post_send_with(
        &self,
        next: impl FnMut(&mut InlineBuffers<'_>) -> Option<SendWr>,
    ) -> Result<(), BadWr> {
        let (mut engine, mut runs) = self.begin_post()?;
        let posted = engine.post(self, &mut runs, next);
        self.end_post(engine, runs, posted)
    }

    /// As [`post_send`](Self::post_send), but posts all requests or none; as `ibv_wr_complete`.
    /// `requests` is empty afterwards unless one was refused. Fills `buffers` with memory for as many
    /// allocated inline data as were posted, as far as completed requests have left some.
    ///
    /// # Errors
    /// The first request that was refused, and why; none is posted.
    pub fn post_send_all(
        &self,
        requests: &mut Vec<SendWr>,
        buffers: &mut Vec<InlineData>,
    ) -> Result<(), BadWr> {
        self.post_all(requests, buffers, |_| Ok(None))
    }

    /// Posts datagrams to the send queue of a UD queue pair in order, all to one queue pair; as
    /// `ibv_post_send`. They may wait for the next post, as those of [`post_send`](Self::post_send).
    ///
    /// A datagram has at most the active MTU of the port ([`PortAttributes::active_mtu`]); a receive
    /// for it has 40 bytes more, for its GRH. If the top bit of `q_key` is set, the queue pair's own
    /// Q_Key is sent instead. The handle may be dropped before the datagrams are sent.
    ///
    /// # Errors
    /// The first request that was refused, and why; those before it are posted.
    ///
    /// [`PortAttributes::active_mtu`]: crate::PortAttributes::active_mtu
    pub fn post_send_to(
        &self,
        work: impl IntoIterator<Item = SendWr>,
        ah: &AddressHandle,
        qpn: Qpn,
        q_key: u32,
    ) -> Result<(), BadWr> {
        let mut work = work.into_iter();
        let to = DatagramTarget { ah, qpn, q_key };
        self.post_datagrams_with(|_| Some((work.next()?, to)))
    }

    /// As [`post_send_with`](Self::post_send_with), for datagrams, each with its destination; see
    /// [`post_send_to`](Self::post_send_to).
    ///
    /// # Errors
    /// As [`post_send_to`](Self::post_send_to).
    pub fn post_datagrams_with<'a>(
        &'a self,
        mut next: impl FnMut(&mut InlineBuffers<'_>) -> Option<(SendWr, DatagramTarget<'a>)>,
    ) -> Result<(), BadWr> {
        let (mut engine, mut runs) = self.begin_post()?;
        let posted = engine.post(self, &mut runs, |buffers| {
            next(buffers).map(|(work, to)| Datagram { work, to, from: self })
        });
        self.end_post(engine, runs, posted)
    }

    /// As [`post_send_all`](Self::post_send_all), for datagrams; `to` returns the destination of each
    /// by its position, or why it has none.
    ///
    /// # Errors
    /// As [`post_send_all`](Self::post_send_all).
    pub fn post_datagrams_all<'a>(
        &self,
        requests: &mut Vec<SendWr>,
        buffers: &mut Vec<InlineData>,
        to: impl Fn(usize) -> Result<DatagramTarget<'a>, WrError>,
    ) -> Result<(), BadWr> {
        self.post_all(requests, buffers, |index| Ok(Some(self.destination(to(index)?)?)))
    }

    fn post_all(
        &self,
        requests: &mut Vec<SendWr>,
        buffers: &mut Vec<InlineData>,
        to: impl Fn(usize) -> Result<Option<Destination>, WrError>,
    ) -> Result<(), BadWr> {
        let (mut engine, mut runs) = self.begin_post()?;
        let posted = engine.post_all(self, &mut runs, requests, buffers, to);
        self.end_post(engine, runs, posted)
    }

    /// Locks the engine, and returns the runs that a post of the calling thread belongs to.
    #[inline]
    fn begin_post(&self) -> Result<(EngineGuard<'_>, PostRuns), BadWr> {
        let forked = |_| BadWr { index: 0, source: WrError::Forked };
        let engine = self.shard.engine().map_err(forked)?;
        Ok((engine, PostRuns { caller: self.shard.caller_run(), queue_pair: self.run.load() }))
    }

    /// Stores what a post has changed.
    #[inline]
    fn end_post(
        &self,
        mut engine: EngineGuard<'_>,
        runs: PostRuns,
        posted: Posted<WrError>,
    ) -> Result<(), BadWr> {
        self.run.store(runs.queue_pair);
        self.shard.set_caller_run(runs.caller);
        engine.note_posted(posted.departure);
        posted.result.map_err(|(index, source)| BadWr { index, source })
    }

    /// Returns the destination as the endpoint has it.
    fn destination(&self, to: DatagramTarget<'_>) -> Result<Destination, WrError> {
        if !to.ah.belongs_to(&self.driver, self.pd) {
            return Err(WrError::OtherDomain);
        }
        let mtu = self.driver.port().active_mtu().ok_or(WrError::NoPathMtu)?;
        Ok(Destination { path: to.ah.attributes(), mtu, qpn: to.qpn, q_key: to.q_key })
    }
}
