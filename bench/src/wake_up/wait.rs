//! The ways in which a program waits for completions without polling for them.

use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

use clap::ValueEnum;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use roce_verbs::{Completion, CompletionChannel, CompletionQueue};
use tokio::runtime::Runtime;

use crate::connect_qps::refused;
use crate::program::Failure;

/// How the server waits for a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum WaitMethod {
    /// `CompletionChannel::wait`.
    Channel,
    /// `poll(2)` on the channel's descriptor, armed before the last look at the queue.
    Poll,
    /// The same, armed behind the last look at the queue.
    PollThenArm,
    /// `epoll(7)` on the channel's descriptor.
    Epoll,
    /// `CompletionQueue::next_async` in a tokio runtime of one thread.
    Tokio,
}

/// What a way of waiting needs.
pub(super) enum Waiter {
    Channel,
    Poll { arms_first: bool },
    Epoll(Epoll),
    Tokio(Runtime),
}

impl Waiter {
    pub(super) fn new(method: WaitMethod, channel: &CompletionChannel) -> Result<Self, Failure> {
        Ok(match method {
            WaitMethod::Channel => Self::Channel,
            WaitMethod::Poll => Self::Poll { arms_first: true },
            WaitMethod::PollThenArm => Self::Poll { arms_first: false },
            WaitMethod::Epoll => {
                Self::Epoll(watch(channel).map_err(Failure::doing("make an epoll"))?)
            }
            WaitMethod::Tokio => {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
                Self::Tokio(runtime.map_err(Failure::doing("start a tokio runtime"))?)
            }
        })
    }

    /// Waits until there is a completion, or for `timeout`, and hands each that there is to
    /// `handle`. Returns how many there were.
    pub(super) fn wait(
        &self,
        queue: &CompletionQueue,
        channel: &CompletionChannel,
        timeout: Duration,
        mut handle: impl FnMut(Completion) -> Result<(), Failure>,
    ) -> Result<usize, Failure> {
        let look = |handle: &mut dyn FnMut(Completion) -> Result<(), Failure>| {
            let mut count = 0;
            while let Some(completion) = queue.poll_one() {
                handle(completion)?;
                count += 1;
            }
            Ok(count)
        };
        if let Self::Tokio(runtime) = self {
            let next = async { tokio::time::timeout(timeout, queue.next_async(channel)).await };
            let Ok(completion) = runtime.block_on(next) else { return Ok(0) };
            handle(completion.map_err(refused)?)?;
            return Ok(1);
        }
        let arms_last = matches!(self, Self::Poll { arms_first: false });
        if !arms_last {
            queue.arm(false);
        }
        let found = look(&mut handle)?;
        if found > 0 {
            return Ok(found);
        }
        if arms_last {
            queue.arm(false);
        }
        match self {
            Self::Epoll(epoll) => {
                let timeout = EpollTimeout::try_from(timeout).unwrap_or(EpollTimeout::ZERO);
                let waited = epoll.wait(&mut [EpollEvent::empty()], timeout);
                waited.map_err(io::Error::from).map_err(Failure::doing("wait by epoll"))?;
            }
            Self::Poll { .. } => {
                let mut fds = [PollFd::new(channel.as_fd(), PollFlags::POLLIN)];
                let timeout = PollTimeout::try_from(timeout).unwrap_or(PollTimeout::ZERO);
                let waited = poll(&mut fds, timeout);
                waited.map_err(io::Error::from).map_err(Failure::doing("wait by poll"))?;
            }
            Self::Channel | Self::Tokio(_) => {
                channel.wait(Some(timeout)).map_err(refused)?;
            }
        }
        while channel.poll().is_some() {}
        look(&mut handle)
    }
}

fn watch(channel: &CompletionChannel) -> io::Result<Epoll> {
    let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
    epoll.add(channel, EpollEvent::new(EpollFlags::EPOLLIN, 0))?;
    Ok(epoll)
}
