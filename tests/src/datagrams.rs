//! A queue pair of datagrams with a slot of memory for each receive.

use roce_verbs::{
    AddressHandle, AddressVector, Completion, GRH_LEN, GSI_Q_KEY, Gid, MemoryRegion, QueuePair,
    QueuePairBuilder, RecvWr, Service, Sge,
};

use crate::fixtures::TestDevice;

/// The Q_Key of all of them.
pub const Q_KEY: u32 = 0x1234_5678;

/// Bytes of a slot: the longest datagram and its GRH.
const SLOT: usize = GRH_LEN + 4096;

/// A queue pair of datagrams and its memory.
#[derive(Debug)]
pub struct DatagramEnd {
    /// The queue pair, in RTS.
    pub qp: QueuePair,
    /// The slots.
    pub region: MemoryRegion,
}

impl DatagramEnd {
    /// Makes a queue pair with so many slots, and no receive posted.
    ///
    /// # Panics
    /// When it cannot be made.
    pub fn new(end: &TestDevice, slots: usize) -> Self {
        Self::of(end, slots, end.pd.queue_pair(&end.cq, &end.cq).service(Service::Ud), Q_KEY)
    }

    /// As [`new`](Self::new), of the general services queue pair.
    ///
    /// # Panics
    /// When it cannot be made.
    pub fn general_services(end: &TestDevice, slots: usize) -> Self {
        let builder = end.pd.queue_pair(&end.cq, &end.cq).general_services();
        Self::of(end, slots, builder, GSI_Q_KEY)
    }

    /// As [`new`](Self::new), with this builder and Q_Key.
    ///
    /// # Panics
    /// When it cannot be made.
    pub fn of(end: &TestDevice, slots: usize, builder: QueuePairBuilder, q_key: u32) -> Self {
        let qp = builder.max_send_wr(256).max_recv_wr(256).build().expect("a queue pair");
        qp.ready_for_datagrams(q_key).expect("it gets ready");
        Self { qp, region: end.region(slots * SLOT, 0) }
    }

    /// Posts the receive of a slot.
    ///
    /// # Panics
    /// When it is refused.
    pub fn post_receive(&self, slot: usize) {
        let place = self.region.sge(slot * SLOT..(slot + 1) * SLOT).expect("in range");
        self.qp.post_recv([RecvWr::new(slot as u64, [place])]).expect("a receive is taken");
    }

    /// The first 40 bytes of a slot.
    ///
    /// # Panics
    /// When there is no such slot.
    pub fn grh(&self, slot: usize) -> [u8; GRH_LEN] {
        let mut grh = [0; GRH_LEN];
        self.region.read(slot * SLOT, &mut grh).expect("in range");
        grh
    }

    /// The datagram in a slot.
    ///
    /// # Panics
    /// When there is no such slot.
    pub fn payload(&self, slot: usize, received: &Completion) -> Sge {
        let start = slot * SLOT;
        let end = start + received.byte_len as usize;
        self.region.sge(start + GRH_LEN..end).expect("in range")
    }

    /// The bytes of the datagram in a slot.
    ///
    /// # Panics
    /// When there is no such slot.
    pub fn contents(&self, slot: usize, received: &Completion) -> Vec<u8> {
        let mut bytes = vec![0; received.byte_len as usize - GRH_LEN];
        self.region.read(slot * SLOT + GRH_LEN, &mut bytes).expect("in range");
        bytes
    }
}

/// The address handle of a device to an address, from its row of the same family.
///
/// # Panics
/// When there is none.
pub fn address_handle(end: &TestDevice, address: &str, max_rate: Option<u64>) -> AddressHandle {
    let address: std::net::IpAddr = address.parse().expect("an address");
    // The rows of a cable's ends: link-local, IPv4, IPv6.
    let row = if address.is_ipv4() { 1 } else { 2 };
    let vector = AddressVector { max_rate, ..AddressVector::new(row, Gid::from(address)) };
    end.pd.create_ah(&vector).expect("the peer is reachable")
}
