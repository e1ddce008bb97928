//! Congestion control: what marks, delays and losses make of a sender's rate and window. Pure, like
//! the rest of this crate: time is an argument.
//!
//! | part of RoCEv2's congestion management | type |
//! |---|---|
//! | notification point: the receiver of a marked packet | [`NotificationPoint`] |
//! | reaction point: the sender | [`CongestionControl`]: [`Dcqcn`], [`EcnWindow`], [`Swift`] |
//!
//! The congestion point is a switch, which marks packets.
//!
//! # Example
//! A sender at 40 Gbit/s gets a CNP and halves its rate; the rate rises again without more of them.
//! ```
//! use roce_transport::Instant;
//! use roce_transport::congestion::{CongestionControl, Dcqcn, DcqcnParameters};
//! use std::time::Duration;
//!
//! let mut control = Dcqcn::new(DcqcnParameters::PAPER, 40_000_000_000);
//! assert_eq!(control.rate(), None, "nothing limits it");
//!
//! let now = Instant::from_nanos(1_000);
//! control.on_cnp(now);
//! assert_eq!(control.rate(), Some(20_000_000_000));
//!
//! control.on_timer(now + Duration::from_micros(55));
//! assert_eq!(control.rate(), Some(30_000_000_000), "half of the way back");
//! ```

mod config;
mod dcqcn;
mod dcqcn_parameters;
mod ecn_window;
mod notification_point;
mod parameter;
mod swift;
mod text;

use core::fmt;
use core::time::Duration;

pub use self::config::{CongestionAlgorithm, CongestionConfig};
pub use self::dcqcn::Dcqcn;
pub use self::dcqcn_parameters::DcqcnParameters;
pub use self::ecn_window::{EcnParameters, EcnWindow};
pub use self::notification_point::NotificationPoint;
pub use self::parameter::{OutOfRange, Parameter};
pub use self::swift::{Swift, SwiftParameters};
pub use self::text::CongestionTextError;
use crate::Instant;

/// A reaction point: limits one sender.
///
/// Both limits hold where both are given. The instants of the calls must never go backwards.
pub trait CongestionControl: fmt::Debug + Send {
    /// Notes that so many bytes of packets have been sent.
    fn on_sent(&mut self, now: Instant, bytes: u64);

    /// Notes an acknowledgement.
    fn on_ack(&mut self, now: Instant, sample: AckSample);

    /// Notes a congestion notification packet.
    fn on_cnp(&mut self, now: Instant);

    /// Notes that packets were lost.
    fn on_loss(&mut self, now: Instant);

    /// Does what is due at `now`. Late calls catch up.
    fn on_timer(&mut self, now: Instant);

    /// Returns when [`on_timer`](Self::on_timer) is due next; `None` while nothing limits the sender.
    fn next_timer(&self) -> Option<Instant>;

    /// Returns the limit of the rate in bits per second; `None` for none.
    fn rate(&self) -> Option<u64>;

    /// Returns the limit of the unacknowledged bytes, which may be less than a packet; `None` for
    /// none.
    fn window(&self) -> Option<u64>;
}

/// What an acknowledgement tells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AckSample {
    /// Bytes that it acknowledges for the first time.
    pub bytes: u64,
    /// Time from the first bit of the newest of them to the acknowledgement, if it was measured.
    pub rtt: Option<Duration>,
    /// The peer has received a marked packet since its last acknowledgement.
    pub is_marked: bool,
}
