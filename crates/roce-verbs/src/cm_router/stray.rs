//! Datagrams that may be for another process of this host.
//!
//! Each process with connection management gets every datagram to queue pair 1. What none of its
//! connections and listeners takes is answered only if it is no other process's either, by one of
//! the processes on the interface: the one that holds a name for that. The kernel frees the name
//! with the process, and a repetition of the datagram finds another. Where another user has taken the
//! name, all of this user's answer: a peer drops what it gets twice.

use roce_cm::{COUNTED_ID_BITS, DatagramAddresses};
use roce_io::ChosenProcess;
use roce_io::sockets::NameLookup;
use roce_wire::management::{CmDatagram, CmMessage, CommunicationId, ServiceId};

use super::port_claim;
use crate::qpn_allocator::block_name;

/// Decides about strays of one interface.
#[derive(Debug, Default)]
pub(crate) struct Strays {
    /// The process that answers requests to no process of this host.
    answers: Option<ChosenProcess>,
    /// A socket for each look took 6 % of the rate of a connection beside 5000 requests a second.
    lookup: NameLookup,
}

impl Strays {
    /// Returns true if this process is to answer a datagram that no process of this network namespace
    /// takes. `interface` is the number of the interface.
    pub(crate) fn is_to_answer(
        &mut self,
        interface: u32,
        addresses: DatagramAddresses,
        datagram: &[u8],
    ) -> bool {
        let Ok(CmDatagram { message, .. }) = CmDatagram::decode(datagram) else { return false };
        let is_anothers = match &message {
            CmMessage::Req(req) => self.has_listener(req.service_id, addresses),
            CmMessage::SidrReq(req) => self.has_listener(req.service_id, addresses),
            CmMessage::Dreq(dreq) => self.has_owner(dreq.remote_id),
            // Not answered by any process.
            _ => true,
        };
        if is_anothers {
            return false;
        }
        let name = || ChosenProcess::new(format!("roce/cm/stray/{interface}"));
        self.answers.get_or_insert_with(name).is_this()
    }

    fn has_listener(&mut self, service: ServiceId, addresses: DatagramAddresses) -> bool {
        service.port().is_some_and(|(space, port)| {
            port_claim::is_listening(&mut self.lookup, space, port, addresses.local)
        })
    }

    fn has_owner(&mut self, id: CommunicationId) -> bool {
        self.lookup.is_bound(&block_name((id.0 >> COUNTED_ID_BITS) as u16))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cm_router::port_claim::PortClaim;
    use crate::qpn_allocator::QpnAllocator;
    use roce_io::sockets::Unnamed;
    use roce_wire::management::{Dreq, PortSpace, Req, Rtu};

    const INTERFACE: u32 = 0xffff_0001;

    fn addresses() -> DatagramAddresses {
        DatagramAddresses { local: [10, 99, 0, 1].into(), remote: [10, 99, 0, 2].into() }
    }

    fn answers(strays: &mut Strays, message: CmMessage) -> bool {
        let datagram = CmDatagram { transaction: 1, message }.encode();
        strays.is_to_answer(INTERFACE, addresses(), &datagram)
    }

    #[test]
    fn what_another_process_may_answer_is_left_to_it_and_one_answers_the_rest() {
        let (mut one, mut other) = (Strays::default(), Strays::default());
        let space = PortSpace(0xf100);
        let req = || {
            let service_id = ServiceId::from_port(space, 7);
            CmMessage::Req(Req { service_id, ..Req::default() })
        };
        for address in ["10.99.0.1:7", "0.0.0.0:7"] {
            let mut claim = PortClaim::new(space, address.parse().unwrap(), false).unwrap();
            // As the kernel, where an identifier is bound and does not listen.
            assert!(answers(&mut one, req()));
            claim.announce(Unnamed::new().unwrap()).unwrap();
            assert!(!answers(&mut one, req()));
            claim.withdraw();
            assert!(answers(&mut one, req()));
        }
        // Of two processes one answers, until it ends.
        assert!(answers(&mut one, req()) && answers(&mut one, req()));
        assert!(!answers(&mut other, req()));
        drop(one);
        assert!(answers(&mut other, req()));

        let mut numbers = QpnAllocator::default();
        let block = u32::from(numbers.block().unwrap());
        let dreq = |block: u32| {
            let remote_id = CommunicationId(block << COUNTED_ID_BITS | 5);
            CmMessage::Dreq(Dreq { remote_id, ..Dreq::default() })
        };
        assert!(!answers(&mut other, dreq(block)));
        drop(numbers);
        assert!(answers(&mut other, dreq(block)));
        assert!(!answers(&mut other, CmMessage::Rtu(Rtu::default())));
    }
}
