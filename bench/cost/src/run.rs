//! A run: messages between two sides that are driven in turn.

use std::time::Duration;

use roce_transport::{Instant, RecvWr};

use crate::{Drive, Sender, Wire, Workload};

/// Messages between two sides, some of them outstanding.
#[derive(Debug)]
pub struct Run<S> {
    workload: Workload,
    messages: u64,
    requester: S,
    responder: S,
    there: Wire,
    back: Wire,
    now: Instant,
    posted: u64,
    completed: u64,
}

/// Messages and packets of a finished run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tally {
    /// Messages.
    pub messages: u64,
    /// Packets with payload.
    pub data_packets: u64,
    /// Packets without payload: READ requests, ACKs.
    pub other_packets: u64,
}

/// Virtual time between two rounds.
const TURN: Duration = Duration::from_micros(10);

impl<S: Drive> Run<S> {
    /// Creates a run of `messages` messages and posts none.
    pub fn new(workload: Workload, messages: u64) -> Self {
        let [mut requester, mut responder] = S::pair(workload.path_mtu, workload.len as usize);
        let now = Instant::default();
        if workload.takes_receives() {
            // The outstanding ones, and those whose completion the requester learns later.
            (0..2 * workload.depth).for_each(|_| post_receive(&mut responder, workload, now));
        }
        let source = match workload.sender() {
            Sender::Requester => &mut requester,
            Sender::Responder => &mut responder,
        };
        source.fill(&(0..workload.len).map(|i| (i % 251) as u8 + 1).collect::<Vec<_>>());
        let (there, back) = (Wire::new(), Wire::new());
        let (posted, completed) = (0, 0);
        Self { workload, messages, requester, responder, there, back, now, posted, completed }
    }

    /// Returns true if all messages are complete.
    pub fn is_done(&self) -> bool {
        self.completed == self.messages
    }

    /// Runs a round of the requester: receives frames, posts up to the depth, transmits.
    pub fn drive_requester(&mut self) {
        self.now += TURN;
        let Self { requester, back, there, now, workload, .. } = self;
        requester.receive(*now, back);
        for _ in 0..requester.take_completions() {
            // The last message completes the rest.
            self.completed = (self.completed + workload.moderation).min(self.messages);
        }
        while self.posted < self.messages && self.posted - self.completed < workload.depth {
            self.posted += 1;
            let signaled =
                self.posted.is_multiple_of(workload.moderation) || self.posted == self.messages;
            requester.post_send(*now, workload.request(self.posted, signaled));
        }
        requester.transmit(*now, there);
    }

    /// Runs a round of the responder: receives frames, transmits.
    pub fn drive_responder(&mut self) {
        let Self { responder, back, there, now, workload, .. } = self;
        responder.receive(*now, there);
        responder.transmit(*now, back);
        for _ in 0..responder.take_completions() {
            post_receive(responder, *workload, *now);
        }
    }

    /// Checks that every message has arrived exactly once, and returns the counts.
    ///
    /// # Panics
    /// If a packet was lost or retransmitted, or bytes are wrong.
    pub fn finish(self) -> Tally {
        assert!(self.is_done(), "{} of {} messages", self.completed, self.messages);
        assert!(self.requester.bytes() == self.responder.bytes());
        for side in [&self.requester, &self.responder] {
            for name in ["resent_pkts", "tail_probe", "duplicate_request", "out_of_seq_request"] {
                assert_eq!(side.counter(name), 0, "{name}: the run is not as quiet as it must be");
            }
        }
        let data_packets = self.messages * self.workload.packets_a_message();
        let (there, back) = (self.requester.sent(), self.responder.sent());
        let received = [&self.responder, &self.requester].map(|side| side.counter("rcvd_pkts"));
        assert_eq!(received, [there, back], "each packet arrives once");
        let all = there + back;
        Tally { messages: self.messages, data_packets, other_packets: all - data_packets }
    }
}

fn post_receive(side: &mut impl Drive, workload: Workload, now: Instant) {
    side.post_recv(now, RecvWr::new(0, [workload.piece()]));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Side;

    fn carry(workload: Workload, messages: u64) -> Tally {
        let mut run = Run::<Side>::new(workload, messages);
        for _ in 0..10_000 {
            run.drive_requester();
            run.drive_responder();
            if run.is_done() {
                return run.finish();
            }
        }
        panic!("{}: no end", workload.name)
    }

    #[test]
    fn every_workload_arrives_whole_and_each_packet_once() {
        for workload in Workload::ALL {
            let messages = if workload.len == 8 { 1000 } else { 9 };
            let tally = carry(workload, messages);
            assert_eq!(tally.data_packets, messages * workload.packets_a_message());
            assert!(tally.other_packets * 4 < tally.data_packets, "{}: {tally:?}", workload.name);
        }
    }

    #[test]
    fn twice_the_messages_are_twice_the_packets() {
        for workload in Workload::ALL {
            let [one, two] = [200, 400].map(|messages| {
                carry(workload, if workload.len == 8 { messages } else { messages / 50 })
            });
            assert_eq!(one.data_packets * 2, two.data_packets);
        }
    }
}
