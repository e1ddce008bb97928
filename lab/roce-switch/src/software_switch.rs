//! The loop: interfaces, a clock, and a forwarder between them.

use std::io;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::prctl;
use nix::sys::time::TimeSpec;
use roce_io::OpenError;

use crate::port::Port;
use crate::{Forwarder, SwitchReport, SwitchSettings};

/// A switch between interfaces of a network namespace.
///
/// The hosts behind the interfaces must send single packets with whole checksums:
/// [`roce_io::disable_transmit_offload`]. The interfaces should have no IP addresses.
///
/// ```no_run
/// use roce_switch::{SoftwareSwitch, SwitchSettings};
/// use std::os::{fd::AsFd, unix::net::UnixStream};
///
/// let (_stop, stopped) = UnixStream::pair()?; // dropping `_stop` ends the loop
/// let mut switch = SoftwareSwitch::open(&SwitchSettings::default(), &["veth0", "veth1"])?;
/// switch.run_until_readable(stopped.as_fd())?;
/// println!("{:?}", switch.report());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct SoftwareSwitch {
    forwarder: Forwarder,
    ports: Vec<Port>,
    start: Instant,
}

impl SoftwareSwitch {
    /// Opens interfaces of this thread's network namespace as ports, in this order.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn open<S: AsRef<str>>(
        settings: &SwitchSettings,
        interfaces: &[S],
    ) -> Result<Self, OpenError> {
        let known = roce_io::interfaces().unwrap_or_default();
        let open = |name: &S| {
            let interface = known.iter().find(|interface| interface.name == name.as_ref());
            Port::open(name.as_ref(), interface.map_or(DEFAULT_MTU, |interface| interface.mtu))
        };
        let ports: Vec<_> = interfaces.iter().map(open).collect::<Result<_, _>>()?;
        let forwarder = Forwarder::new(settings, ports.len());
        Ok(Self { forwarder, ports, start: Instant::now() })
    }

    /// Forwards frames until `stop` is readable.
    ///
    /// # Errors
    /// The error of the system call that waits.
    pub fn run_until_readable(&mut self, stop: BorrowedFd<'_>) -> io::Result<()> {
        // The kernel delays a wake-up by 50 µs otherwise.
        prctl::set_timerslack(1)?;
        loop {
            let is_busy = self.round();
            let now = self.start.elapsed();
            let due = self.forwarder.next_event().map(|due| due.saturating_sub(now));
            let is_stopped = if is_busy {
                // More may come while this thread sleeps, and is then handled together.
                wait(&[stop], Some(MIN_SLEEP))?
            } else {
                let sockets = self.ports.iter().flat_map(Port::wait_fds);
                let fds: Vec<_> = std::iter::once(stop).chain(sockets).collect();
                wait(&fds, due)?
            };
            if is_stopped {
                return Ok(());
            }
        }
    }

    /// Returns what the switch has done since it was opened.
    pub fn report(&self) -> SwitchReport {
        let mut report = self.forwarder.report();
        for (port, it) in self.ports.iter().zip(&mut report.ports) {
            it.interface = port.interface().to_owned();
            it.host_dropped_frames += port.ring_dropped();
            it.unusable_frames = port.unusable();
            it.unsent_frames = port.unsent();
        }
        report
    }

    /// Receives, moves the forwarder to the present, and sends. Returns true if it did something.
    fn round(&mut self) -> bool {
        let mut is_busy = false;
        let Self { forwarder, ports, start } = self;
        let mut send = |ports: &mut Vec<Port>, forwarder: &mut Forwarder| {
            forwarder.advance(start.elapsed(), &mut |port, frame| {
                is_busy = true;
                ports[port].push(frame);
            });
        };
        send(ports, forwarder);
        let mut received = 0;
        for (number, port) in ports.iter_mut().enumerate() {
            received += port.receive(RECEIVE_BUDGET, &mut |frame| forwarder.receive(number, frame));
        }
        if received > 0 {
            send(ports, forwarder);
        }
        for port in ports.iter_mut() {
            port.flush();
            is_busy |= port.has_unsent();
        }
        is_busy || received > 0
    }
}

/// Waits until a descriptor is readable. Returns true if the first is.
fn wait(fds: &[BorrowedFd<'_>], timeout: Option<Duration>) -> io::Result<bool> {
    let mut polled: Vec<_> = fds.iter().map(|fd| PollFd::new(*fd, PollFlags::POLLIN)).collect();
    match ppoll(&mut polled, timeout.map(TimeSpec::from_duration), None) {
        Ok(_) => Ok(polled.first().and_then(PollFd::any).unwrap_or(false)),
        Err(Errno::EINTR) => Ok(false),
        Err(errno) => Err(errno.into()),
    }
}

/// Shortest sleep of the loop while frames pass. It delays a frame by as much, and limits how often
/// the loop runs.
const MIN_SLEEP: Duration = Duration::from_micros(50);

/// MTU of an interface that is not listed; opening it fails.
const DEFAULT_MTU: u32 = 1500;

/// Frames of a port in one round: those of 32 ports take some 3 ms.
const RECEIVE_BUDGET: usize = 32;
