//! Static rates.

use std::ffi::c_int;

use roce_abi::{IBV_RATE_MAX, RATES};

/// `ibv_rate_to_mult`
pub(crate) extern "C" fn to_multiple(rate: c_int) -> c_int {
    RATES.iter().find(|it| it.code == rate).and_then(|it| it.multiple).unwrap_or(-1)
}

/// `mult_to_ibv_rate`
pub(crate) extern "C" fn of_multiple(multiple: c_int) -> c_int {
    RATES.iter().find(|it| it.multiple == Some(multiple)).map_or(IBV_RATE_MAX, |it| it.code)
}

/// `ibv_rate_to_mbps`
pub(crate) extern "C" fn to_mbps(rate: c_int) -> c_int {
    RATES.iter().find(|it| it.code == rate).map_or(-1, |it| it.mbps)
}

/// `mbps_to_ibv_rate`
pub(crate) extern "C" fn of_mbps(mbps: c_int) -> c_int {
    RATES.iter().find(|it| it.mbps == mbps).map_or(IBV_RATE_MAX, |it| it.code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_survives_as_megabits_and_as_a_multiple() {
        for rate in RATES {
            assert_eq!(of_mbps(to_mbps(rate.code)), rate.code);
            if rate.multiple.is_some() {
                assert_eq!(of_multiple(to_multiple(rate.code)), rate.code);
            }
        }
        assert_eq!([to_mbps(1), to_multiple(1), of_mbps(1), of_multiple(3)], [-1, -1, 0, 0]);
    }
}
