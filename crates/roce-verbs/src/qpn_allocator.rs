//! Queue pair numbers, shared out among the processes of one network namespace.
//!
//! The number space of 24 bits is cut into 4 096 blocks of 4 096 numbers. A process owns
//! a block by holding an abstract unix socket with the block's name: such names belong to
//! one network namespace, as the addresses do, and vanish with the process, however it
//! ends, so that nothing has to be cleaned up. The packet filter then needs to compare no
//! more than `dest QP >> 12`.

use std::collections::HashSet;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

use rand::Rng;
use roce_wire::Qpn;

use crate::fork;

/// Bits of a queue pair number that count within a block.
const BLOCK_BITS: u32 = 12;
/// Blocks in the number space.
const BLOCKS: u16 = 1 << (24 - BLOCK_BITS);

/// The blocks that this process holds, and which of their numbers are in use.
#[derive(Debug, Default)]
pub(crate) struct QpnAllocator {
    blocks: Vec<Block>,
    used: HashSet<Qpn>,
}

/// One block; the name is held as long as the socket lives.
#[derive(Debug)]
struct Block {
    number: u16,
    /// Where the next free number is looked for: a number that was given back is not
    /// handed out again at once, so that packets in flight for its last owner find nobody.
    next: u32,
    _name: UnixDatagram,
}

/// What came of a request for a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Allocated {
    pub(crate) qpn: Qpn,
    /// A further block was claimed for it: the packet filter has to learn of it.
    pub(crate) new_block: bool,
}

impl QpnAllocator {
    /// Hands out a number that nobody else in this network namespace uses.
    ///
    /// # Errors
    /// When all blocks are taken, or the system refuses an abstract unix socket.
    pub(crate) fn alloc(&mut self) -> io::Result<Allocated> {
        let used = &self.used;
        if let Some(qpn) = self.blocks.iter_mut().find_map(|block| block.next_free(used)) {
            self.used.insert(qpn);
            return Ok(Allocated { qpn, new_block: false });
        }
        let mut block = Block::claim()?;
        let qpn = block.next_free(&self.used).expect("a fresh block has free numbers");
        self.blocks.push(block);
        self.used.insert(qpn);
        Ok(Allocated { qpn, new_block: true })
    }

    /// Takes a number back.
    pub(crate) fn free(&mut self, qpn: Qpn) {
        self.used.remove(&qpn);
    }

    /// The blocks held, as the packet filter wants them: the upper twelve bits.
    pub(crate) fn blocks(&self) -> Vec<u16> {
        self.blocks.iter().map(|block| block.number).collect()
    }

    /// Whether a number lies in a block of this process.
    pub(crate) fn owns(&self, qpn: Qpn) -> bool {
        self.blocks.iter().any(|block| u32::from(block.number) == qpn.get() >> BLOCK_BITS)
    }
}

impl Block {
    /// Claims a block at random that nobody holds.
    fn claim() -> io::Result<Self> {
        let mut random = fork::rng();
        // From a random start every block is tried once.
        let start = random.random_range(0..BLOCKS);
        for step in 0..BLOCKS {
            let number = (start + step) % BLOCKS;
            let name = SocketAddr::from_abstract_name(format!("roce/qpn/{number:03x}"))?;
            match UnixDatagram::bind_addr(&name) {
                Ok(socket) => {
                    let next = random.random_range(0..1 << BLOCK_BITS);
                    return Ok(Self { number, next, _name: socket });
                }
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
                Err(error) => return Err(error),
            }
        }
        Err(io::Error::new(
            io::ErrorKind::AddrInUse,
            "all 4096 blocks of queue pair numbers are held by other processes",
        ))
    }

    fn next_free(&mut self, used: &HashSet<Qpn>) -> Option<Qpn> {
        let size = 1 << BLOCK_BITS;
        for step in 0..size {
            let low = (self.next + step) % size;
            let qpn = Qpn::new(u32::from(self.number) << BLOCK_BITS | low)?;
            // 0 and 1 are the management queue pairs, the last number means multicast.
            let reserved = qpn.get() <= 1 || qpn == Qpn::MULTICAST;
            if !reserved && !used.contains(&qpn) {
                self.next = low + 1;
                return Some(qpn);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_processes_never_hold_the_same_block() {
        let (mut a, mut b) = (QpnAllocator::default(), QpnAllocator::default());
        for _ in 0..20 {
            let (x, y) = (a.alloc().unwrap().qpn, b.alloc().unwrap().qpn);
            assert!(a.owns(x) && !a.owns(y) && b.owns(y) && !b.owns(x));
        }
    }

    #[test]
    fn a_number_given_back_is_not_handed_out_again_at_once() {
        let mut qpns = QpnAllocator::default();
        let first = qpns.alloc().unwrap().qpn;
        qpns.free(first);
        for _ in 0..1000 {
            let next = qpns.alloc().unwrap().qpn;
            assert_ne!(next, first);
        }
    }

    #[test]
    fn when_a_block_is_full_another_is_claimed_and_said_so() {
        let mut qpns = QpnAllocator::default();
        let new_blocks = (0..5000).filter(|_| qpns.alloc().unwrap().new_block).count();
        assert_eq!((new_blocks, qpns.blocks().len()), (2, 2));
    }
}
