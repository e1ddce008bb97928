//! The places of work queues that are taken: by requests of which the program has not polled the
//! completion that retires them.
//!
//! Posts count requests with the lock of an engine held, polls retire them with that of a completion queue
//! held. So that neither takes the other's lock, each has a counter of its own, and the places taken are the
//! difference. A completion has the number of its work queue's slot ([`Retired`](roce_transport::Retired)).
//!
//! A slot belongs to a queue pair, or to a shared receive queue. Its number is given away again only after
//! the completion queues of its owner hold no completion with it.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use roce_transport::{Completion, Retired};

/// Slots of the first block; each further block has twice as many as the one before.
const FIRST_BLOCK: u32 = 64;
/// So many blocks have all the numbers that completions can name.
const BLOCKS: usize = (Retired::MAX_QUEUES / FIRST_BLOCK).ilog2() as usize;

/// The slots of a device.
#[derive(Debug, Default)]
pub(crate) struct WorkSlots {
    blocks: [OnceLock<Box<[WorkSlot]>>; BLOCKS],
    numbers: Mutex<Numbers>,
}

/// Numbers of slots.
#[derive(Debug, Default)]
struct Numbers {
    /// Those given back. There is room for all that were ever made.
    free: Vec<u32>,
    /// Those made so far.
    made: u32,
}

/// Places taken in the work queues of a queue pair, or in a shared receive queue.
#[derive(Debug, Default)]
#[repr(align(64))] // other threads count in other slots
pub(crate) struct WorkSlot {
    pub(crate) sends: Places,
    pub(crate) receives: Places,
    /// Completions of several completion queues retire its receives.
    is_shared: AtomicBool,
}

/// Places of a work queue.
#[derive(Debug, Default)]
pub(crate) struct Places {
    /// Requests posted, modulo 2^32. Changed with the lock of the queue's engine held.
    posted: AtomicU32,
    /// Requests of which the program has polled the completion, or of which that is lost, modulo 2^32. Changed with
    /// the lock of the completion queue held, or while that is empty with the lock of the engine that fills it.
    retired: AtomicU32,
}

impl Places {
    /// Returns the number of places that are taken. The caller holds the lock of the engine.
    #[inline]
    pub(crate) fn taken(&self) -> u32 {
        let retired = self.retired.load(Ordering::Acquire);
        self.posted.load(Ordering::Relaxed).wrapping_sub(retired)
    }

    /// A request was posted. The caller holds the lock of the engine.
    #[inline]
    pub(crate) fn take(&self) {
        self.posted.store(self.posted.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
    }

    /// Requests are done. No other thread calls this for the same queue meanwhile.
    #[inline]
    fn give_back(&self, count: u32) {
        let retired = self.retired.load(Ordering::Relaxed).wrapping_add(count);
        self.retired.store(retired, Ordering::Release);
    }

    fn clear(&self) {
        self.posted.store(0, Ordering::Relaxed);
        self.retired.store(0, Ordering::Relaxed);
    }
}

impl WorkSlot {
    /// Takes all requests out of account. The caller holds the lock of the engine, and no completion queue
    /// holds a completion of this slot.
    pub(crate) fn clear(&self) {
        self.sends.clear();
        self.receives.clear();
    }

    /// A receive of a shared queue will never complete.
    pub(crate) fn lose_shared_receive(&self) {
        self.receives.retired.fetch_add(1, Ordering::Release);
    }

    /// Returns true if no place is taken.
    pub(crate) fn is_empty(&self) -> bool {
        self.sends.taken() == 0 && self.receives.taken() == 0
    }
}

impl WorkSlots {
    /// A number that no slot has: completions with it retire nothing.
    pub(crate) const NO_NUMBER: u32 = Retired::MAX_QUEUES - 1;

    /// Returns the number of a slot in which nothing is taken; `None` where memory or numbers run out.
    pub(crate) fn allocate(&self, is_shared: bool) -> Option<u32> {
        let mut numbers = self.numbers.lock().unwrap_or_else(PoisonError::into_inner);
        let number = match numbers.free.pop() {
            Some(number) => number,
            None => {
                let number = numbers.made;
                let (block, index) = place_of(number);
                let slots = self.blocks.get(block)?;
                if slots.get().is_none() {
                    let len = (FIRST_BLOCK << block) as usize;
                    let mut made = Vec::new();
                    made.try_reserve_exact(len).ok()?;
                    made.resize_with(len, WorkSlot::default);
                    // Without the lock of `numbers` nothing is made.
                    let _made_before = slots.set(made.into_boxed_slice());
                }
                if index == 0 {
                    let Numbers { free, .. } = &mut *numbers;
                    free.try_reserve_exact(number as usize + (FIRST_BLOCK << block) as usize)
                        .ok()?;
                }
                numbers.made += 1;
                number
            }
        };
        let slot = self.get(number)?;
        slot.clear();
        slot.is_shared.store(is_shared, Ordering::Relaxed);
        Some(number)
    }

