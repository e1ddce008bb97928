//! Packets to the general services queue pair, where that is no queue pair of the program.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use core::net::IpAddr;

use roce_wire::{GSI_Q_KEY, Packet, Verified, opcode};

use crate::context::DropReason;
use crate::qp::context::is_of_default_partition;

/// Bytes of a management datagram.
const DATAGRAM_LEN: usize = 256;

/// Most management datagrams that wait to be taken: those of one batch of received packets.
pub const MAX_MANAGEMENT_DATAGRAMS: usize = 64;

/// A management datagram, from queue pair 1 of a peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManagementDatagram {
    /// The own address.
    pub local: IpAddr,
    /// The sender's address.
    pub remote: IpAddr,
    /// Payload.
    pub payload: Box<[u8; DATAGRAM_LEN]>,
}

/// The management datagrams that wait to be taken.
#[derive(Debug, Default)]
pub(super) struct ManagementQueue {
    is_open: bool,
    datagrams: VecDeque<ManagementDatagram>,
}

impl ManagementQueue {
    pub(super) fn is_open(&self) -> bool {
        self.is_open
    }

    /// Keeps datagrams from now on.
    pub(super) fn open(&mut self) {
        self.is_open = true;
    }

    pub(super) fn pop(&mut self) -> Option<ManagementDatagram> {
        self.datagrams.pop_front()
    }

    /// Checks a packet to queue pair 1, and adds its payload.
    //= rule gsi-datagrams: InfiniBand, clause not known; rxe_recv.c: check_keys
    //# A packet to queue pair 1 is one management datagram of 256 bytes, of the default partition
    //# and with the Q_Key 0x80010000; others are dropped.
    pub(super) fn push(&mut self, packet: &Packet<'_, Verified>) -> Result<(), DropReason> {
        let deth = packet.view().deth().filter(|_| packet.opcode() == opcode::UD_SEND_ONLY);
        let deth = deth.ok_or(DropReason::WrongService)?;
        if !is_of_default_partition(packet.bth().partition_key()) {
            return Err(DropReason::BadPkey);
        }
        if deth.q_key != GSI_Q_KEY {
            return Err(DropReason::BadQkey);
        }
        let payload = packet.payload().try_into().map_err(|_| DropReason::ManagementLength)?;
        if self.datagrams.len() >= MAX_MANAGEMENT_DATAGRAMS {
            return Err(DropReason::ManagementFull);
        }
        let (local, remote) = (packet.destination(), packet.source());
        self.datagrams.push_back(ManagementDatagram { local, remote, payload: Box::new(payload) });
        Ok(())
    }
}
