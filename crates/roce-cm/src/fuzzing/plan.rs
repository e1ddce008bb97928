//! What two programs do with a connection.

use roce_fuzz_support::Script;

/// What a program does with a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Act {
    Accept,
    Establish,
    Reject(u16),
    Disconnect,
    Destroy,
    /// Answers the request for a datagram service.
    Answer,
    /// Tells the agent that the peer's queue pair has sent something.
    Notify,
    /// Ends without another word. Later another process ends its connections.
    #[cfg(test)]
    Die,
    /// What that process does.
    #[cfg(test)]
    EndOrphans,
}

impl Act {
    const ALL: [Self; 7] = [
        Self::Accept,
        Self::Establish,
        Self::Reject(28),
        Self::Disconnect,
        Self::Destroy,
        Self::Answer,
        Self::Notify,
    ];
}

/// What two programs do, and when: milliseconds after the event, and the call.
#[derive(Clone, Debug, Default)]
pub(crate) struct Plan {
    /// The active side asks for a datagram service, not for a connection.
    pub(crate) is_resolution: bool,
    /// The active side, after it has asked.
    pub(crate) on_start: Vec<(u64, Act)>,
    /// The passive side.
    pub(crate) on_request: Vec<(u64, Act)>,
    /// The active side.
    pub(crate) on_response: Vec<(u64, Act)>,
    /// The passive side.
    pub(crate) on_established: Vec<(u64, Act)>,
    /// Either side.
    pub(crate) on_disconnected: [Vec<(u64, Act)>; 2],
}

impl Plan {
    /// Returns the plan to connect, and to answer the peer's end.
    pub(crate) fn connect() -> Self {
        Self {
            on_request: vec![(0, Act::Accept)],
            on_response: vec![(0, Act::Establish)],
            on_disconnected: [vec![(0, Act::Disconnect)], vec![(0, Act::Disconnect)]],
            ..Self::default()
        }
    }

    /// Returns what follows each event.
    pub(crate) fn reactions(&mut self) -> [&mut Vec<(u64, Act)>; 6] {
        let [first, second] = &mut self.on_disconnected;
        [
            &mut self.on_start,
            &mut self.on_request,
            &mut self.on_response,
            &mut self.on_established,
            first,
            second,
        ]
    }

    /// Reads a plan that mostly connects.
    pub(crate) fn read(script: &mut Script<'_>) -> Self {
        let mut plan = Self::connect();
        plan.is_resolution = script.byte() % 8 == 7;
        if plan.is_resolution {
            plan.on_request = vec![(0, Act::Answer)];
        }
        for acts in plan.reactions() {
            for _ in 0..script.byte() % 3 {
                // At once, or in the time of a few datagrams, or of timers.
                let pause = script.pick(&[0, 0, 1, 2, 3, 500, 3000, 9000, 80_000]);
                let act = script.pick(&Act::ALL);
                // Before or after what is planned already.
                let at = if script.byte().is_multiple_of(2) { acts.len() } else { 0 };
                acts.insert(at, (pause, act));
            }
        }
        plan
    }
}
