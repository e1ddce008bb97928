//! How long connection management waits.

use std::fmt;
use std::str::FromStr;

use roce_cm::AgentConfig;
use roce_wire::management::CmTimeout;

/// Most repetitions of a message: the field of a REQ has 4 bits.
const MAX_RETRIES: u8 = 15;

/// How long connection management waits for the answers of peers, and how often it asks. The times have
/// codes: a message waits 2^(code - 8) ms for them, at least 1 ms.
///
/// The default is rdma_cm's: a REQ is repeated after 6.1 s, a REP or a request for a datagram service after 4.1 s,
/// and a peer counts as unreachable after 15 repetitions.
///
/// The text form has the names of the fields: those that it leaves out have the default.
///
/// ```
/// use roce_verbs::cm::{CmTimeout, Timing};
///
/// let quick: Timing = "response_timeout=12,packet_life_time=10,max_retries=3".parse()?;
/// assert_eq!((quick.response_timeout, quick.max_retries), (CmTimeout::from_code(12), 3));
/// let error = "response_timeout=32".parse::<Timing>().unwrap_err();
/// assert_eq!(error.to_string(), "response_timeout=32 is not a code of a time: 0 to 31");
/// # Ok::<(), roce_verbs::cm::TimingError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// Time in which peers have to answer. Peers repeat their REP after it, too. Default: code 20.
    pub response_timeout: CmTimeout,
    /// Time that a packet takes at most. The ACK timeout of connected queue pairs follows from it, and so
    /// does the time for which ended connections are remembered. Default: code 18.
    pub packet_life_time: CmTimeout,
    /// Repetitions of a message without answer, 0 ..= 15. Default: 15.
    pub max_retries: u8,
}

impl Default for Timing {
    fn default() -> Self {
        let AgentConfig { response_timeout, packet_life_time, max_retries, .. } =
            AgentConfig::new(0, 0, Vec::new());
        Self { response_timeout, packet_life_time, max_retries }
    }
}

impl Timing {
    /// Returns the configuration of an agent that waits so.
    pub(crate) fn apply_to(self, config: AgentConfig) -> AgentConfig {
        let Self { response_timeout, packet_life_time, max_retries } = self;
        AgentConfig { response_timeout, packet_life_time, max_retries, ..config }
    }
}

/// What is wrong with the text of a [`Timing`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TimingError {
    /// Not a name and a value.
    #[error(
        "{0:?} is not NAME=VALUE; the names are response_timeout, packet_life_time and max_retries"
    )]
    Form(String),
    /// A name that there is not.
    #[error("there is no {0:?}; the names are response_timeout, packet_life_time and max_retries")]
    Name(String),
    /// A name that occurs twice.
    #[error("{0} is given twice")]
    Twice(String),
    /// No code of a time.
    #[error("{name}={value} is not a code of a time: 0 to 31")]
    Timeout {
        /// The name.
        name: String,
        /// The value.
        value: String,
    },
    /// No number of repetitions.
    #[error("max_retries={0} is not a number of repetitions: 0 to {MAX_RETRIES}")]
    Retries(String),
}

impl FromStr for Timing {
    type Err = TimingError;

    fn from_str(text: &str) -> Result<Self, TimingError> {
        let mut timing = Self::default();
        let mut seen = Vec::new();
        for part in text.split(',') {
            let (name, value) =
                part.split_once('=').ok_or_else(|| TimingError::Form(part.to_owned()))?;
            let (name, value) = (name.trim(), value.trim());
            let number = value.parse::<u8>().ok();
            let timeout = || {
                let code = number.filter(|code| *code <= CmTimeout::MAX.code());
                code.map(CmTimeout::from_code).ok_or_else(|| TimingError::Timeout {
                    name: name.to_owned(),
                    value: value.to_owned(),
                })
            };
            match name {
                "response_timeout" => timing.response_timeout = timeout()?,
                "packet_life_time" => timing.packet_life_time = timeout()?,
                "max_retries" => {
                    let retries = number.filter(|number| *number <= MAX_RETRIES);
                    timing.max_retries =
                        retries.ok_or_else(|| TimingError::Retries(value.to_owned()))?;
                }
                _ => return Err(TimingError::Name(name.to_owned())),
            }
            if seen.contains(&name) {
                return Err(TimingError::Twice(name.to_owned()));
            }
            seen.push(name);
        }
        Ok(timing)
    }
}

impl fmt::Display for Timing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (response, life) = (self.response_timeout.code(), self.packet_life_time.code());
        let retries = self.max_retries;
        write!(f, "response_timeout={response},packet_life_time={life},max_retries={retries}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timing_is_written_as_it_is_read_and_what_is_left_out_is_as_rdma_cm_has_it() {
        let timing: Timing = "max_retries=2, response_timeout=9".parse().unwrap();
        let life_time = CmTimeout::from_code(18);
        let expected = Timing {
            response_timeout: CmTimeout::from_code(9),
            packet_life_time: life_time,
            max_retries: 2,
        };
        assert_eq!(timing, expected);
        assert_eq!(timing.to_string().parse(), Ok(timing));
        assert_eq!(
            Timing::default().to_string(),
            "response_timeout=20,packet_life_time=18,max_retries=15"
        );
        let config = timing.apply_to(AgentConfig::new(7, 1, Vec::new()));
        assert_eq!((config.ca_guid, config.max_retries), (7, 2));
        assert_eq!(config.response_timeout, CmTimeout::from_code(9));
    }

    #[test]
    fn a_wrong_text_is_refused_with_what_is_wrong() {
        let names = "the names are response_timeout, packet_life_time and max_retries";
        for (text, message) in [
            ("", format!("\"\" is not NAME=VALUE; {names}")),
            ("response_timeout", format!("\"response_timeout\" is not NAME=VALUE; {names}")),
            ("max_retries=3,", format!("\"\" is not NAME=VALUE; {names}")),
            ("timeout=3", format!("there is no \"timeout\"; {names}")),
            ("max_retries=16", "max_retries=16 is not a number of repetitions: 0 to 15".to_owned()),
            ("max_retries=-1", "max_retries=-1 is not a number of repetitions: 0 to 15".to_owned()),
            (
                "packet_life_time=1s",
                "packet_life_time=1s is not a code of a time: 0 to 31".to_owned(),
            ),
            (
                "response_timeout=256",
                "response_timeout=256 is not a code of a time: 0 to 31".to_owned(),
            ),
            ("max_retries=1,max_retries=2", "max_retries is given twice".to_owned()),
        ] {
            let error = text.parse::<Timing>().expect_err(text);
            assert_eq!(error.to_string(), message, "{text:?}");
        }
    }
}
