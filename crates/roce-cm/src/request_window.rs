//! How many requests to one peer wait for its answer at a time.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use roce_wire::Instant;

use roce_wire::management::CommunicationId;

use crate::limits::{MAX_REQUESTS_IN_FLIGHT, REQUEST_FLIGHT_TIME};
use crate::timers::Timers;

/// Limits the REQs, DREQs and SIDR_REQs in flight to each peer address.
///
/// The peer's receive ring has room for some 130 datagrams, and what exceeds it is lost and repeated only
/// seconds later. So requests beyond the limit wait, and leave in their order as answers come in. A
/// request no longer counts after [`REQUEST_FLIGHT_TIME`]: it has left the ring by then, though its answer
/// may wait for the peer's program, and a peer that never answers delays requests by a bounded time.
#[derive(Debug)]
pub(crate) struct RequestWindows {
    places: BTreeMap<CommunicationId, Place>,
    peers: BTreeMap<IpAddr, Window>,
    /// When requests in flight no longer count.
    ends: Timers<CommunicationId>,
    /// Peers for which requests wait that may leave.
    open: BTreeSet<IpAddr>,
    next_ticket: u64,
    waiting: usize,
}

/// Where the request of a connection or resolution is.
#[derive(Clone, Copy, Debug)]
struct Place {
    peer: IpAddr,
    /// Its key among those that wait; `None` in flight.
    ticket: Option<u64>,
}

#[derive(Debug, Default)]
struct Window {
    in_flight: usize,
    waiting: BTreeMap<u64, CommunicationId>,
}

impl Window {
    fn has_space(&self) -> bool {
        self.in_flight < MAX_REQUESTS_IN_FLIGHT
    }
}

impl RequestWindows {
    pub(crate) const fn new() -> Self {
        Self {
            places: BTreeMap::new(),
            peers: BTreeMap::new(),
            ends: Timers::new(),
            open: BTreeSet::new(),
            next_ticket: 0,
            waiting: 0,
        }
    }

    /// Returns true if the request of `id` to `peer` leaves now. Otherwise it waits, behind those that
    /// already do, and [`next_open`](Self::next_open) returns it in its turn.
    pub(crate) fn admit(&mut self, now: Instant, peer: IpAddr, id: CommunicationId) -> bool {
        self.settle(id);
        self.end_flights(now);
        let window = self.peers.entry(peer).or_default();
        if window.has_space() && window.waiting.is_empty() {
            self.depart(now, peer, id);
            return true;
        }
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        window.waiting.insert(ticket, id);
        self.waiting += 1;
        self.places.insert(id, Place { peer, ticket: Some(ticket) });
        false
    }

    /// Forgets the request of `id`: it was answered, or is given up.
    pub(crate) fn settle(&mut self, id: CommunicationId) {
        let Some(Place { peer, ticket }) = self.places.remove(&id) else { return };
        self.ends.cancel(id);
        let Some(window) = self.peers.get_mut(&peer) else { return };
        match ticket {
            Some(ticket) => {
                window.waiting.remove(&ticket);
                self.waiting -= 1;
            }
            None => window.in_flight -= 1,
        }
        self.note_window(peer);
    }

    /// Returns the next request that waited and leaves now.
    pub(crate) fn next_open(&mut self, now: Instant) -> Option<CommunicationId> {
        self.end_flights(now);
        let peer = *self.open.first()?;
        let (_, id) = self.peers.get_mut(&peer)?.waiting.pop_first()?;
        self.waiting -= 1;
        self.depart(now, peer, id);
        self.note_window(peer);
        Some(id)
    }

    /// Returns when a request that waits may leave without any answer, if one waits.
    pub(crate) fn next_end(&self) -> Option<Instant> {
        if self.waiting > 0 { self.ends.next() } else { None }
    }

    /// Returns the number of requests that wait.
    pub(crate) const fn waiting(&self) -> usize {
        self.waiting
    }

    /// Returns the number of requests in flight.
    pub(crate) fn in_flight(&self) -> usize {
        self.ends.len()
    }

