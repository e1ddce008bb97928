//! Allocates queue pair numbers among the processes of one network namespace.
//!
//! The number space of 24 bits is divided into 4 096 blocks of 4 096 numbers. A process owns a block
//! while it holds an abstract unix socket with the block's name. Such names belong to one network
//! namespace, as the addresses do, and vanish with the process. The packet filter so needs to compare
//! only `dest QP >> 12`. Any user can take such names, and nothing can take them back: see SECURITY.md.
//!
//! A freed number rests, so that packets under way to its last owner reach no other queue pair: numbers that were
//! never given go first, then that which has rested longest, if [`RESTING`] others rest behind it. A process claims
//! another block before the last quarter of one is given; where it gets none, all numbers that are free are given.
//! Each step costs the same, however many queue pairs there are.
//!
//! The namespace is that of the device. A queue pair may be made by a thread in another one, so the socket of
//! the first block is made with the device.

use std::collections::VecDeque;
use std::io;
use std::os::unix::net::UnixDatagram;

use rand::Rng;
use roce_io::process::Own;
use roce_io::sockets::{Unnamed, namespace_of};
use roce_wire::Qpn;

use crate::process::fork;

/// Bits of a queue pair number within its block.
const BLOCK_BITS: u32 = 12;
/// Blocks in the number space. The first, with the numbers of the management queue pairs, is not
/// allocated.
const BLOCKS: u16 = 1 << (24 - BLOCK_BITS);

/// Numbers in a block.
const BLOCK_LEN: u32 = 1 << BLOCK_BITS;
/// Freed numbers of a process that are not given again while it can get another block, and numbers of a block that
/// are not given while it can.
const RESTING: u32 = BLOCK_LEN / 4;

/// The blocks of this process, and their numbers in use.
#[derive(Debug, Default)]
pub(crate) struct QpnAllocator {
    /// All but the last have no more than [`RESTING`] numbers that were never given.
    blocks: Vec<Block>,
    /// Number 1 is in use.
    has_general_services: bool,
    /// Freed numbers, that which has rested longest first.
    freed: VecDeque<Qpn>,
    /// For the next block; by default one of the thread that claims it.
    socket: Option<Unnamed>,
}

/// One block, owned as long as the socket lives.
#[derive(Debug)]
struct Block {
    number: u16,
    /// Lower bits of the number that is given first.
    start: u32,
    /// Numbers that were given at least once.
    given: u32,
    name: Own<UnixDatagram>,
}

/// An allocated number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Allocated {
    pub(crate) qpn: Qpn,
    /// The packet filter does not pass it yet.
    pub(crate) is_filtered: bool,
}

impl QpnAllocator {
    /// Makes one for a device in this thread's network namespace.
    ///
    /// # Errors
    /// The system refuses a unix socket.
    pub(crate) fn of_this_namespace() -> io::Result<Self> {
        Ok(Self { socket: Some(Unnamed::new()?), ..Self::default() })
    }

    /// Allocates a number that no other queue pair of this network namespace uses.
    ///
    /// # Errors
    /// When all blocks are taken, the system refuses an abstract unix socket, or this thread is in another
    /// network namespace than the device, where it can claim no more than the first block.
    pub(crate) fn alloc(&mut self) -> io::Result<Allocated> {
        let rested = |freed: &mut VecDeque<Qpn>| match freed.len() > RESTING as usize {
            true => freed.pop_front(),
            false => None,
        };
        let newest = self.blocks.last_mut();
        let known = newest.and_then(|block| block.next_new(BLOCK_LEN - RESTING));
        if let Some(qpn) = known.or_else(|| rested(&mut self.freed)) {
            return Ok(Allocated { qpn, is_filtered: false });
        }
        let (qpn, is_filtered) = match self.claim() {
            Ok(mut block) => {
                let qpn = block.next_new(BLOCK_LEN);
                self.blocks.push(block);
                (qpn.expect("a fresh block has numbers"), true)
            }
            Err(error) => (self.last_resort().ok_or(error)?, false),
        };
        Ok(Allocated { qpn, is_filtered })
    }

