//! The mark of a descriptor number that may be a channel of rdma_cm.

#[cfg(not(test))]
use std::sync::atomic;

#[cfg(test)]
use shuttle::sync::atomic;

use atomic::{AtomicU32, Ordering};

/// Whether a descriptor number may be a channel, and how often it became one.
///
/// A number that is closed is free before its mark is taken away, so that another thread may have
/// opened a channel with it meanwhile, and closed that, and opened the next. The count goes on over
/// all of them: taking away the mark of one never takes that of another.
#[derive(Debug)]
pub(crate) struct Mark(AtomicU32);

/// A mark as it was seen.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen(u32);

/// The number may be a channel. The other bits are the count.
const IS_SET: u32 = 1;

impl Mark {
    pub(crate) const fn new() -> Self {
        Self(AtomicU32::new(0))
    }

    /// Notes that a channel has the number.
    pub(crate) fn set(&self) {
        let next = |mark: u32| Some((mark | IS_SET).wrapping_add(2));
        let _always = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
    }

    /// Returns the mark, if the number may be a channel. Costs one load.
    #[inline]
    pub(crate) fn seen(&self) -> Option<Seen> {
        let seen = self.0.load(Ordering::Relaxed);
        (seen & IS_SET != 0).then_some(Seen(seen))
    }

    /// Takes the mark away, unless another channel has got the number since it was seen.
    pub(crate) fn clear(&self, seen: Seen) {
        let cleared = seen.0 & !IS_SET;
        let _other = self.0.compare_exchange(seen.0, cleared, Ordering::Relaxed, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use shuttle::sync::Mutex;
    use shuttle::thread;

    use super::*;

    /// Descriptor numbers, of which the kernel gives the lowest that is free.
    #[derive(Default)]
    struct Numbers {
        are_open: Mutex<[bool; 2]>,
    }

    impl Numbers {
        fn open(&self) -> Option<usize> {
            let mut are_open = self.are_open.lock().unwrap();
            let free = are_open.iter().position(|is_open| !is_open)?;
            are_open[free] = true;
            Some(free)
        }

        fn close(&self, number: usize) {
            self.are_open.lock().unwrap()[number] = false;
        }
    }

    #[test]
    fn a_channel_keeps_its_mark_until_it_is_closed_whatever_other_threads_open_and_close() {
        let threads = || {
            let state = Arc::new((Numbers::default(), [Mark::new(), Mark::new()]));
            let threads: Vec<_> = (0..3)
                .map(|_| {
                    let state = Arc::clone(&state);
                    thread::spawn(move || {
                        let (numbers, marks) = &*state;
                        for _ in 0..3 {
                            let Some(number) = numbers.open() else { continue };
                            marks[number].set();
                            let seen = marks[number].seen().expect("it is open");
                            numbers.close(number);
                            marks[number].clear(seen);
                        }
                    })
                })
                .collect();
            threads.into_iter().for_each(|thread| thread.join().unwrap());
            let (_, marks) = &*state;
            assert!(marks.iter().all(|mark| mark.seen().is_none()), "all are closed");
        };
        shuttle::check_random(threads, 20_000);
    }
}
