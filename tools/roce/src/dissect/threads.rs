//! Analysis of one capture by several threads. Each reads a piece, analyses its frames, and
//! delivers the results after those of all earlier pieces.
//!
//! Reading and delivery are sequential, analysis is parallel. A piece stays with the thread that
//! read it, and so in the cache of its processor: moving it to another thread costs more than the
//! analysis.

use std::io::{self, Read};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use roce_dissect::{Batch, Capture, Damage, Event, FrameAnalysis};

/// A piece of a capture.
#[derive(Debug)]
pub(super) struct Piece<'a> {
    /// The contents in order.
    pub(super) sights: Vec<Outcome<'a>>,
    /// The offset of its end in the file.
    pub(super) end: u64,
}

/// The contents of a piece.
#[derive(Debug)]
#[allow(clippy::large_enum_variant)] // nearly all are the large variant
pub(super) enum Outcome<'a> {
    /// An analysed frame.
    Frame(FrameAnalysis<'a>),
    /// A damaged part of the file.
    Damage(Damage),
}

/// Analyses a capture with a number of threads, including this one. `tell` gets every piece in
/// order, and finally the error of the reader, if any.
///
/// A piece is the result of one read, so no frame waits for later input. Each thread uses about 1
/// MiB of memory.
///
/// # Errors
/// The first error of `tell`, which ends the analysis.
pub(super) fn look_through<E: Send>(
    capture: Capture<impl Read + Send>,
    threads: usize,
    tell: impl FnMut(io::Result<Piece<'_>>) -> Result<(), E> + Send,
) -> Result<(), E> {
    let reading = Mutex::new(Reading { capture, pieces: 0 });
    let telling = OrderedOutput {
        state: Mutex::new(Told { pieces: 0, outcome: None, tell }),
        moved: Condvar::new(),
    };
    thread::scope(|scope| {
        for _ in 1..threads {
            scope.spawn(|| work(&reading, &telling));
        }
        work(&reading, &telling);
    });
    let told = telling.state.into_inner().unwrap_or_else(PoisonError::into_inner);
    told.outcome.unwrap_or(Ok(()))
}

/// The reader, used by one thread at a time.
struct Reading<R> {
    capture: Capture<R>,
    pieces: u64,
}

/// The output, used by one thread at a time.
struct OrderedOutput<T, E> {
    state: Mutex<Told<T, E>>,
    moved: Condvar,
}

struct Told<T, E> {
    /// Pieces delivered so far.
    pieces: u64,
    /// Set at the end of the output.
    outcome: Option<Result<(), E>>,
    tell: T,
}

fn work<E>(
    reading: &Mutex<Reading<impl Read>>,
    telling: &OrderedOutput<impl FnMut(io::Result<Piece<'_>>) -> Result<(), E>, E>,
) {
    // Otherwise the others would wait for a piece that is never delivered.
    let _end = StopOnPanic(telling);
    let mut batch = Batch::new();
    loop {
        let (number, read) = {
            let mut reading = lock(reading);
            reading.pieces += 1;
            (reading.pieces - 1, reading.capture.next_batch(&mut batch))
        };
        let (sights, end) = (batch.events().map(Outcome::of).collect(), batch.offset());
        let goes_on = telling.in_turn(number, |tell| match read {
            Ok(true) => tell(Ok(Piece { sights, end })).map(|()| true),
            Ok(false) => Ok(false),
            Err(error) => tell(Err(error)).map(|()| false),
        });
        if !goes_on {
            return;
        }
    }
}

impl<'a> Outcome<'a> {
    fn of(event: Event<'a>) -> Self {
        match event {
            Event::Frame(frame) => Self::Frame(FrameAnalysis::of(frame)),
            Event::Damage(damage) => Self::Damage(damage),
        }
    }
}

impl<T, E> OrderedOutput<T, E> {
    /// Waits until all earlier pieces are delivered, then runs `act`, which returns true if there
    /// is more. Returns false at the end.
    fn in_turn(&self, number: u64, act: impl FnOnce(&mut T) -> Result<bool, E>) -> bool {
        let is_early = |told: &mut Told<T, E>| told.pieces < number && told.outcome.is_none();
        let waited = self.moved.wait_while(lock(&self.state), is_early);
        let mut told = waited.unwrap_or_else(PoisonError::into_inner);
        if told.outcome.is_some() {
            return false;
        }
        match act(&mut told.tell) {
            Ok(true) => {}
            Ok(false) => told.outcome = Some(Ok(())),
            Err(error) => told.outcome = Some(Err(error)),
        }
        told.pieces += 1;
        let goes_on = told.outcome.is_none();
        drop(told);
        self.moved.notify_all();
        goes_on
    }
}

/// Ends the output if its thread panics.
struct StopOnPanic<'t, T, E>(&'t OrderedOutput<T, E>);

impl<T, E> Drop for StopOnPanic<'_, T, E> {
    fn drop(&mut self) {
        if thread::panicking() {
            lock(&self.0.state).outcome.get_or_insert(Ok(()));
            self.0.moved.notify_all();
        }
    }
}

