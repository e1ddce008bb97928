//! The shards of a device, which are opened when they are needed.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::JoinHandle;

use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};
use roce_engine::PathTable;
use roce_io::process::Own;

use super::common::Common;
use super::polled;
use super::shard::Shard;
use crate::engine::Engine;
use crate::error::Error;
use crate::process::thread_placement::ThreadPlacement;
use crate::shard_set::MAX_SHARDS;

/// Makes the engine of the shard with this number.
pub(crate) type EngineOpener = Box<dyn Fn(usize) -> Result<Engine, Error> + Send>;

/// The shards of a device. The first is always open.
#[derive(Debug)]
pub(super) struct Shards {
    pub(super) common: Arc<Common>,
    /// In their order: one is opened after those before it.
    open: [OnceLock<Arc<Shard>>; MAX_SHARDS],
    /// Number of shards that queues are spread over: less than was asked for once one could not be
    /// opened.
    limit: AtomicUsize,
    /// The paths of the device, as its path objects and queue pairs use them.
    ///
    /// The engines have copies of paths, regions and addresses. Whatever changes these takes this lock
    /// first, and then that of one engine after the other, never of two at once.
    paths: Mutex<PathTable>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    placement: ThreadPlacement,
    /// Readable while any descriptor of a shard is, where the device may have several.
    any: Option<Own<OwnedFd>>,
}

impl Shards {
    /// Makes the set, with the first shard.
    pub(super) fn new(
        mut engine: Engine,
        common: Common,
        limit: usize,
        placement: ThreadPlacement,
    ) -> Result<Self, Error> {
        let mut any = None;
        if limit > 1 {
            engine.memory_mut().share_windows();
            any = Some(Own::make(|| Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).map(|it| it.0))?);
        }
        let shards = Self {
            common: Arc::new(common),
            open: [const { OnceLock::new() }; MAX_SHARDS],
            limit: AtomicUsize::new(limit),
            paths: Mutex::default(),
            threads: Mutex::default(),
            placement,
            any,
        };
        let first = Arc::new(Shard::new(0, engine, &shards.common)?);
        polled::register(&first);
        shards.watch(first.device_fds())?;
        let _was_empty = shards.open[0].set(first);
        Ok(shards)
    }

    /// Starts the driver thread of the first shard.
    pub(super) fn start_first(&self) -> Result<(), Error> {
        let thread = self.first().start(self.placement)?;
        self.threads().push(thread);
        Ok(())
    }

    /// Opens the shards up to the one with this number, with all that the first one has. Another one is
    /// not tried again if it cannot be opened: the device goes on with those that it has.
    pub(super) fn open_up_to(&self, number: usize, opener: &EngineOpener) {
        for next in self.iter().count()..=number.min(MAX_SHARDS - 1) {
            if let Err(error) = self.open_next(next, opener) {
                let interface = self.common.port.name();
                tracing::warn!(%error, interface, shards = next, "no further shard can be opened");
                self.limit.store(next, Ordering::Relaxed);
                return;
            }
        }
    }

    fn open_next(&self, number: usize, opener: &EngineOpener) -> Result<(), Error> {
        let shard = Arc::new(Shard::new(number, opener(number)?, &self.common)?);
        polled::register(&shard);
        self.watch(shard.device_fds())?;
        let thread = shard.start(self.placement)?;
        self.threads().push(thread);
        let paths = self.lock_paths();
        let (memory, gids, congestion) = {
            let first = self.first().lock_engine();
            (first.memory().clone(), first.gids().clone(), *first.endpoint().congestion())
        };
        {
            let mut engine = shard.lock_engine();
            (*engine.memory_mut(), *engine.gids_mut()) = (memory, gids);
            engine.endpoint_mut().set_congestion(congestion);
            for (handle, path) in paths.iter() {
                engine.paths_mut().insert_as(handle, path.clone());
            }
        }
        let _was_empty = self.open[number].set(shard);
        Ok(())
    }

    /// Replaces small sockets of the first shard.
    pub(super) fn grow_first(&self) {
        let watched = self.first().grow().map(|fds| self.watch(fds));
        if let Some(Err(error)) = watched {
            tracing::warn!(%error, "threads that sleep at the end of the process are not woken by frames");
        }
    }

    fn watch(&self, fds: &[Own<OwnedFd>]) -> io::Result<()> {
        let Some(any) = &self.any else { return Ok(()) };
        let any = Epoll(any.try_clone()?);
        for fd in fds {
            any.add(fd.as_fd(), EpollEvent::new(EpollFlags::EPOLLIN, 0))?;
        }
        Ok(())
    }

    /// Returns the descriptors that are readable when any shard has frames.
    pub(super) fn wait_fds(&self) -> &[Own<OwnedFd>] {
        match &self.any {
            Some(any) => std::slice::from_ref(any),
            None => self.first().device_fds(),
        }
    }

    /// Returns how many shards queues are spread over.
    pub(super) fn limit(&self) -> usize {
        self.limit.load(Ordering::Relaxed)
    }

    /// Returns the first shard.
    pub(super) fn first(&self) -> &Arc<Shard> {
        self.open[0].get().expect("the first shard is opened with the set")
    }

    /// Returns a shard; the first where that of the number is not open.
    #[inline]
    pub(super) fn get(&self, number: usize) -> &Arc<Shard> {
        self.open.get(number).and_then(OnceLock::get).unwrap_or_else(|| self.first())
    }

    /// Returns the open shards, the first of them first.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Arc<Shard>> {
        self.open.iter().map_while(OnceLock::get)
    }

    /// Locks the paths, and with them what the shards have copies of.
    pub(super) fn lock_paths(&self) -> MutexGuard<'_, PathTable> {
        self.paths.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the driver threads, locked.
    pub(super) fn threads(&self) -> MutexGuard<'_, Vec<JoinHandle<()>>> {
        self.threads.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
