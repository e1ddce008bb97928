//! The PSNs that were sent.

use std::collections::HashMap;

use roce_wire::{Headers, Operation, Psn, Qpn, Service};

/// Highest PSN sent so far to each queue pair.
#[derive(Debug, Default)]
pub(crate) struct SentPsns {
    /// By sending host, destination, and requests or responses.
    highest: HashMap<(usize, Qpn, bool), Psn>,
}

impl SentPsns {
    /// Returns true if a packet with this PSN, direction and role was sent before. `packet` ends with
    /// its ICRC.
    pub(crate) fn is_again(&mut self, from: usize, packet: &[u8]) -> bool {
        let Some((body, _)) = packet.split_last_chunk::<{ roce_wire::ICRC_LEN }>() else {
            return false;
        };
        let Ok((headers, _)) = Headers::parse(body) else { return false };
        let info = headers.bth.opcode.info();
        // The PSNs of datagrams to one queue pair are those of many senders; a CNP has none.
        if info.operation == Operation::Acknowledge
            || matches!(info.service, Service::Ud | Service::Cnp | Service::Extension)
        {
            return false;
        }
        let psn = headers.bth.psn;
        let key = (from, headers.bth.dest_qp, info.is_request());
        let highest = self.highest.entry(key).or_insert(psn.previous());
        let is_new = psn.distance_from(*highest) > 0;
        if is_new {
            *highest = psn;
        }
        !is_new
    }
}