/// Locks a mutex. A thread that panicked has ended the output, so no thread uses its state.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;

    /// Returns a capture of numbered frames.
    fn capture(frames: u32) -> Vec<u8> {
        let mut file =
            [0xa1b2_c3d4, 0x0004_0002, 0, 0, 65_535, 1u32].map(u32::to_le_bytes).concat();
        for number in 1..=frames {
            file.extend([number, 0, 1000, 1000].map(u32::to_le_bytes).concat());
            file.resize(file.len() + 1000, number as u8);
        }
        file
    }

    fn numbers(piece: &Piece<'_>) -> Vec<u64> {
        let number = |sight: &Outcome<'_>| match sight {
            Outcome::Frame(analysis) => analysis.frame().number,
            Outcome::Damage(_) => 0,
        };
        piece.sights.iter().map(number).collect()
    }

    /// A reader that fails instead of ending.
    struct Breaks(Cursor<Vec<u8>>);

    impl Read for Breaks {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            match self.0.read(into)? {
                0 => Err(io::ErrorKind::ConnectionReset.into()),
                read => Ok(read),
            }
        }
    }

    #[test]
    fn frames_are_delivered_in_order() {
        let file = capture(5000);
        for threads in [1, 2, 5] {
            let mut told = Vec::new();
            let mut last = 0;
            let outcome: Result<(), ()> =
                look_through(Capture::open(&file[..]).unwrap(), threads, |piece| {
                    let piece = piece.unwrap();
                    assert!(piece.end > last);
                    last = piece.end;
                    told.extend(numbers(&piece));
                    Ok(())
                });
            assert_eq!(outcome, Ok(()));
            assert!(told.iter().copied().eq(1..=5000), "{threads} threads");
            assert_eq!(last, file.len() as u64);
        }
    }

    #[test]
    fn an_error_ends_the_output() {
        let file = capture(5000);
        for threads in [1, 3] {
            let mut pieces = 0;
            let outcome = look_through(Capture::open(&file[..]).unwrap(), threads, |_| {
                pieces += 1;
                if pieces == 2 { Err("enough") } else { Ok(()) }
            });
            assert_eq!((outcome, pieces), (Err("enough"), 2));
        }
    }

    #[test]
    fn frames_before_a_read_error_are_delivered() {
        for threads in [1, 3] {
            let capture = Capture::open(Breaks(Cursor::new(capture(3000)))).unwrap();
            let mut told = Vec::new();
            let outcome = look_through(capture, threads, |piece| {
                told.extend(numbers(&piece.map_err(|error| error.kind())?));
                Ok(())
            });
            assert_eq!(outcome, Err(io::ErrorKind::ConnectionReset));
            assert!(told.into_iter().eq(1..=3000));
        }
    }

    #[test]
    fn a_panic_propagates_and_no_thread_keeps_waiting() {
        let file = capture(5000);
        let outcome = std::panic::catch_unwind(|| {
            let mut pieces = 0;
            look_through::<()>(Capture::open(&file[..]).unwrap(), 3, |_| {
                pieces += 1;
                assert!(pieces < 3, "on purpose");
                Ok(())
            })
        });
        assert!(outcome.is_err());
    }
}