    fn depart(&mut self, now: Instant, peer: IpAddr, id: CommunicationId) {
        self.peers.entry(peer).or_default().in_flight += 1;
        self.places.insert(id, Place { peer, ticket: None });
        self.ends.set(id, now + REQUEST_FLIGHT_TIME);
    }

    fn end_flights(&mut self, now: Instant) {
        while let Some(id) = self.ends.pop_due(now) {
            self.settle(id);
        }
    }

    /// Notes that the window of `peer` has changed.
    fn note_window(&mut self, peer: IpAddr) {
        let Some(window) = self.peers.get(&peer) else { return };
        if window.has_space() && !window.waiting.is_empty() {
            self.open.insert(peer);
        } else {
            self.open.remove(&peer);
        }
        if window.in_flight == 0 && window.waiting.is_empty() {
            self.peers.remove(&peer);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const NOW: Instant = Instant::from_nanos(1_000_000_000);

    fn peer(last: u8) -> IpAddr {
        [10, 0, 0, last].into()
    }

    fn ids(numbers: std::ops::Range<u32>) -> impl Iterator<Item = CommunicationId> {
        numbers.map(CommunicationId)
    }

    /// Windows with so many requests to peer 1, of which as many as may are in flight.
    fn windows(requests: u32) -> RequestWindows {
        let mut windows = RequestWindows::new();
        let admitted = ids(0..requests).filter(|id| windows.admit(NOW, peer(1), *id)).count();
        assert_eq!(admitted, MAX_REQUESTS_IN_FLIGHT.min(requests as usize));
        windows
    }

    fn opened(windows: &mut RequestWindows, now: Instant) -> Vec<u32> {
        std::iter::from_fn(|| windows.next_open(now)).map(|id| id.0).collect()
    }

    #[test]
    fn each_answer_lets_one_request_leave_in_its_order() {
        let most = MAX_REQUESTS_IN_FLIGHT as u32;
        let mut windows = windows(most + 9);
        assert_eq!((windows.in_flight(), windows.waiting()), (most as usize, 9));
        assert_eq!(opened(&mut windows, NOW), []);
        // One of those that wait is given up; one that is unknown changes nothing.
        windows.settle(CommunicationId(most + 1));
        windows.settle(CommunicationId(most + 100));
        for answered in [3, 0, 2] {
            windows.settle(CommunicationId(answered));
        }
        // A new one does not overtake.
        assert!(!windows.admit(NOW, peer(1), CommunicationId(500)));
        assert_eq!(opened(&mut windows, NOW), [most, most + 2, most + 3]);
        assert_eq!((windows.in_flight(), windows.waiting()), (most as usize, 6));
    }

    #[test]
    fn peers_do_not_wait_for_each_other() {
        let mut windows = windows(200);
        assert!(ids(1000..1064).all(|id| windows.admit(NOW, peer(2), id)));
        assert!(!windows.admit(NOW, peer(2), CommunicationId(1064)));
        windows.settle(CommunicationId(1000));
        assert_eq!(opened(&mut windows, NOW), [1064]);
    }

    #[test]
    fn a_request_without_answer_counts_for_its_time_only() {
        let mut windows = windows(100);
        let end = NOW + REQUEST_FLIGHT_TIME;
        assert_eq!(windows.next_end(), Some(end));
        assert_eq!(opened(&mut windows, end - Duration::from_nanos(1)), []);
        assert_eq!(opened(&mut windows, end), (64..100).collect::<Vec<_>>());
        assert_eq!((windows.in_flight(), windows.waiting()), (36, 0));
        assert_eq!(windows.next_end(), None, "nothing waits");
        // Its answer may come later still.
        windows.settle(CommunicationId(0));
        assert_eq!(windows.in_flight(), 36);
        assert!(windows.admit(end + REQUEST_FLIGHT_TIME, peer(1), CommunicationId(0)));
        assert_eq!(windows.in_flight(), 1);
    }

    #[test]
    fn nothing_is_left_of_requests_that_are_settled() {
        let mut windows = windows(300);
        ids(0..300).for_each(|id| windows.settle(id));
        assert_eq!((windows.in_flight(), windows.waiting()), (0, 0));
        let RequestWindows { places, peers, open, .. } = windows;
        assert!(places.is_empty() && peers.is_empty() && open.is_empty());
    }
}
