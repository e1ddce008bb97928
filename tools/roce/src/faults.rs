//! The faults of all commands that move packets: options, and what is told about them at the end.

mod report;

use std::fmt::Display;
use std::time::Duration;

use clap::Args;
use roce_verbs::{FaultConfig, FaultRates, FaultRule, FaultSentence};
use serde::{Deserialize, Serialize};

use crate::error::{CliError, Result};
use crate::parse_number;
use crate::sentence::{self, Sentence};

pub(crate) use report::{Report, read_log};

/// Faults injected into packets.
#[derive(Args, Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Faults {
    /// Drop each packet with this probability (0.01 or 1%), in either direction
    #[arg(long, value_name = "P", default_value_t = 0.0, hide_default_value = true)]
    #[arg(value_parser = parse_number::parse_probability)]
    pub(crate) loss: f64,
    /// Duplicate each packet with this probability
    #[arg(long, value_name = "P", default_value_t = 0.0, hide_default_value = true)]
    #[arg(value_parser = parse_number::parse_probability)]
    pub(crate) duplicate: f64,
    /// Delay each packet with this probability; later packets overtake it
    #[arg(long, value_name = "P", default_value_t = 0.0, hide_default_value = true)]
    #[arg(value_parser = parse_number::parse_probability)]
    pub(crate) delay: f64,
    /// Longest delay of --delay, such as 100us; each is drawn between 0 and this
    #[arg(long, value_name = "TIME", default_value = "5ms", value_parser = parse_time)]
    pub(crate) max_delay: Duration,
    /// Let up to three packets overtake each packet with this probability
    #[arg(long, value_name = "P", default_value_t = 0.0, hide_default_value = true)]
    #[arg(value_parser = parse_number::parse_probability)]
    pub(crate) reorder: f64,
    /// Flip one bit of each packet with this probability
    #[arg(long, value_name = "P", default_value_t = 0.0, hide_default_value = true)]
    #[arg(value_parser = parse_number::parse_probability)]
    pub(crate) corrupt: f64,
    /// Mark each packet as a congested switch does (CE) with this probability; only packets with
    /// ECT in their traffic class are marked
    #[arg(long, value_name = "P", default_value_t = 0.0, hide_default_value = true)]
    #[arg(value_parser = parse_number::parse_probability)]
    pub(crate) mark: f64,
    /// Random seed; the same seed decides the same for the same packets of a queue pair
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = parse_number::parse)]
    pub(crate) seed: u64,
    /// A fault of certain packets or calls, such as 'drop request 3 of queue pair 2', 'fail post-send 3
    /// with ENOMEM' or 'fail completion 5 with retry-exceeded'; repeat it for several. The command fails
    /// if one of them never happens (docs/run.md)
    #[arg(long, value_name = "SENTENCE", value_parser = FaultSentence::read)]
    #[serde(with = "sentence")]
    pub(crate) fault: Vec<FaultSentence>,
    /// A TOML file with such sentences: faults = ["drop request 3", …]
    #[arg(long, value_name = "FILE", value_parser = ScriptFile::read)]
    pub(crate) faults: Option<ScriptFile>,
}

/// The sentences of a file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct ScriptFile(#[serde(with = "sentence")] Vec<FaultSentence>);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ScriptData {
    faults: Vec<String>,
}

impl ScriptFile {
    fn read(path: &str) -> Result<Self, String> {
        let text = std::fs::read_to_string(path).map_err(|error| error.to_string())?;
        Self::parse(&text)
    }

    fn parse(text: &str) -> Result<Self, String> {
        let data: ScriptData = toml::from_str(text).map_err(|error| error.to_string())?;
        if data.faults.is_empty() {
            return Err("it has no sentence: write faults = [\"drop request 3\", …]".to_owned());
        }
        let rule = |text: &String| {
            FaultSentence::read(text).map_err(|error| format!("in {text:?}: {error}"))
        };
        Ok(Self(data.faults.iter().map(rule).collect::<Result<_, _>>()?))
    }
}

/// Parses a time as the sentences have it.
fn parse_time(text: &str) -> Result<Duration, String> {
    match FaultRule::parse(&format!("delay packet 1 by {text}")) {
        Ok(FaultRule { action: roce_faults::FaultAction::Delay(time), .. }) => Ok(time),
        _ => Err("use a time such as 100us, 5ms or 2s".to_owned()),
    }
}

impl Faults {
    pub(crate) fn any(&self) -> bool {
        let rates = self.rates();
        rates != FaultRates::default() || !self.script().is_empty()
    }

    /// Returns the scripted faults in the order of their numbers: those of packets before those of
    /// verbs and those before links and devices, and of each kind those of the file first.
    pub(crate) fn script(&self) -> Vec<FaultSentence> {
        let of_file = self.faults.iter().flat_map(|file| &file.0);
        let mut script: Vec<_> = of_file.chain(&self.fault).copied().collect();
        script.sort_by_key(|sentence| match sentence {
            FaultSentence::Packets(_) => 0,
            FaultSentence::Verbs(_) => 1,
            FaultSentence::Links(_) => 2,
            FaultSentence::Devices(_) => 3,
        });
        script
    }

