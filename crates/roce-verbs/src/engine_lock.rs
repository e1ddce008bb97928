//! The lock around the engine.
//!
//! All threads of the device wait for the thread that holds it, so that thread must not query the
//! kernel about routes, neighbours or interfaces: another process that changes those holds the
//! kernel's own lock, sometimes for milliseconds. Builds with debug assertions check this; see
//! [`assert_not_held`].

use std::ops::{Deref, DerefMut};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

use crate::engine::Engine;
use crate::region::fault_handler;

/// A mutex around the engine.
#[derive(Debug)]
pub(crate) struct EngineLock(Mutex<Engine>);

/// Access to the engine for as long as it lives.
#[derive(Debug)]
pub(crate) struct LockedEngine<'a> {
    engine: MutexGuard<'a, Engine>,
    _held: Held,
}

impl EngineLock {
    pub(crate) fn new(engine: Engine) -> Self {
        Self(Mutex::new(engine))
    }

    /// Waits for the lock.
    pub(crate) fn lock(&self) -> LockedEngine<'_> {
        LockedEngine::new(self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns true if a thread holds the lock now.
    pub(crate) fn is_locked(&self) -> bool {
        matches!(self.0.try_lock(), Err(TryLockError::WouldBlock))
    }

    /// Takes the lock if no thread holds it.
    pub(crate) fn try_lock(&self) -> Option<LockedEngine<'_>> {
        match self.0.try_lock() {
            Ok(engine) => Some(LockedEngine::new(engine)),
            Err(TryLockError::Poisoned(poisoned)) => Some(LockedEngine::new(poisoned.into_inner())),
            Err(TryLockError::WouldBlock) => None,
        }
    }
}

impl<'a> LockedEngine<'a> {
    fn new(engine: MutexGuard<'a, Engine>) -> Self {
        // The engine copies into memory that may be gone.
        fault_handler::admit_faults();
        Self { engine, _held: Held::begin() }
    }
}

impl Deref for LockedEngine<'_> {
    type Target = Engine;

    fn deref(&self) -> &Engine {
        &self.engine
    }
}

impl DerefMut for LockedEngine<'_> {
    fn deref_mut(&mut self) -> &mut Engine {
        &mut self.engine
    }
}

/// Panics in builds with debug assertions if this thread holds the lock of an engine. Every
/// function whose query the kernel may answer slowly calls this first.
pub(crate) fn assert_not_held() {
    #[cfg(debug_assertions)]
    assert_eq!(HELD.get(), 0, "a query to the kernel under the engine's lock");
}

/// Does `work` as if this thread held the lock of an engine.
#[cfg(test)]
pub(crate) fn while_held<T>(work: impl FnOnce() -> T) -> T {
    let _held = Held::begin();
    work()
}

#[cfg(debug_assertions)]
std::thread_local! {
    /// How many engines this thread has locked.
    static HELD: std::cell::Cell<u32> = const { std::cell::Cell::new(0) };
}

/// Counts in [`HELD`] for its lifetime; nothing in builds without debug assertions.
#[derive(Debug)]
struct Held;

impl Held {
    fn begin() -> Self {
        #[cfg(debug_assertions)]
        HELD.set(HELD.get() + 1);
        Self
    }
}

#[cfg(debug_assertions)]
impl Drop for Held {
    fn drop(&mut self) {
        HELD.set(HELD.get() - 1);
    }
}