    /// Returns a number that would rest if there were another block.
    fn last_resort(&mut self) -> Option<Qpn> {
        let mut blocks = self.blocks.iter_mut();
        blocks.find_map(|block| block.next_new(BLOCK_LEN)).or_else(|| self.freed.pop_front())
    }

    /// Allocates number 1, of the general services queue pair, which each process of a network
    /// namespace may have; `None` if it is in use.
    pub(crate) fn alloc_general_services(&mut self) -> Option<Allocated> {
        let is_free = !std::mem::replace(&mut self.has_general_services, true);
        is_free.then_some(Allocated { qpn: Qpn::GSI, is_filtered: true })
    }

    /// Returns true if number 1 is in use.
    pub(crate) fn has_general_services(&self) -> bool {
        self.has_general_services
    }

    /// Returns a block of this process, the upper twelve bits of its numbers; claims one if it has none.
    ///
    /// # Errors
    /// As [`alloc`](Self::alloc).
    pub(crate) fn block(&mut self) -> io::Result<u16> {
        if self.blocks.is_empty() {
            let first = self.claim()?;
            self.blocks.push(first);
        }
        Ok(self.blocks[0].number)
    }

    /// Frees a number that is in use.
    pub(crate) fn free(&mut self, qpn: Qpn) {
        if qpn == Qpn::GSI {
            self.has_general_services = false;
        } else {
            self.freed.push_back(qpn);
        }
    }

    /// Returns the blocks of this process: the upper twelve bits of their numbers.
    pub(crate) fn blocks(&self) -> Vec<u16> {
        self.blocks.iter().map(|block| block.number).collect()
    }

    /// Claims a random free block.
    fn claim(&mut self) -> io::Result<Block> {
        let mut socket = match self.socket.take() {
            Some(socket) => socket,
            None => self.socket_beside_the_others()?,
        };
        let mut random = fork::rng();
        // From a random start every block is tried once.
        let start = random.random_range(1..BLOCKS);
        for number in (start..BLOCKS).chain(1..start) {
            match socket.bind(&block_name(number)) {
                Ok(name) => {
                    let start = random.random_range(0..BLOCK_LEN);
                    return Ok(Block { number, start, given: 0, name });
                }
                Err((unbound, error)) => {
                    socket = unbound;
                    if error.kind() != io::ErrorKind::AddrInUse {
                        self.socket = Some(socket);
                        return Err(error);
                    }
                }
            }
        }
        self.socket = Some(socket);
        Err(io::Error::new(
            io::ErrorKind::AddrInUse,
            "all 4095 blocks of queue pair numbers are held by other processes of this network \
             namespace: end those that hold abstract unix sockets roce/qpn/* (ss -xlp), or use \
             another network namespace",
        ))
    }

    /// Makes a socket of this thread's network namespace, if the other blocks are of that.
    fn socket_beside_the_others(&self) -> io::Result<Unnamed> {
        let socket = Unnamed::new()?;
        let others = self.blocks.first().map_or_else(|| namespace_of(&socket), Block::namespace);
        if namespace_of(&socket) == others {
            return Ok(socket);
        }
        Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            "the device has used its 4096 queue pair numbers and cannot get more in this thread, \
             which is in another network namespace than the device: make the queue pair in a thread \
             of the device's namespace",
        ))
    }
}

/// Returns the abstract name of the process that has a block.
pub(crate) fn block_name(number: u16) -> String {
    format!("roce/qpn/{number:03x}")
}

impl Block {
    fn namespace(&self) -> Option<u64> {
        namespace_of(&self.name)
    }