    /// Returns the faults on packets of both directions. Of the two ends of a private network that
    /// is the client, rank 1.
    pub(crate) fn config(&self) -> FaultConfig {
        let rates = self.rates();
        let mut config = FaultConfig {
            seed: self.seed,
            inbound: rates,
            outbound: rates,
            max_delay: self.max_delay,
            ..FaultConfig::default()
        };
        self.script().into_iter().for_each(|sentence| config.add(sentence));
        config
    }

    /// Returns the faults of one of many ranks, with a seed of its own.
    pub(crate) fn of_rank(&self, rank: u32) -> FaultConfig {
        let seed = self.seed.wrapping_add(u64::from(rank) << 32);
        FaultConfig { seed, rank: Some(rank), ..self.config() }
    }

    /// Returns the faults of one of many ranks that it injects into sent packets alone.
    pub(crate) fn of_sender(&self, rank: u32) -> FaultConfig {
        FaultConfig { inbound: FaultRates::default(), ..self.of_rank(rank) }
    }

    /// Refuses rules that name a rank beyond those of the command; `None` where it has none.
    pub(crate) fn check_ranks(&self, ranks: Option<u32>) -> Result {
        let wrong = self
            .script()
            .into_iter()
            .find(|rule| rule.rank().is_some_and(|rank| ranks.is_none_or(|ranks| rank >= ranks)));
        let told = |rule: FaultSentence| match ranks {
            None => format!("{:?}: there are no ranks without --local", rule.to_string()),
            Some(ranks) => format!("{:?}: the ranks are 0 to {}", rule.to_string(), ranks - 1),
        };
        wrong.map_or(Ok(()), |rule| Err(CliError::new(told(rule))))
    }

    /// Refuses rules that name a rail that the command has not, or a link that it cannot set down.
    pub(crate) fn check_rails(&self, rails: Rails) -> Result {
        let count = match rails {
            Rails::OfRun(count) | Rails::OfCommand(count) => count.try_into().unwrap_or(0),
            Rails::Devices(count) => count,
        };
        for rule in self.script() {
            let refused = |why: &str| Err(CliError::new(format!("{:?}: {why}", rule.to_string())));
            if matches!(rule, FaultSentence::Links(_)) && !matches!(rails, Rails::OfRun(_)) {
                return refused(
                    "links go down between private hosts alone: use roce run --local N",
                );
            }
            let is_beyond =
                |rail: u32| usize::try_from(rail).is_ok_and(|rail| rail >= count.max(1));
            if rule.rail().is_some_and(is_beyond) {
                return match count {
                    0 | 1 => refused("the only rail is 0; --rails K makes several"),
                    _ => refused(&format!("the rails are 0 to {}", count - 1)),
                };
            }
        }
        Ok(())
    }

    fn rates(&self) -> FaultRates {
        FaultRates {
            drop: self.loss,
            duplicate: self.duplicate,
            delay: self.delay,
            reorder: self.reorder,
            corrupt: self.corrupt,
            mark: self.mark,
        }
    }
}

/// The rails of a command.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Rails {
    /// `roce run` with private hosts, whose links it can set down.
    OfRun(u32),
    /// Another command with private hosts.
    OfCommand(u32),
    /// So many devices of this host, in their order.
    Devices(usize),
}

/// Writes a number of times.
fn times(count: u64) -> impl Display {
    match count {
        1 => "once".to_owned(),
        2 => "twice".to_owned(),
        count => format!("{count} times"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_sentences_is_read_and_a_wrong_word_is_named() {
        let file = ScriptFile::parse("faults = ['drop request 3', 'delay ack 1 by 5ms']").unwrap();
        assert_eq!(file.0[1].to_string(), "delay ack 1 by 5ms");
        let error = ScriptFile::parse("faults = ['drop reqest 3']").unwrap_err();
        assert!(error.contains("in \"drop reqest 3\": \"reqest\" where"), "{error}");
        let error = ScriptFile::parse("faults = ['lose request 3']").unwrap_err();
        assert!(error.contains("mark, fail, raise, rail or device"), "{error}");
        assert!(ScriptFile::parse("fault = []").unwrap_err().contains("fault"));
        assert!(ScriptFile::parse("faults = []").unwrap_err().contains("no sentence"));
    }

    #[test]
    fn a_time_is_that_of_the_sentences() {
        assert_eq!(parse_time("100us"), Ok(Duration::from_micros(100)));
        for text in ["", "5", "5 ms", "-1s", "1s of rank 1"] {
            assert!(parse_time(text).unwrap_err().contains("100us"), "{text}");
        }
    }
}
