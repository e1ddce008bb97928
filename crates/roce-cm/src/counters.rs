//! What an agent counts, and why it drops datagrams.

use roce_wire::management::ManagementError;

/// One line for each reason: variant, name of its counter and meaning.
macro_rules! drop_reasons {
    ($( $(#[doc = $doc:literal])+ $name:ident = $counter:literal, )*) => {
        /// Reason why an agent dropped a datagram without effect.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum DropReason {
            $( $(#[doc = $doc])+ $name, )*
        }

        impl DropReason {
            /// All reasons, in a fixed order.
            pub const ALL: &'static [Self] = &[$( Self::$name, )*];

            /// Returns the stable name of its counter.
            pub const fn counter(self) -> &'static str {
                match self { $( Self::$name => $counter, )* }
            }
        }
    };
}

drop_reasons! {
    /// Not 256 bytes.
    Length = "cm_drop_length",
    /// A common header of another version.
    BaseVersion = "cm_drop_base_version",
    /// Another management class, or another version of this one.
    Class = "cm_drop_class",
    /// Another method than Send.
    Method = "cm_drop_method",
    /// A message that is not defined.
    Attribute = "cm_drop_attribute",
    /// LAP or APR: alternate paths are not supported.
    AlternatePath = "cm_drop_alternate_path",
    /// No connection has the communication ids.
    UnknownId = "cm_drop_unknown_id",
    /// Not from the address of the connection's peer.
    WrongSource = "cm_drop_wrong_source",
    /// A DREQ for another queue pair than the connection's.
    WrongQueuePair = "cm_drop_wrong_qp",
    /// The connection's state takes no such message; mostly a repetition.
    WrongState = "cm_drop_wrong_state",
    /// A repeated request that the program has not been told of, or has accepted.
    Duplicate = "cm_drop_duplicate",
    /// The listener's backlog is full; the peer repeats the request.
    BacklogFull = "cm_drop_backlog_full",
    /// Too many requests wait for the program's answer; the peer repeats the request.
    RequestsFull = "cm_drop_requests_full",
    /// Too many [strays](crate::Disposition::Stray), or DREQs of unknown connections; the peers repeat them.
    Strays = "cm_stray_dropped",
}

impl From<ManagementError> for DropReason {
    fn from(error: ManagementError) -> Self {
        match error {
            ManagementError::Length(_) => Self::Length,
            ManagementError::BaseVersion(_) => Self::BaseVersion,
            ManagementError::Class { .. } => Self::Class,
            ManagementError::Method(_) => Self::Method,
            // The error is `non_exhaustive`.
            _ => Self::Attribute,
        }
    }
}

/// One line for each counter: field (which is its name too, after `cm_`) and meaning.
macro_rules! counters {
    ($( $(#[doc = $doc:literal])+ $name:ident = $counter:literal, )*) => {
        /// Counts since the agent was made.
        ///
        /// ```
        /// use roce_cm::Counters;
        /// let counters = Counters::default();
        /// assert!(counters.iter().any(|(name, count)| name == "cm_resent" && count == 0));
        /// assert!(counters.iter().any(|(name, count)| name == "cm_drop_length" && count == 0));
        /// ```
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct Counters {
            $( $(#[doc = $doc])+ pub $name: u64, )*
            dropped: [u64; DropReason::ALL.len()],
        }

        impl Counters {
            /// Returns every counter with its name, in a fixed order.
            pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
                let dropped = DropReason::ALL.iter().map(|it| (it.counter(), self.dropped(*it)));
                [$( ($counter, self.$name), )*].into_iter().chain(dropped)
            }
        }
    };
}

counters! {
    /// Datagrams handled, dropped ones included.
    received = "cm_received",
    /// Datagrams handed out.
    sent = "cm_sent",
    /// Messages repeated since no answer arrived.
    resent = "cm_resent",
    /// REQs, DREQs and SIDR_REQs that waited, since too many others to their peer had no answer.
    held_back = "cm_held_back",
    /// Repeated requests that were answered again.
    answered_again = "cm_answered_again",
    /// Messages that were given up since no answer arrived.
    unanswered = "cm_unanswered",
    /// Requests from a queue pair that a live connection has as its peer's.
    stale = "cm_stale",
    /// REQs refused for what they say: addresses, path MTU, service.
    refused = "cm_refused",
    /// Datagrams left to another agent of the host, to be answered unless one takes them: see
    /// [`Disposition::Stray`](crate::Disposition).
    stray = "cm_stray",
    /// Datagrams left to another agent of the host, that are not answered: see
    /// [`Disposition::Foreign`](crate::Disposition).
    foreign = "cm_foreign",
    /// DREQs with an id of this agent's block that were answered without a connection: it is forgotten already,
    /// or never was.
    unknown_dreq = "cm_unknown_dreq",
    /// Requests forgotten for newer ones of a full backlog, since their answers had no path; the peers
    /// repeat them.
    request_forgotten = "cm_request_forgotten",
    /// Replies no longer kept, since there were too many: a repeated request becomes a new one.
    kept_reply_dropped = "cm_kept_reply_dropped",
    /// Timewaits ended early, since there were too many.
    timewait_dropped = "cm_timewait_dropped",
    /// Datagrams not sent, since too many waited to be taken.
    transmit_dropped = "cm_transmit_dropped",
}

impl Counters {
    /// Returns the number of datagrams that were dropped for `reason`.
    pub fn dropped(&self, reason: DropReason) -> u64 {
        self.dropped[reason as usize]
    }

    pub(crate) fn count_drop(&mut self, reason: DropReason) {
        self.dropped[reason as usize] += 1;
    }
}
