//! The packets of an interface.

use std::os::fd::AsFd;
use std::time::SystemTime;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use roce_dissect::{FrameAnalysis, LinkType, RawFrame, Timestamp};
use roce_io::{OpenError, RxFrame, Sniffer};

use super::{Report, Stop};
use crate::error::CliError;

/// Shows the packets of an interface until interrupted, or until the report is complete.
pub(super) fn run(name: &str, report: &mut Report<'_>) -> Result<(), Stop> {
    // Handled here, so that an interrupted summary is printed.
    let signals = take_signals().map_err(|error| told("taking signals", error))?;
    let mut sniffer = Sniffer::open(name).map_err(|error| match error {
        OpenError::NotPermitted { .. } => Stop::Error(CliError::new(format!("{error}"))),
        _ => Stop::Error(error.into()),
    })?;
    let mut frames = 0u64;
    loop {
        let signal = signals.read_signal().map_err(|error| told("taking signals", error))?;
        // Show the frames before the interrupt, up to a limit.
        let budget = if signal.is_some() { FRAMES_AT_LAST } else { FRAMES_AT_ONCE };
        let mut stop = None;
        let received = sniffer.receive(budget, &mut |received| {
            frames += 1;
            if stop.is_none() {
                stop = report.frame(&FrameAnalysis::of(frame(frames, &received))).err();
            }
        });
        let received = received.map_err(|error| told(name, error))?;
        if let Some(stop) = stop {
            return Err(stop);
        }
        report.write_out()?;
        if signal.is_some() {
            return Ok(());
        }
        if received == 0 {
            let mut wanted = [sniffer.wait_fd(), signals.as_fd()]
                .map(|descriptor| PollFd::new(descriptor, PollFlags::POLLIN));
            poll(&mut wanted, PollTimeout::NONE).map_err(|error| told("waiting", error))?;
        }
    }
}

fn told(what: &str, error: impl std::error::Error) -> Stop {
    Stop::Error(CliError::context(what, error))
}

fn take_signals() -> nix::Result<SignalFd> {
    let mut wanted = SigSet::empty();
    wanted.add(Signal::SIGINT);
    wanted.add(Signal::SIGTERM);
    wanted.thread_block()?;
    SignalFd::with_flags(&wanted, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)
}

fn frame<'a>(number: u64, received: &RxFrame<'a>) -> RawFrame<'a> {
    let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    RawFrame {
        number,
        time: Timestamp(u64::try_from(since_1970.as_nanos()).unwrap_or(u64::MAX)),
        link: LinkType::Ethernet,
        original_len: received.bytes.len() as u32,
        bytes: received.bytes,
        segment_len: received.segment_len,
    }
}

const FRAMES_AT_ONCE: usize = 64;

/// More frames than the kernel buffers.
const FRAMES_AT_LAST: usize = 1 << 16;