    /// Gives a number back. No completion has it any more.
    pub(crate) fn free(&self, number: u32) {
        self.numbers.lock().unwrap_or_else(PoisonError::into_inner).free.push(number);
    }

    #[inline]
    pub(crate) fn get(&self, number: u32) -> Option<&WorkSlot> {
        let (block, index) = place_of(number);
        self.blocks.get(block)?.get()?.get(index)
    }

    /// The program takes a completion.
    #[inline]
    pub(crate) fn retire(&self, completion: &Completion) {
        // One that has retired its requests names slot 0, whose counts another queue's lock guards.
        if completion.retired.count() == 0 {
            return;
        }
        let Some(slot) = self.get(completion.retired.queue()) else { return };
        let count = completion.retired.count();
        if !completion.operation.is_receive() {
            slot.sends.give_back(count);
        } else if slot.is_shared.load(Ordering::Relaxed) {
            slot.receives.retired.fetch_add(count, Ordering::Release);
        } else {
            slot.receives.give_back(count);
        }
    }
}

/// Returns the block of a slot, and its position there.
#[inline]
const fn place_of(number: u32) -> (usize, usize) {
    let shifted = number + FIRST_BLOCK;
    let block = shifted.ilog2() - FIRST_BLOCK.ilog2();
    (block as usize, (shifted - (FIRST_BLOCK << block)) as usize)
}

#[cfg(test)]
mod tests {
    use roce_transport::{CompletionOperation, CompletionStatus};
    use roce_wire::Qpn;

    use super::*;

    fn completion(operation: CompletionOperation, queue: u32, count: u32) -> Completion {
        Completion {
            retired: Retired::new(queue, count),
            ..Completion::new(0, Qpn::GSI, operation, CompletionStatus::Success, 0)
        }
    }

    #[test]
    fn each_number_has_a_slot_of_its_own() {
        let mut last = None;
        for number in 0..5000 {
            let (block, index) = place_of(number);
            assert!(index < (FIRST_BLOCK as usize) << block);
            assert!(last < Some((block, index)), "{number}");
            last = Some((block, index));
        }
        assert_eq!(place_of(Retired::MAX_QUEUES - 1 - FIRST_BLOCK).0, BLOCKS - 1);
        let slots = WorkSlots::default();
        let numbers: Vec<_> = (0..500).map(|_| slots.allocate(false).unwrap()).collect();
        for number in &numbers {
            let slot = slots.get(*number).unwrap();
            assert_eq!(slot.sends.taken(), 0, "slot {number} is another one, too");
            slot.sends.take();
        }
        slots.free(numbers[70]);
        assert_eq!(slots.allocate(true), Some(numbers[70]));
        assert!(slots.get(numbers[70]).unwrap().is_empty());
        assert!(slots.get(1 << 20).is_none());
        assert!(place_of(WorkSlots::NO_NUMBER).0 >= BLOCKS);
    }

    #[test]
    fn sends_receives_and_shared_receives_are_counted_apart() {
        let slots = WorkSlots::default();
        let [pair, shared] = [false, true].map(|is_shared| slots.allocate(is_shared).unwrap());
        let (of_pair, of_shared) = (slots.get(pair).unwrap(), slots.get(shared).unwrap());
        for places in [&of_pair.sends, &of_pair.receives, &of_shared.receives] {
            (0..5).for_each(|_| places.take());
        }
        slots.retire(&completion(CompletionOperation::Write, pair, 4));
        slots.retire(&completion(CompletionOperation::Recv, pair, 1));
        slots.retire(&completion(CompletionOperation::RecvWithImmediate, shared, 1));
        of_shared.lose_shared_receive();
        assert_eq!((of_pair.sends.taken(), of_pair.receives.taken()), (1, 4));
        assert_eq!(of_shared.receives.taken(), 3);
        // One that names no request any more.
        slots.retire(&completion(CompletionOperation::Write, pair, 0));
        assert_eq!(of_pair.sends.taken(), 1);
    }

    #[test]
    fn completions_that_retire_nothing_lose_no_count_of_another_thread() {
        const COUNT: u32 = 200_000;
        let slots = WorkSlots::default();
        let first = slots.allocate(false).unwrap();
        assert_eq!(first, Retired::default().queue(), "what names no queue names this one");
        let polled_last = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let stale = completion(CompletionOperation::Write, first, 0);
                while !polled_last.load(Ordering::Relaxed) {
                    slots.retire(&stale);
                }
            });
            for _ in 0..COUNT {
                slots.get(first).unwrap().sends.take();
                slots.retire(&completion(CompletionOperation::Write, first, 1));
            }
            polled_last.store(true, Ordering::Relaxed);
        });
        assert!(slots.get(first).unwrap().is_empty());
    }
}
