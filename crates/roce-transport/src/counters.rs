//! Counters, under rxe's names where rxe has them.

/// One line for each counter: field (which is its name too) and meaning.
macro_rules! counters {
    ($( $(#[doc = $doc:literal])+ $name:ident, )*) => {
        /// Counts since the endpoint was made.
        ///
        /// ```
        /// use roce_transport::Counters;
        /// let counters = Counters::default();
        /// assert!(counters.iter().any(|(name, count)| name == "out_of_seq_request" && count == 0));
        /// ```
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct Counters {
            $( $(#[doc = $doc])+ pub $name: u64, )*
        }

        impl Counters {
            /// Every counter with its name, in a fixed order.
            pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> + use<> {
                [$( (stringify!($name), self.$name), )*].into_iter()
            }
        }
    };
}

counters! {
    /// Packets sent.
    sent_pkts,
    /// Packets that reached a queue pair.
    rcvd_pkts,
    /// Requests that had been executed before.
    duplicate_request,
    /// Requests that arrived before a missing one, kept or dropped.
    out_of_seq_request,
    /// RNR NAKs received: the peer had no receive posted.
    rcvd_rnr_err,
    /// RNR NAKs sent: we had no receive posted.
    send_rnr_err,
    /// Sequence NAKs received: the peer misses a packet.
    rcvd_seq_err,
    /// ACKs that were merged into a later response.
    ack_deferred,
    /// Requests given up since no response arrived.
    retry_exceeded_err,
    /// Requests given up because the peer had no receive posted.
    retry_rnr_exceeded_err,
    /// Retransmissions, for any cause.
    completer_retry_err,
    /// Packets that could not be sent because the buffer offered was too short.
    send_err,
    /// Messages sent, and acknowledged by a reliable peer, that use up a receive of the peer.
    rdma_sends,
    /// Messages received that used up a receive.
    rdma_recvs,

    /// Dropped: no queue pair of this number.
    unknown_qp,
    /// Dropped: the packet belongs to another service than the queue pair.
    wrong_service,
    /// Dropped: the queue pair's state takes no such packet.
    wrong_state,
    /// Dropped: another partition.
    bad_pkey,
    /// Dropped: another Q_Key than the queue pair's.
    bad_qkey,
    /// Dropped: a datagram or UC message for which no receive is posted.
    out_of_buffer,
    /// Dropped: to queue pair 1 of the device's own, and not of 256 bytes.
    management_length,
    /// Dropped: to queue pair 1 of the device's own, in a batch with too many of them.
    management_full,
    /// UC messages received whole, WRITEs included, of which nothing else tells.
    uc_rcvd_msgs,
    /// UC messages dropped: a packet was missing, or the message could not be placed.
    uc_dropped_msgs,
    /// UC and UD requests completed unsent: the transmit queue took nothing for a second.
    unsent_dropped,
    /// Dropped: not from the peer's address.
    wrong_source,
    /// Dropped: not to the queue pair's own address.
    wrong_destination,
    /// Packets received that a switch has marked.
    np_ecn_marked_roce_packets,
    /// CNPs sent.
    np_cnp_sent,
    /// CNPs received that a sender reacted to.
    rp_cnp_handled,
    /// Dropped: CNPs for a queue pair that does not react to them.
    rp_cnp_ignored,
    /// Sequence NAKs sent: a packet of the peer's is missing.
    send_seq_err,
    /// Retransmissions of missing packets alone, since the peer keeps those behind them.
    selective_repeat,
    /// Packets kept since one before them is missing.
    reorder_kept,
    /// Packets behind a missing one for which there was no room.
    reorder_full,
    /// Gap reports sent.
    gap_report_sent,
    /// Gap reports received and used.
    gap_report_rcvd,
    /// Dropped: gap reports that were not agreed on, of an unknown format, or not of outstanding
    /// requests.
    gap_report_ignored,
    /// Dropped: the packet is kept already.
    reorder_duplicate,
    /// Dropped: another packet of the same PSN is kept. One of the two is not the peer's.
    reorder_differs,
    /// Dropped: the packet is further ahead of the missing one than any sender goes.
    reorder_too_far,
    /// NAKs sent: the request makes no sense here.
    nak_invalid_request,
    /// NAKs sent: access to memory refused.
    nak_remote_access,
    /// NAKs sent: a receive names memory that may not be used.
    nak_remote_operational,
    /// NAKs received that end the connection.
    fatal_nak_received,
    /// Dropped: a repeated READ or atomic without a responder resource.
    unknown_duplicate,
    /// Dropped: a response to a packet never sent.
    response_never_requested,
    /// Dropped: a response that arrived before, or too late.
    duplicate_response,
    /// Dropped: a response of a kind that the request does not have.
    unexpected_response,
    /// Dropped: an AETH syndrome without a meaning.
    reserved_syndrome,
    /// Responses that do not match the request and end the connection.
    bad_response,
    /// Responses behind a missing one, which is requested again.
    implied_nak,
    /// Expirations of the ACK timeout.
    ack_timeout,
    /// Last packets sent again alone after a probe timeout.
    tail_probe,
    /// Retransmissions after a probe timeout.
    probe_timeout,
    /// Packets sent once more.
    resent_pkts,
    /// Local memory that may not be used, found when it was needed.
    local_protection_err,
}
