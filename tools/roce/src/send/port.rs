//! The interface that packets leave from and come back to.

use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use roce_io::{
    AfPacket, AfPacketConfig, FrameDevice, GsoMode, InterfaceInfo, PortError, PortReservation,
    PortReservationConfig, RxFrame, TxFrame,
};

use crate::error::{CliError, Result};

/// An open interface.
#[derive(Debug)]
pub(super) struct Port {
    device: AfPacket,
    name: String,
    /// Keeps the kernel from answering what comes with ICMP.
    _reservation: Option<PortReservation>,
}

impl Port {
    /// Opens an interface.
    pub(super) fn open(interface: &InterfaceInfo) -> Result<Self> {
        let config = AfPacketConfig {
            gso: GsoMode::Off,
            // Other programs that listen on the interface see what is sent.
            qdisc_bypass: false,
            ..AfPacketConfig::new(&interface.name)
        };
        let device = AfPacket::open(&config)?;
        let config = PortReservationConfig {
            whole_trains: interface.kind.segments_in_software(),
            ..PortReservationConfig::default()
        };
        let reservation = match PortReservation::bind(&config) {
            Ok(reservation) => Some(reservation),
            // The port is taken, so the kernel answers nothing either.
            Err(
                PortError::KernelRxe { .. }
                | PortError::OtherProgram { .. }
                | PortError::OtherUser { .. },
            ) => None,
            Err(error) => return Err(error.into()),
        };
        Ok(Self { device, name: interface.name.clone(), _reservation: reservation })
    }

    /// Sends a frame, and waits while the interface is busy.
    pub(super) fn send(&mut self, bytes: &[u8]) -> Result {
        let deadline = Instant::now() + MAX_BUSY;
        let mut frame = Some(bytes);
        loop {
            self.device.transmit(&mut |slot| {
                let bytes = frame.take()?;
                slot.get_mut(..bytes.len())?.copy_from_slice(bytes);
                Some(TxFrame::single(bytes.len()))
            })?;
            if frame.is_none() && !self.device.has_unsent() {
                return Ok(());
            }
            if Instant::now() > deadline {
                let name = &self.name;
                return Err(CliError::new(format!("{name} takes no packets: is its link up?")));
            }
            std::thread::sleep(BUSY_PAUSE);
        }
    }

    /// Passes what has come to a function.
    pub(super) fn receive(&mut self, on_frame: &mut dyn FnMut(&RxFrame<'_>)) -> Result {
        self.device.receive(FRAMES_AT_ONCE, &mut |frame| on_frame(&frame))?;
        Ok(())
    }

    /// Waits until something comes, or until a time.
    pub(super) fn wait(&self, until: Instant) -> Result {
        let left = until.saturating_duration_since(Instant::now());
        if left < SHORT {
            std::thread::yield_now();
            return Ok(());
        }
        let descriptors = self.device.wait_fds();
        let mut wanted: Vec<_> =
            descriptors.into_iter().map(|it| PollFd::new(it, PollFlags::POLLIN)).collect();
        // The last millisecond is waited for above.
        let left = left.saturating_sub(Duration::from_millis(1)).min(MAX_WAIT);
        let timeout = PollTimeout::try_from(left).unwrap_or(PollTimeout::ZERO);
        match poll(&mut wanted, timeout) {
            Ok(_) | Err(nix::Error::EINTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

/// Longest time for which an interface may take nothing.
const MAX_BUSY: Duration = Duration::from_secs(2);
const BUSY_PAUSE: Duration = Duration::from_micros(50);
const FRAMES_AT_ONCE: usize = 256;
/// Shorter waits are spent asking, since the kernel waits in milliseconds.
const SHORT: Duration = Duration::from_millis(2);
const MAX_WAIT: Duration = Duration::from_secs(10);
