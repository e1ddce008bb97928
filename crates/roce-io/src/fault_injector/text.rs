//! Faults as text, for a variable of the environment.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use roce_faults::FaultSentence;

use super::{FaultConfig, FaultRates};

/// Text that describes no faults.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FaultTextError {
    /// A part with `=` that is none.
    #[error(
        "{0:?} is no fault; use loss=P, duplicate=P, delay=P, reorder=P, corrupt=P, mark=P (P from 0 to \
         1), max-delay=NANOSECONDS, seed=N, rank=N, began=NANOSECONDS, direction=in, out or both, or sentences such as \
         \"drop request 3\" or \"fail post-send 3 with ENOMEM\", separated by commas"
    )]
    Part(String),
    /// A sentence that is no rule.
    #[error("in {rule:?}: {error}")]
    Rule {
        /// The sentence.
        rule: String,
        /// What is wrong with it.
        error: String,
    },
}

impl fmt::Display for FaultConfig {
    /// Writes rates, seed, rank, begin and script, such as `loss=0.01,duplicate=0,delay=0,reorder=0,corrupt=0,
    /// mark=0,max-delay=5000000,seed=7,direction=both,drop request 3` (in one line). Rates of one
    /// direction are those of both, or else the other direction has none; limits of reordering, the
    /// peer's rank and the log are left out.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let none = FaultRates::default();
        let (rates, direction) = match (self.inbound == none, self.outbound == none) {
            (false, true) => (self.inbound, "in"),
            (true, false) => (self.outbound, "out"),
            _ => (self.inbound, "both"),
        };
        let FaultRates { drop, duplicate, delay, reorder, corrupt, mark } = rates;
        let (seed, max_delay) = (self.seed, self.max_delay.as_nanos());
        write!(
            f,
            "loss={drop},duplicate={duplicate},delay={delay},reorder={reorder},corrupt={corrupt},\
             mark={mark},max-delay={max_delay},seed={seed},direction={direction}"
        )?;
        if let Some(rank) = self.rank {
            write!(f, ",rank={rank}")?;
        }
        if let Some(began) = self.began {
            write!(f, ",began={}", began.as_nanos())?;
        }
        self.script.iter().try_for_each(|rule| write!(f, ",{rule}"))?;
        self.verbs.iter().try_for_each(|rule| write!(f, ",{rule}"))?;
        self.links.iter().try_for_each(|rule| write!(f, ",{rule}"))?;
        self.devices.iter().try_for_each(|rule| write!(f, ",{rule}"))
    }
}

impl FromStr for FaultConfig {
    type Err = FaultTextError;

    /// Parses what `Display` writes. Every part may be left out: rates are 0 then, the seed 0, the
    /// direction both.
    ///
    /// ```
    /// let faults: roce_io::FaultConfig = "loss=0.01,seed=7,drop request 3".parse()?;
    /// assert_eq!((faults.inbound.drop, faults.outbound.drop, faults.seed), (0.01, 0.01, 7));
    /// assert_eq!(faults.script[0].to_string(), "drop request 3");
    /// # Ok::<(), roce_io::FaultTextError>(())
    /// ```
    fn from_str(text: &str) -> Result<Self, FaultTextError> {
        let mut rates = FaultRates::default();
        let mut config = Self::default();
        let (mut inbound, mut outbound) = (true, true);
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            let refused = || FaultTextError::Part(part.to_owned());
            let Some((name, value)) = part.split_once('=') else {
                config.add(parse_sentence(part)?);
                continue;
            };
            let rate = || {
                let rate: f64 = value.parse().map_err(|_| refused())?;
                (0.0..=1.0).contains(&rate).then_some(rate).ok_or_else(refused)
            };
            match name {
                "loss" => rates.drop = rate()?,
                "duplicate" => rates.duplicate = rate()?,
                "delay" => rates.delay = rate()?,
                "reorder" => rates.reorder = rate()?,
                "corrupt" => rates.corrupt = rate()?,
                "mark" => rates.mark = rate()?,
                "max-delay" => {
                    let nanos = value.parse().map_err(|_| refused())?;
                    config.max_delay = Duration::from_nanos(nanos);
                }
                "seed" => config.seed = value.parse().map_err(|_| refused())?,
                "began" => {
                    let nanos = value.parse().map_err(|_| refused())?;
                    config.began = Some(Duration::from_nanos(nanos));
                }
                "rank" => config.rank = Some(value.parse().map_err(|_| refused())?),
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

fn parse_sentence(text: &str) -> Result<FaultSentence, FaultTextError> {
    FaultSentence::parse(text)
        .map_err(|error| FaultTextError::Rule { rule: text.to_owned(), error: error.to_string() })
}

#[cfg(test)]
mod tests {
    use roce_faults::{DeviceRule, FaultRule, LinkRule, VerbRule};

    use super::*;

    #[test]
    fn text_keeps_rates_seed_direction_and_script() {
        let rates = FaultRates { drop: 0.01, delay: 0.5, mark: 0.25, ..FaultRates::default() };
        let rules = ["drop request 3 of queue pair 2", "delay every 2nd ack of rank 1 by 5ms"];
        let script: Vec<_> = rules.map(|rule| FaultRule::parse(rule).unwrap()).into();
        let verbs = vec![VerbRule::parse("fail every 2nd post-send with EAGAIN").unwrap()];
        for (inbound, outbound) in [(rates, rates), (rates, FaultRates::default())] {
            let faults = FaultConfig {
                seed: u64::MAX,
                inbound,
                outbound,
                script: script.clone(),
                verbs: verbs.clone(),
                links: vec![LinkRule::parse("rail 1 down from 2s for 3s").unwrap()],
                devices: vec![DeviceRule::parse("device has no srq").unwrap()],
                began: Some(Duration::from_millis(77)),
                rank: Some(1),
                max_delay: Duration::from_millis(20),
                ..FaultConfig::default()
            };
            assert_eq!(faults.to_string().parse(), Ok(faults));
        }
    }

    #[test]
    fn text_of_nothing_is_no_fault() {
        assert_eq!("".parse(), Ok(FaultConfig::default()));
    }

    #[test]
    fn text_that_is_no_fault_is_named() {
        for part in ["loss=2", "loss=NaN", "seed=-1", "direction=up", "latency=1", "=1"] {
            let error = format!("seed=1,{part}").parse::<FaultConfig>().unwrap_err();
            assert!(error.to_string().starts_with(&format!("{part:?}")), "{error}");
        }
        let error = "seed=1,drop reqest 1".parse::<FaultConfig>().unwrap_err().to_string();
        assert!(
            error.contains("\"drop reqest 1\"") && error.contains("\"reqest\" where"),
            "{error}"
        );
    }
}
