//! The wait of the other ranks for a server.

use std::time::{Duration, Instant};

use roce_verbs::cm::LISTENERS;

/// When to look whether rank 0 listens, and when to say that it does not.
#[derive(Debug)]
pub(crate) struct ServerWait {
    begin: Instant,
    next_look: Instant,
    /// Number of ranks.
    size: u32,
    was_told: bool,
}

impl ServerWait {
    /// Begins the wait, when rank 0 is about to be started.
    pub(crate) fn new(begin: Instant, size: u32) -> Self {
        Self { begin, next_look: begin, size, was_told: false }
    }

    /// Returns when to look next.
    pub(crate) fn next_look(&self) -> Instant {
        self.next_look
    }

    /// Notes that rank 0 does not listen. Once, it prints that the others wait.
    pub(crate) fn looked(&mut self, now: Instant) {
        let waited = now.duration_since(self.begin);
        // The kernel takes milliseconds for its table of connections.
        self.next_look = now + (waited / 10).clamp(MIN_INTERVAL, MAX_INTERVAL);
        if waited >= SILENCE && !self.was_told {
            self.was_told = true;
            eprintln!(
                "roce: {}; if it is no server, use --local 1, or a placeholder such as {{rank}} in \
                 its arguments",
                self.sentence()
            );
        }
    }

    /// Returns which ranks wait for what.
    fn sentence(&self) -> String {
        let waiting = match self.size {
            ..=2 => "rank 1 waits".to_owned(),
            size => format!("ranks 1 to {} wait", size - 1),
        };
        format!("{waiting} for rank 0 to listen on a TCP port or by rdma_cm")
    }
}

/// Returns true if a program in the network namespace of a process waits for connections.
pub(crate) fn is_listening(process: u32) -> bool {
    roce_netns::is_listening(process, None) || roce_netns::has_abstract_socket(process, LISTENERS)
}

/// Shortest time between two looks.
const MIN_INTERVAL: Duration = Duration::from_millis(5);

/// Longest time between two looks.
const MAX_INTERVAL: Duration = Duration::from_millis(250);

/// Time for which ranks wait without a message.
const SILENCE: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longer_the_server_takes_the_rarer_the_looks_are() {
        let begin = Instant::now();
        let mut wait = ServerWait::new(begin, 2);
        let mut looks = 0;
        while wait.next_look() < begin + Duration::from_secs(5) {
            wait.looked(wait.next_look());
            looks += 1;
        }
        assert!((30..70).contains(&looks), "{looks} looks");
    }

    #[test]
    fn the_ranks_that_wait_are_named() {
        let sentence = |size| ServerWait::new(Instant::now(), size).sentence();
        assert_eq!(sentence(2), "rank 1 waits for rank 0 to listen on a TCP port or by rdma_cm");
        assert_eq!(
            sentence(4),
            "ranks 1 to 3 wait for rank 0 to listen on a TCP port or by rdma_cm"
        );
    }
}
