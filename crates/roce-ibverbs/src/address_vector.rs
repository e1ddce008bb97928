//! Address vectors.

use std::ffi::c_int;

use libc::EINVAL;
use roce_abi::{RATES, ibv_ah_attr};
use roce_verbs::{AddressVector, Gid};

/// Returns the address vector of a program's attributes.
///
/// # Errors
/// `EINVAL` without a GID, which RoCE addresses by, and for another port.
pub(crate) fn of(attributes: &ibv_ah_attr) -> Result<AddressVector, c_int> {
    if attributes.is_global == 0 || attributes.port_num != 1 {
        return Err(EINVAL);
    }
    let grh = &attributes.grh;
    let vector = AddressVector {
        traffic_class: grh.traffic_class,
        flow_label: grh.flow_label & 0xf_ffff,
        max_rate: max_rate(attributes.static_rate),
        ..AddressVector::new(grh.sgid_index, Gid(grh.dgid.raw))
    };
    // Zero would let no packet leave the host: as in rxe, it stands for the default.
    let hop_limit = if grh.hop_limit == 0 { vector.hop_limit } else { grh.hop_limit };
    Ok(AddressVector { hop_limit, ..vector })
}

/// Returns the limit in bytes per second; `None` without one, and for a code that has no rate, as with rxe.
fn max_rate(static_rate: u8) -> Option<u64> {
    let rate =
        RATES.iter().find(|rate| static_rate != 0 && rate.code == c_int::from(static_rate))?;
    Some(u64::from(rate.mbps.unsigned_abs()) * 1_000_000 / 8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_static_rate_limits_bytes_per_second() {
        assert_eq!(max_rate(0), None);
        assert_eq!(max_rate(3), Some(1_250_000_000));
        assert_eq!(max_rate(200), None);
    }

    #[test]
    fn an_address_without_a_gid_or_of_another_port_is_refused() {
        let good = ibv_ah_attr { is_global: 1, port_num: 1, ..ibv_ah_attr::default() };
        assert_eq!(of(&good).unwrap().hop_limit, 64);
        assert_eq!(of(&ibv_ah_attr { is_global: 0, ..good }), Err(EINVAL));
        assert_eq!(of(&ibv_ah_attr { port_num: 2, ..good }), Err(EINVAL));
    }
}
