//! Congestion control as text.

use alloc::string::String;
use core::fmt;
use core::str::FromStr;

use super::parameter::Parameter;
use super::{CongestionAlgorithm, CongestionConfig, DcqcnParameters};

impl fmt::Display for CongestionConfig {
    /// Writes the algorithm, and the parameters that differ from the default. The rate of the link is
    /// not part of it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.algorithm.name())?;
        let default = Self::default();
        for parameter in Parameter::all() {
            let value = parameter.get(self);
            if value != parameter.get(&default) {
                write!(f, ",{}={value}", parameter.name())?;
            }
        }
        Ok(())
    }
}

impl FromStr for CongestionConfig {
    type Err = CongestionTextError;

    /// Parses what `Display` writes: words and parameters with commas between them, of which later
    /// ones win. The words are the names of the algorithms, and the parameter sets of DCQCN: `paper`
    /// and `connectx`. What is not named is as by default.
    ///
    /// ```
    /// use roce_transport::congestion::{CongestionAlgorithm, CongestionConfig};
    ///
    /// let config: CongestionConfig = "dcqcn,paper,rp_ai_rate=10".parse()?;
    /// assert_eq!(config.algorithm, CongestionAlgorithm::Dcqcn);
    /// assert_eq!((config.dcqcn.rp_ai_rate, config.dcqcn.rp_time_reset), (10, 55));
    /// # Ok::<(), roce_transport::congestion::CongestionTextError>(())
    /// ```
    fn from_str(text: &str) -> Result<Self, CongestionTextError> {
        let mut config = Self::default();
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            config.set(part)?;
        }
        Ok(config)
    }
}

impl CongestionConfig {
    /// Applies one part of a text.
    fn set(&mut self, part: &str) -> Result<(), CongestionTextError> {
        let Some((name, value)) = part.split_once('=') else { return self.set_word(part) };
        let parameter = Parameter::named(name).ok_or_else(|| {
            CongestionTextError::UnknownName(name.chars().take(MAX_SHOWN).collect())
        })?;
        let outside = CongestionTextError::OutOfRange(parameter);
        let value = value.parse().map_err(|_| outside.clone())?;
        parameter.set(self, value).map_err(|_| outside)
    }

    fn set_word(&mut self, word: &str) -> Result<(), CongestionTextError> {
        let algorithm = CongestionAlgorithm::ALL.into_iter().find(|known| known.name() == word);
        match (algorithm, word) {
            (Some(algorithm), _) => self.algorithm = algorithm,
            (None, "paper") => self.dcqcn = DcqcnParameters::PAPER,
            (None, "connectx") => self.dcqcn = DcqcnParameters::CONNECTX,
            (None, _) => {
                if let Some(parameter) = Parameter::named(word) {
                    return Err(CongestionTextError::NoValue(parameter));
                }
                let word = word.chars().take(MAX_SHOWN).collect();
                return Err(CongestionTextError::UnknownWord(word));
            }
        }
        Ok(())
    }
}

/// Most characters of an unknown name that an error repeats.
const MAX_SHOWN: usize = 40;

/// Why a text is no congestion control.
#[derive(Clone, Debug)]
pub enum CongestionTextError {
    /// It has a word that is neither an algorithm nor a set of parameters.
    UnknownWord(String),
    /// It names a parameter without its value.
    NoValue(&'static Parameter),
    /// No parameter has this name.
    UnknownName(String),
    /// The value of a parameter is not a number in its range.
    OutOfRange(&'static Parameter),
}

impl fmt::Display for CongestionTextError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownWord(word) => write!(
                f,
                "{word:?} is no congestion control; use loss, ecn, dcqcn or swift, then paper or \
                 connectx and parameters, all joined by commas: dcqcn,paper,rp_ai_rate=10"
            ),
            Self::NoValue(parameter) => {
                let (name, range) = (parameter.name(), parameter.range());
                write!(f, "{name} needs a value, {name}={} to {}", range.start(), range.end())
            }
            Self::UnknownName(name) => {
                write!(
                    f,
                    "there is no parameter {name:?}; `roce devices --cc` lists them, and commas \
                     join them"
                )
            }
            Self::OutOfRange(parameter) => {
                let range = parameter.range();
                write!(f, "{} takes {} to {}", parameter.name(), range.start(), range.end())?;
                if parameter.unit().is_empty() {
                    Ok(())
                } else {
                    write!(f, " {}", parameter.unit())
                }
            }
        }
    }
}

impl core::error::Error for CongestionTextError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_parameter_is_set_read_and_written_by_its_name() {
        for parameter in Parameter::all() {
            let range = parameter.range();
            for value in [*range.start(), *range.end()] {
                let text = format!("swift,{}={value}", parameter.name());
                let config: CongestionConfig = text.parse().unwrap();
                assert_eq!(parameter.get(&config), value, "{text}");
                assert_eq!(
                    config.to_string().parse::<CongestionConfig>().unwrap(),
                    config,
                    "{text}"
                );
                let changed = Parameter::all()
                    .iter()
                    .filter(|other| other.get(&config) != other.get(&CongestionConfig::default()));
                assert!(changed.count() <= 1, "{text} sets one parameter");
            }
        }
    }

    #[test]
    fn the_default_is_written_as_its_algorithm_alone() {
        assert_eq!(CongestionConfig::default().to_string(), "ecn");
        assert_eq!("".parse::<CongestionConfig>().unwrap(), CongestionConfig::default());
    }

    #[test]
    fn later_parts_win() {
        let config: CongestionConfig = "rp_ai_rate=7,dcqcn,paper,swift,dcqcn".parse().unwrap();
        assert_eq!(config.dcqcn, DcqcnParameters::PAPER);
        assert_eq!(config.algorithm, CongestionAlgorithm::Dcqcn);
    }

    #[test]
    fn a_wrong_text_is_refused_with_what_to_write() {
        let refused = |text: &str| text.parse::<CongestionConfig>().unwrap_err().to_string();
        assert!(refused("cubic").contains("use loss, ecn, dcqcn or swift"));
        assert_eq!(refused("dcqcn,rp_gd=21"), "rp_gd takes 10 to 20",);
        assert_eq!(refused("rp_min_dec_fac=-1"), "rp_min_dec_fac takes 0 to 100 %");
        assert!(refused("dcqcn,ai=1").contains("no parameter \"ai\""));
        assert!(refused("dcqcn rp_ai_rate=1").contains("commas join them"));
        assert!(refused("dcqcn,rp_gd").contains("rp_gd needs a value, rp_gd=10 to 20"));
        assert!(refused(&"x".repeat(100_000)).len() < 200);
    }
}
