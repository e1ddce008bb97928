//! The numbers of static rates.

use std::ffi::c_int;

/// One static rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// The number in `ibv_rate`.
    pub code: c_int,
    /// Multiple of 2.5 Gb/s, where libibverbs knows one.
    pub multiple: Option<c_int>,
    /// Megabits per second.
    pub mbps: c_int,
}

const fn rate(code: c_int, multiple: c_int, mbps: c_int) -> Rate {
    Rate { code, multiple: if multiple == 0 { None } else { Some(multiple) }, mbps }
}

pub const IBV_RATE_MAX: c_int = 0;

/// All rates that have a number.
pub const RATES: [Rate; 23] = [
    rate(2, 1, 2500),
    rate(5, 2, 5000),
    rate(3, 4, 10000),
    rate(6, 8, 20000),
    rate(4, 12, 30000),
    rate(7, 16, 40000),
    rate(8, 24, 60000),
    rate(9, 32, 80000),
    rate(10, 48, 120_000),
    rate(11, 0, 14062),
    rate(12, 0, 56250),
    rate(13, 0, 112_500),
    rate(14, 0, 168_750),
    rate(15, 0, 25781),
    rate(16, 0, 103_125),
    rate(17, 0, 206_250),
    rate(18, 0, 309_375),
    rate(19, 11, 28125),
    rate(20, 20, 53125),
    rate(21, 160, 425_000),
    rate(22, 240, 637_500),
    rate(23, 320, 850_000),
    rate(24, 480, 1_275_000),
];