    /// Returns a number that was never given, unless `max` of the block's were.
    fn next_new(&mut self, max: u32) -> Option<Qpn> {
        while self.given < max {
            let low = (self.start + self.given) % BLOCK_LEN;
            self.given += 1;
            let qpn = Qpn::new(u32::from(self.number) << BLOCK_BITS | low)?;
            if qpn != Qpn::MULTICAST {
                return Some(qpn);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn two_processes_never_hold_the_same_block() {
        let (mut a, mut b) = (QpnAllocator::default(), QpnAllocator::default());
        for _ in 0..20 {
            let (x, y) = (a.alloc().unwrap().qpn, b.alloc().unwrap().qpn);
            let block = |qpn: Qpn| (qpn.get() >> BLOCK_BITS) as u16;
            assert_eq!((a.blocks(), b.blocks()), (vec![block(x)], vec![block(y)]));
        }
    }

    #[test]
    fn a_freed_number_is_not_allocated_again_at_once() {
        let mut qpns = QpnAllocator::default();
        let first = qpns.alloc().unwrap().qpn;
        qpns.free(first);
        for _ in 0..1000 {
            let next = qpns.alloc().unwrap().qpn;
            assert_ne!(next, first);
        }
    }

    #[test]
    fn every_process_may_have_the_number_of_general_services_once() {
        let (mut a, mut b) = (QpnAllocator::default(), QpnAllocator::default());
        for qpns in [&mut a, &mut b] {
            assert!(!qpns.has_general_services());
            assert_eq!(qpns.alloc_general_services().unwrap().qpn, Qpn::GSI);
            assert_eq!(qpns.alloc_general_services(), None);
            assert!(qpns.has_general_services() && !qpns.blocks().contains(&0));
            qpns.free(Qpn::GSI);
            assert!(!qpns.has_general_services());
        }
    }

    #[test]
    fn before_a_quarter_of_a_block_is_left_another_is_claimed_and_reported() {
        let mut qpns = QpnAllocator::default();
        let count = |qpns: &mut QpnAllocator, count: u32| {
            (0..count).filter(|_| qpns.alloc().unwrap().is_filtered).count()
        };
        // The last number of all, which is none of a queue pair, may be among them.
        assert_eq!(count(&mut qpns, BLOCK_LEN - RESTING - 1), 1);
        assert_eq!(count(&mut qpns, 2), 1);
        assert_eq!(qpns.blocks().len(), 2);
    }

    #[test]
    fn a_freed_number_rests_until_a_thousand_others_were_freed_however_many_are_in_use() {
        for alive in [0, 1, 3000, 4096, 9000] {
            let mut qpns = QpnAllocator::default();
            for _ in 0..alive {
                qpns.alloc().unwrap();
            }
            let mut freed_at = std::collections::HashMap::new();
            for round in 0..10_000_u32 {
                let qpn = qpns.alloc().unwrap().qpn;
                if let Some(before) = freed_at.insert(qpn, round) {
                    assert!(
                        round - before >= RESTING,
                        "{alive} in use, {qpn} at {round}, {before}"
                    );
                }
                qpns.free(qpn);
            }
            assert!(freed_at.len() < 10_000, "numbers are given again");
        }
    }

    #[test]
    fn without_another_block_all_numbers_are_given_before_one_is_refused() {
        let mut qpns = QpnAllocator::default();
        let mut all = HashSet::new();
        assert!(all.insert(qpns.alloc().unwrap().qpn));
        // As in a thread of another network namespace: no block can be claimed there.
        let block = qpns.blocks.pop().unwrap();
        let mut alone = QpnAllocator { blocks: vec![block], ..QpnAllocator::default() };
        while let Some(qpn) = alone.last_resort() {
            assert!(all.insert(qpn), "{qpn} was given twice");
        }
        assert!(all.len() as u32 >= BLOCK_LEN - 1);
        let one = *all.iter().next().unwrap();
        alone.free(one);
        assert_eq!((alone.last_resort(), alone.last_resort()), (Some(one), None));
    }

    #[test]
    fn sixty_thousand_numbers_are_found_without_a_search() {
        let mut qpns = QpnAllocator::default();
        let began = std::time::Instant::now();
        let mut taken: Vec<_> = (0..60_000).map(|_| qpns.alloc().unwrap().qpn).collect();
        assert_eq!(taken.iter().collect::<HashSet<_>>().len(), 60_000);
        assert_eq!(qpns.blocks().len(), 60_000_usize.div_ceil((BLOCK_LEN - RESTING) as usize));
        taken.drain(..).for_each(|qpn| qpns.free(qpn));
        // A search of the full blocks takes a hundred times as long as this does, on a busy machine too.
        let took = began.elapsed();
        assert!(took < std::time::Duration::from_secs(3), "{took:?}");
    }
}
