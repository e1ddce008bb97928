//! Faults as text, for a variable of the environment.

use std::fmt;
use std::str::FromStr;

use super::{FaultConfig, FaultRates};

/// Text that describes no faults.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is no fault; use loss=P, duplicate=P, reorder=P, corrupt=P, mark=P (P from 0 to 1), \
     seed=N, or direction=in, out or both, separated by commas"
)]
pub struct FaultTextError(String);

impl fmt::Display for FaultConfig {
    /// Writes the rates and the seed, such as `loss=0.01,duplicate=0,reorder=0,corrupt=0,mark=0,
    /// seed=7,direction=both` (in one line). Rates of one direction are those of both, or else the other
    /// direction has none; a script, delays and limits are left out.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let none = FaultRates::default();
        let (rates, direction) = match (self.inbound == none, self.outbound == none) {
            (false, true) => (self.inbound, "in"),
            (true, false) => (self.outbound, "out"),
            _ => (self.inbound, "both"),
        };
        let FaultRates { drop, duplicate, reorder, corrupt, mark, .. } = rates;
        let seed = self.seed;
        write!(
            f,
            "loss={drop},duplicate={duplicate},reorder={reorder},corrupt={corrupt},mark={mark},\
             seed={seed},direction={direction}"
        )
    }
}

impl FromStr for FaultConfig {
    type Err = FaultTextError;

    /// Parses what `Display` writes. Every part may be left out: rates are 0 then, the seed 0, the
    /// direction both.
    ///
    /// ```
    /// let faults: roce_io::FaultConfig = "loss=0.01,seed=7".parse()?;
    /// assert_eq!((faults.inbound.drop, faults.outbound.drop, faults.seed), (0.01, 0.01, 7));
    /// # Ok::<(), roce_io::FaultTextError>(())
    /// ```
    fn from_str(text: &str) -> Result<Self, FaultTextError> {
        let mut rates = FaultRates::default();
        let mut config = Self::default();
        let (mut inbound, mut outbound) = (true, true);
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            let refused = || FaultTextError(part.to_owned());
            let (name, value) = part.split_once('=').ok_or_else(refused)?;
            let rate = || {
                let rate: f64 = value.parse().map_err(|_| refused())?;
                (0.0..=1.0).contains(&rate).then_some(rate).ok_or_else(refused)
            };
            match name {
                "loss" => rates.drop = rate()?,
                "duplicate" => rates.duplicate = rate()?,
                "reorder" => rates.reorder = rate()?,
                "corrupt" => rates.corrupt = rate()?,
                "mark" => rates.mark = rate()?,
                "seed" => config.seed = value.parse().map_err(|_| refused())?,
                "direction" => {
                    (inbound, outbound) = match value {
                        "in" => (true, false),
                        "out" => (false, true),
                        "both" => (true, true),
                        _ => return Err(refused()),
                    }
                }
                _ => return Err(refused()),
            }
        }
        if inbound {
            config.inbound = rates;
        }
        if outbound {
            config.outbound = rates;
        }
        Ok(config)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_keeps_rates_seed_and_direction() {
        let rates =
            FaultRates { drop: 0.01, corrupt: 0.000_5, mark: 0.25, ..FaultRates::default() };
        for (inbound, outbound) in [(rates, rates), (rates, FaultRates::default())] {
            let faults =
                FaultConfig { seed: u64::MAX, inbound, outbound, ..FaultConfig::default() };
            assert_eq!(faults.to_string().parse(), Ok(faults));
        }
    }

    #[test]
    fn text_of_nothing_is_no_fault() {
        assert_eq!("".parse(), Ok(FaultConfig::default()));
    }

    #[test]
    fn text_that_is_no_fault_is_named() {
        for part in ["loss", "loss=2", "loss=NaN", "seed=-1", "direction=up", "delay=1", "=1"] {
            let error = format!("seed=1,{part}").parse::<FaultConfig>().unwrap_err();
            assert!(error.to_string().starts_with(&format!("{part:?}")), "{error}");
        }
    }
}
