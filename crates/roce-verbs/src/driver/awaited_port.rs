//! The UDP port while another user has it.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use roce_io::PortReservation;
use roce_transport::Instant;

/// Time from one look at the port to the next. A user that binds it in between gets copies of packets.
const LOOK_INTERVAL: Duration = Duration::from_millis(10);
/// Looks from one at the port's user to the next.
const LOOKS_PER_CHECK: u32 = 100;

/// Takes the port as soon as its holder has closed it.
#[derive(Debug)]
pub(super) struct AwaitedPort {
    /// `None` once this process has the port.
    reservation: Option<Arc<Mutex<PortReservation>>>,
    next_look: Instant,
    looks: u32,
    has_warned: bool,
}

impl AwaitedPort {
    /// Awaits the port of a reservation, if that was left to another user.
    pub(super) fn of(reservation: Option<Arc<Mutex<PortReservation>>>) -> Self {
        let is_left = |it: &Arc<Mutex<PortReservation>>| {
            it.lock().unwrap_or_else(PoisonError::into_inner).holder().is_some()
        };
        let reservation = reservation.filter(is_left);
        Self { reservation, next_look: Instant::default(), looks: 0, has_warned: false }
    }

    /// Returns when [`run`](Self::run) is due; `None`: never.
    pub(super) fn next_look(&self) -> Option<Instant> {
        self.reservation.is_some().then_some(self.next_look)
    }

    /// Takes the port if it is free. Says so once if a third user has it.
    pub(super) fn run(&mut self, now: Instant, interface: &str) {
        let Some(reservation) = self.reservation.as_ref().filter(|_| self.next_look <= now) else {
            return;
        };
        self.next_look = now + LOOK_INTERVAL;
        self.looks = (self.looks + 1) % LOOKS_PER_CHECK;
        let mut reservation = reservation.lock().unwrap_or_else(PoisonError::into_inner);
        let taken = match self.looks {
            0 => reservation.recheck(),
            _ => reservation.take_if_free(),
        };
        match taken {
            Ok(false) => {}
            Ok(true) => {
                drop(reservation);
                self.reservation = None;
            }
            Err(error) if !self.has_warned => {
                self.has_warned = true;
                tracing::error!(%error, interface, "another user reads packets of this device");
            }
            Err(_) => {}
        }
    }
}
