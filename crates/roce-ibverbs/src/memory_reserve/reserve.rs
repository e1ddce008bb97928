//! Memory that the library has had from the start.

use std::alloc::Layout;
use std::cell::UnsafeCell;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicI32, Ordering};

use linked_list_allocator::Heap;

/// Bytes of large pieces, and of small ones where these have no more.
const LARGE_LEN: usize = 12 << 20;
/// Bytes of small pieces.
const SMALL_LEN: usize = 4 << 20;
const LEN: usize = LARGE_LEN + SMALL_LEN;
const MAX_SMALL: usize = 16 << 10;
/// The largest piece. A fallible allocation of more is better refused.
const MAX_PIECE: usize = 1 << 20;
const MAX_ALIGN: usize = 4096;

/// Zeros of the library's data, which take no memory before they are used.
pub(super) struct Reserve {
    bytes: UnsafeCell<Bytes>,
    heaps: UnsafeCell<Option<Heaps>>,
    /// The process whose thread uses the heaps; 0 for none. In a child of `fork` the number of its parent stands for
    /// none, since the child does not have that thread.
    holder: AtomicI32,
}

#[repr(align(4096))]
struct Bytes(#[expect(dead_code, reason = "reached by its address alone")] [u8; LEN]);

struct Heaps {
    large: Heap,
    small: Heap,
}

// SAFETY: `with_heaps` lets one thread use the heaps at a time, and they give each byte to one caller.
unsafe impl Sync for Reserve {}

impl Reserve {
    pub(super) const fn new() -> Self {
        Self {
            bytes: UnsafeCell::new(Bytes([0; LEN])),
            heaps: UnsafeCell::new(None),
            holder: AtomicI32::new(0),
        }
    }

    /// Returns memory of this layout; null if there is none. It may hold what an earlier piece held.
    pub(super) fn take(&'static self, layout: Layout) -> *mut u8 {
        if layout.size() > MAX_PIECE || layout.align() > MAX_ALIGN {
            return ptr::null_mut();
        }
        let taken = self.with_heaps(|Heaps { large, small }| match layout.size() > MAX_SMALL {
            true => large.allocate_first_fit(layout),
            false => {
                small.allocate_first_fit(layout).or_else(|()| large.allocate_first_fit(layout))
            }
        });
        taken.map_or(ptr::null_mut(), NonNull::as_ptr)
    }

    /// Takes a piece back.
    ///
    /// # Safety
    /// [`take`](Self::take) has returned it for this layout, and it is not used any more.
    pub(super) unsafe fn give_back(&'static self, piece: NonNull<u8>, layout: Layout) {
        let is_small = piece.as_ptr().addr() >= self.bytes.get().addr() + LARGE_LEN;
        self.with_heaps(|Heaps { large, small }| {
            // SAFETY: the heap of the piece's address has given it out for this layout.
            unsafe { if is_small { small } else { large }.deallocate(piece, layout) };
        });
    }

    pub(super) fn contains(&self, piece: *mut u8) -> bool {
        piece.addr().wrapping_sub(self.bytes.get().addr()) < LEN
    }

    /// Calls `work`, which is short, with the heaps, in one thread of a process at a time.
    fn with_heaps<T>(&'static self, work: impl FnOnce(&mut Heaps) -> T) -> T {
        // SAFETY: the call has no conditions.
        let own = unsafe { libc::getpid() };
        loop {
            let holder = self.holder.load(Ordering::Relaxed);
            let (acquire, relaxed) = (Ordering::Acquire, Ordering::Relaxed);
            if holder != own && self.holder.compare_exchange(holder, own, acquire, relaxed).is_ok()
            {
                break;
            }
            std::thread::yield_now();
        }
        // SAFETY: `holder` lets no other thread of this process be here.
        let heaps = unsafe { &mut *self.heaps.get() };
        let heaps = heaps.get_or_insert_with(|| {
            let first: *mut u8 = self.bytes.get().cast();
            // SAFETY: the two parts are the heaps' alone, are as long as said, and live for ever.
            unsafe {
                Heaps {
                    large: Heap::new(first, LARGE_LEN),
                    small: Heap::new(first.add(LARGE_LEN), SMALL_LEN),
                }
            }
        });
        let result = work(heaps);
        self.holder.store(0, Ordering::Release);
        result
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    fn new() -> &'static Reserve {
        Box::leak(Box::new(Reserve::new()))
    }

    fn layout(size: usize, align: usize) -> Layout {
        Layout::from_size_align(size, align).unwrap()
    }

    fn give_back(reserve: &'static Reserve, piece: (usize, Layout)) {
        let found = NonNull::new(ptr::with_exposed_provenance_mut(piece.0)).unwrap();
        // SAFETY: the tests give each piece back once.
        unsafe { reserve.give_back(found, piece.1) };
    }

    #[test]
    fn each_byte_is_given_out_once_and_large_pieces_leave_some_for_small_ones() {
        let reserve = new();
        let each = [(layout(100, 8), 1000), (layout(MAX_PIECE, 64), usize::MAX)];
        let each = [each[0], each[1], (layout(MAX_SMALL, 16), usize::MAX)];
        for _ in 0..3 {
            let mut pieces: Vec<(usize, Layout)> = Vec::new();
            let counts = each.map(|(layout, limit)| {
                let before = pieces.len();
                let taken = std::iter::repeat_with(|| reserve.take(layout));
                for piece in taken.take(limit).take_while(|piece| !piece.is_null()) {
                    assert!(reserve.contains(piece));
                    assert!(piece.addr().is_multiple_of(layout.align()));
                    pieces.push((piece.expose_provenance(), layout));
                }
                pieces.len() - before
            });
            pieces.sort_by_key(|piece| piece.0);
            assert!(pieces.is_sorted_by(|a, b| a.0 + a.1.size() <= b.0), "pieces overlap");
            assert_eq!(counts[0], 1000);
            assert!(counts[1] > 8, "{} large ones", counts[1]);
            assert!(counts[2] >= SMALL_LEN / MAX_SMALL - 10, "{} small ones", counts[2]);
            pieces.into_iter().for_each(|piece| give_back(reserve, piece));
        }
    }

    #[test]
    fn what_is_given_back_is_given_out_again_while_other_pieces_are_out() {
        let reserve = new();
        let kept = [layout(100, 8), layout(60_000, 8)].map(|it| reserve.take(it));
        assert!(kept.iter().all(|piece| !piece.is_null()));
        for size in [64, 9000, 66_000, MAX_PIECE] {
            for _ in 0..2 * LEN / size {
                let piece = reserve.take(layout(size, 8));
                assert!(!piece.is_null(), "{size}");
                give_back(reserve, (piece.expose_provenance(), layout(size, 8)));
            }
        }
    }

    #[test]
    fn threads_take_turns_and_the_threads_of_a_parent_do_not_count() {
        let reserve = new();
        // A process that this one is not.
        reserve.holder.store(1, Ordering::Relaxed);
        thread::scope(|threads| {
            for number in 1..=4_u8 {
                threads.spawn(move || {
                    for size in 1..2000 {
                        let piece = reserve.take(layout(size, 8));
                        // SAFETY: the piece is as long, and this thread's.
                        let bytes = unsafe { std::slice::from_raw_parts_mut(piece, size) };
                        bytes.fill(number);
                        thread::yield_now();
                        assert!(bytes.iter().all(|byte| *byte == number));
                        give_back(reserve, (piece.expose_provenance(), layout(size, 8)));
                    }
                });
            }
        });
    }
}
