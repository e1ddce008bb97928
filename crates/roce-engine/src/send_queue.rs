//! The port to the owner of a send queue, and what is posted to it.

use roce_transport::{Destination, InlineData, Instant, PostError, QpInfo, SendWr};
use roce_wire::Qpn;

/// The send queue of a queue pair, as its owner has it.
pub trait SendQueue {
    /// Returns the number of the queue pair.
    fn queue_pair(&self) -> Qpn;

    /// Returns the time now.
    fn now(&self) -> Instant;

    /// Fails if the owner gives no place behind `ahead` more requests. `info` returns the state of the queue
    /// pair. The default leaves it to the endpoint.
    #[inline]
    fn check_room(
        &self,
        _ahead: u32,
        _info: impl FnOnce() -> Option<QpInfo>,
    ) -> Result<(), PostError> {
        Ok(())
    }

    /// Notes that a request was posted.
    #[inline]
    fn take_place(&self) {}
}

/// A request that is posted, with the destination of a datagram; `E` is why there may be none.
pub trait SendRequest<E> {
    /// Returns the destination of a datagram.
    ///
    /// # Errors
    /// There is none.
    fn destination(&self) -> Result<Option<Destination>, E>;

    /// Returns the request.
    fn into_work(self) -> SendWr;
}

impl<E> SendRequest<E> for SendWr {
    #[inline]
    fn destination(&self) -> Result<Option<Destination>, E> {
        Ok(None)
    }

    #[inline]
    fn into_work(self) -> SendWr {
        self
    }
}

/// The memory of a queue pair's completed requests, for new long inline data.
pub struct InlineBuffers<'a>(&'a mut dyn FnMut() -> InlineData);

impl<'a> InlineBuffers<'a> {
    pub(crate) fn new(take: &'a mut dyn FnMut() -> InlineData) -> Self {
        Self(take)
    }

    /// Returns empty inline data, which have the memory of earlier ones if there are some.
    pub fn take(&mut self) -> InlineData {
        (self.0)()
    }
}

impl std::fmt::Debug for InlineBuffers<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("InlineBuffers").finish_non_exhaustive()
    }
}
