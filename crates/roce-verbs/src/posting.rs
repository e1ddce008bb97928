//! Posting to the send queue of a queue pair.

use roce_engine::policy::Posted;
use roce_faults::VerbMoment;
use roce_transport::{Destination, InlineData, Instant, PostError, SendWr};
use roce_wire::Qpn;

use crate::address_handle::AddressHandle;
use crate::engine::{Engine, check_post};
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

/// The memory of a queue pair's completed requests, for new long inline data.
#[derive(Debug)]
pub struct InlineBuffers<'a> {
    engine: &'a mut Engine,
    queue_pair: Qpn,
}

impl InlineBuffers<'_> {
    /// Returns empty inline data, which have the memory of earlier ones if there are some.
    pub fn take(&mut self) -> InlineData {
        self.engine.endpoint.take_inline_buffer(self.queue_pair)
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
        self.post_each(next, |engine, now, work| self.post_one(engine, now, work))
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
        &self,
        next: impl FnMut(&mut InlineBuffers<'_>) -> Option<(SendWr, DatagramTarget<'a>)>,
    ) -> Result<(), BadWr> {
        let post = |engine: &mut Engine, now, (work, to): (SendWr, DatagramTarget<'a>)| {
            let to = self.destination(to)?;
            self.post_datagram(engine, now, work, to)
        };
        self.post_each(next, post)
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
        self.post_counted(|engine, now| {
            let mut posted = Count::default();
            let mut post_all = || {
                for (index, work) in requests.iter().enumerate() {
                    let verb = VerbMoment::PostSend;
                    check_post(engine, now, verb, Some(self.number))
                        .map_err(|fault| BadWr { index, source: fault.into() })?;
                    let to = to(index).map_err(|source| BadWr { index, source })?;
                    let checked = engine.endpoint.check_send(self.number, work, to.as_ref(), index);
                    checked
                        .and_then(|()| self.check_send_room(engine, index as u32))
                        .map_err(|refused| BadWr { index, source: refused.into() })?;
                }
                let mut allocated = 0;
                for (index, work) in requests.drain(..).enumerate() {
                    allocated += usize::from(work.data.is_allocated_inline());
                    let to = to(index).map_err(|source| BadWr { index, source })?;
                    let count = match to {
                        Some(to) => self.post_datagram(engine, now, work, to),
                        None => self.post_one(engine, now, work),
                    };
                    posted.add(count.map_err(|source| BadWr { index, source })?);
                }
                let taken = (0..allocated).map(|_| engine.endpoint.take_inline_buffer(self.number));
                buffers.extend(taken.take_while(InlineData::is_allocated));
                Ok(())
            };
            (post_all(), posted)
        })
    }

    /// Fails if the send queue has no place behind `ahead` more requests.
    #[inline]
    fn check_send_room(&self, engine: &Engine, ahead: u32) -> Result<(), PostError> {
        self.places.check_send(ahead, || engine.endpoint.query_qp(self.number))
    }

    /// Posts what `next` returns until it returns nothing, or one is refused.
    #[inline]
    fn post_each<T>(
        &self,
        mut next: impl FnMut(&mut InlineBuffers<'_>) -> Option<T>,
        mut post: impl FnMut(&mut Engine, Instant, T) -> Result<Count, WrError>,
    ) -> Result<(), BadWr> {
        self.post_counted(|engine, now| {
            let mut posted = Count::default();
            let mut buffers = InlineBuffers { engine, queue_pair: self.number };
            // In a loop, to move the requests fewer times.
            while let Some(work) = next(&mut buffers) {
                let admitted =
                    check_post(buffers.engine, now, VerbMoment::PostSend, Some(self.number));
                match admitted.map_err(WrError::from).and_then(|()| post(buffers.engine, now, work))
                {
                    Ok(count) => posted.add(count),
                    Err(source) => {
                        return (Err(BadWr { index: posted.requests as usize, source }), posted);
                    }
                }
            }
            (Ok(()), posted)
        })
    }

    /// Posts under the engine's lock. `post` returns how much it has posted.
    #[inline]
    fn post_counted(
        &self,
        post: impl FnOnce(&mut Engine, Instant) -> (Result<(), BadWr>, Count),
    ) -> Result<(), BadWr> {
        let posted = self.shard.post_send(&self.run, |engine, now| {
            engine.on_send(self.number);
            let (result, Count { requests, bytes, is_signaled }) = post(engine, now);
            let is_outstanding = engine.endpoint.has_outstanding(self.number);
            let queue_pair = self.number;
            (result, Posted { queue_pair, requests, bytes, is_outstanding, is_signaled })
        });
        posted.unwrap_or(Err(BadWr { index: 0, source: WrError::Forked }))
    }

    /// Posts a request.
    #[inline]
    fn post_one(&self, engine: &mut Engine, now: Instant, work: SendWr) -> Result<Count, WrError> {
        let count = Count::of(&work);
        self.check_send_room(engine, 0)?;
        engine.endpoint.post_send(now, self.number, work)?;
        self.places.take_send();
        Ok(count)
    }

    /// Posts a datagram.
    fn post_datagram(
        &self,
        engine: &mut Engine,
        now: Instant,
        work: SendWr,
        to: Destination,
    ) -> Result<Count, WrError> {
        let count = Count::of(&work);
        self.check_send_room(engine, 0)?;
        engine.endpoint.post_send_to(now, self.number, work, to)?;
        self.places.take_send();
        let Engine { endpoint, paths, .. } = engine;
        let outstanding =
            || endpoint.query_qp(self.number).map_or(0, |info| info.sends_outstanding);
        self.lock_datagram_paths().on_posted(paths, to.path.handle, outstanding);
        Ok(count)
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

/// What a call has posted.
#[derive(Clone, Copy, Debug, Default)]
struct Count {
    requests: u32,
    bytes: u64,
    /// One of the requests is signaled.
    is_signaled: bool,
}

impl Count {
    #[inline]
    fn of(work: &SendWr) -> Self {
        Self { requests: 1, bytes: work.data.len(), is_signaled: work.signaled }
    }

    #[inline]
    fn add(&mut self, posted: Self) {
        self.requests += posted.requests;
        self.bytes += posted.bytes;
        self.is_signaled |= posted.is_signaled;
    }
}
