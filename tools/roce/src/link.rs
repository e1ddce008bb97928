//! Messages about the link of a device's interface while a command runs.

use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use roce_verbs::{Device, PortState};

use crate::error::{CliError, Result};

/// Prints on standard error when the link goes down and when it is back, until dropped.
#[derive(Debug)]
pub(crate) struct LinkWatch {
    stop: Option<UnixStream>,
    thread: Option<JoinHandle<()>>,
}

impl LinkWatch {
    /// Starts the watch, with a message if the link is down already.
    pub(crate) fn start(device: &Device) -> Result<Self> {
        let (stop, stopped) = UnixStream::pair()?;
        let device = device.clone();
        let watch = move || {
            let mut was_down = false;
            loop {
                let is_down = is_down(&device);
                if is_down != was_down {
                    let interface = device.interface();
                    match is_down {
                        true => eprintln!("roce: the link of {interface} is down: waiting for it"),
                        false => eprintln!("roce: the link of {interface} is back"),
                    }
                    was_down = is_down;
                }
                let mut fds = [device.event_fd(), stopped.as_fd()]
                    .map(|fd| PollFd::new(fd, PollFlags::POLLIN));
                let _interrupted = poll(&mut fds, PollTimeout::NONE);
                if fds[1].any().unwrap_or(false) {
                    return;
                }
                while device.poll_event().is_some() {}
            }
        };
        let thread = std::thread::Builder::new().name("link watch".to_owned()).spawn(watch)?;
        Ok(Self { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for LinkWatch {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            // A panic there has been printed.
            let _ended = thread.join();
        }
    }
}

/// Returns true if the link is down.
pub(crate) fn is_down(device: &Device) -> bool {
    device.port().is_ok_and(|port| port.state == PortState::Down)
}

/// Fails once the link has been down for longer than the peer's retries last: for an end that only
/// waits for messages, and so has no retries of its own.
#[derive(Debug)]
pub(crate) struct LinkDownLimit {
    limit: Duration,
    looked: Instant,
    down_since: Option<Instant>,
}

/// Time between two checks of the link.
pub(crate) const CHECK_INTERVAL: Duration = Duration::from_millis(100);

impl LinkDownLimit {
    /// Creates the limit for a peer that retries for `retries`.
    pub(crate) fn new(retries: Duration) -> Self {
        // The peer may begin to send just before the link is back.
        Self {
            limit: retries.saturating_mul(2).saturating_add(2 * CHECK_INTERVAL),
            looked: Instant::now(),
            down_since: None,
        }
    }

    /// Checks the link, if the interval has passed.
    pub(crate) fn look(&mut self, device: &Device) -> Result {
        let now = Instant::now();
        if now.duration_since(self.looked) < CHECK_INTERVAL {
            return Ok(());
        }
        self.looked = now;
        self.note(now, is_down(device)).map_err(|outage| {
            CliError::new(format!(
                "the link of {} has been down for {:.1} seconds: the other end has used up its \
                 retries",
                device.interface(),
                outage.as_secs_f64()
            ))
        })
    }

    /// Fails with the length of an outage that is too long.
    fn note(&mut self, now: Instant, is_down: bool) -> Result<(), Duration> {
        if !is_down {
            self.down_since = None;
            return Ok(());
        }
        let outage = now.duration_since(*self.down_since.get_or_insert(now));
        if outage > self.limit { Err(outage) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_uninterrupted_outage_longer_than_the_retries_fails() {
        let start = Instant::now();
        let mut patience = LinkDownLimit::new(Duration::from_secs(1));
        let at = |tenths: u32| start + CHECK_INTERVAL * tenths;
        (0..=22).for_each(|tenths| assert_eq!(patience.note(at(tenths), true), Ok(())));
        assert_eq!(patience.note(at(23), false), Ok(()));
        (24..=46).for_each(|tenths| assert_eq!(patience.note(at(tenths), true), Ok(())));
        assert_eq!(patience.note(at(47), true), Err(CHECK_INTERVAL * 23));
    }
}
