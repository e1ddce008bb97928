//! The text that describes a switch.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use roce_lab::{Rate, Span};
use roce_switch::{ClassScheduling, EcnMarking, PfcConfig, SwitchConfig, SwitchSettings};

use crate::parse_number::{self, parse_marking};

/// A switch as the command line describes it: `rate=1G,buffer=256K,ecn=20K:80K:0.2,pfc=on`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct SwitchSpec {
    rate: u64,
    buffer: u64,
    alpha: f64,
    ecn: Option<EcnMarking>,
    /// Lossless classes, a bit each.
    pfc: u8,
    classes: [ClassScheduling; CLASSES],
    watchdog: Option<Duration>,
    delay: Duration,
    seed: u64,
}

impl Default for SwitchSpec {
    fn default() -> Self {
        let SwitchSettings { bits_per_sec, delay, queues, seed } = SwitchSettings::default();
        Self {
            rate: bits_per_sec,
            buffer: queues.buffer_bytes,
            alpha: queues.alpha,
            ecn: None,
            pfc: 0,
            classes: queues.scheduling,
            watchdog: None,
            delay,
            seed,
        }
    }
}

impl SwitchSpec {
    /// What the keys mean, for help texts.
    pub(crate) const HELP: &str = "\
A SPEC is KEY=VALUE, separated by commas; what is left out has its default:
  rate=RATE              bits per second of each port in each direction [1G]
  buffer=BYTES           buffer that all ports share [1M]
  alpha=FACTOR           a queue may hold this times the free bytes of the buffer [1]
  ecn=KMIN:KMAX:PMAX     mark packets with ECT: from which queue, up to which, and the
                         probability there; or off [off]
  pfc=on, off or CLASSES lossless classes, such as 3 or 0+3; on is class 3 [off]
  classes=CLASS:ORDER    strict, or a weight, such as 6:strict+3:8 [6:strict+7:strict, others 1]
  watchdog=TIME          longest pause of a queue before it is dropped, or off [off]
  delay=TIME             propagation delay of each link [1us]
  seed=N                 seed of the marks [1]
The class of a packet is the upper three bits of its DSCP: --tclass 106 is class 3 with ECT(0),
--tclass 2 is class 0 with ECT(0). Bytes take K, M, G of 1024, rates of 1000.";

    /// Returns the rate of the ports in bits per second.
    pub(crate) fn rate(&self) -> u64 {
        self.rate
    }

    /// Returns the settings for links whose longest frame has `max_frame` bytes.
    pub(crate) fn settings(&self, max_frame: u64) -> SwitchSettings {
        let pfc = (self.pfc != 0).then(|| PfcConfig {
            classes: self.pfc,
            ..PfcConfig::for_link(0, self.rate, self.delay, max_frame)
        });
        SwitchSettings {
            bits_per_sec: self.rate,
            delay: self.delay,
            queues: SwitchConfig {
                buffer_bytes: self.buffer,
                alpha: self.alpha,
                marking: [self.ecn; CLASSES],
                pfc,
                scheduling: self.classes,
                watchdog: self.watchdog,
                ..SwitchConfig::default()
            },
            seed: self.seed,
        }
    }
}

impl FromStr for SwitchSpec {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut spec = Self::default();
        let mut seen = Vec::new();
        for part in text.split(',').filter(|part| !part.trim().is_empty()) {
            let Some((key, value)) = part.split_once('=') else {
                let list = seen.last().filter(|key| ["pfc", "classes"].contains(*key));
                let hint = list.map(|key| format!("; classes of {key} are joined by +"));
                let hint = hint.unwrap_or_default();
                return Err(format!("{part:?} has no value; write KEY=VALUE{hint}"));
            };
            let (key, value) = (key.trim(), value.trim());
            if seen.contains(&key) {
                return Err(format!("{key} is given twice"));
            }
            seen.push(key);
            spec.set(key, value).map_err(|why| match why {
                Problem::Key => format!("there is no {key}; the keys are {KEYS}"),
                Problem::Value(why) => format!("{key}: {why}"),
            })?;
        }
        Ok(spec)
    }
}

/// Why a part of a text is refused.
enum Problem {
    Key,
    Value(String),
}

impl From<String> for Problem {
    fn from(why: String) -> Self {
        Self::Value(why)
    }
}

impl SwitchSpec {
    fn set(&mut self, key: &str, value: &str) -> Result<(), Problem> {
        match key {
            "rate" => self.rate = rate(value)?,
            "buffer" => self.buffer = bytes(value)?,
            "alpha" => self.alpha = parse_number::parse_factor(value)?,
            "ecn" => self.ecn = off_or(value, parse_marking)?,
            "pfc" => self.pfc = lossless(value)?,
            "classes" => self.classes = scheduling(value)?,
            "watchdog" => {
                self.watchdog = off_or(value, |text| Ok(text.parse::<Span>()?.duration()))?;
            }
            "delay" => self.delay = value.parse::<Span>()?.duration(),
            "seed" => self.seed = parse_number::parse(value)?,
            _ => return Err(Problem::Key),
        }
        Ok(())
    }
}

const KEYS: &str = "rate, buffer, alpha, ecn, pfc, classes, watchdog, delay and seed";

impl fmt::Display for SwitchSpec {
    /// Writes all keys.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rate={},buffer={},alpha={}", self.rate, self.buffer, self.alpha)?;
        match self.ecn {
            Some(EcnMarking { kmin, kmax, pmax }) => write!(f, ",ecn={kmin}:{kmax}:{pmax}")?,
            None => f.write_str(",ecn=off")?,
        }
        let lossless = (0..CLASSES).filter(|class| self.pfc & 1 << class != 0);
        let lossless: Vec<_> = lossless.map(|class| class.to_string()).collect();
        let lossless = if lossless.is_empty() { "off".to_owned() } else { lossless.join("+") };
        let classes = self.classes.iter().enumerate().map(|(class, order)| match order {
            ClassScheduling::Strict => format!("{class}:strict"),
            ClassScheduling::Weighted(weight) => format!("{class}:{weight}"),
        });
        let classes = classes.collect::<Vec<_>>().join("+");
        write!(f, ",pfc={lossless},classes={classes}")?;
        match self.watchdog {
            Some(longest) => write!(f, ",watchdog={}us", longest.as_nanos() as f64 / 1e3)?,
            None => f.write_str(",watchdog=off")?,
        }
        write!(f, ",delay={}us,seed={}", self.delay.as_nanos() as f64 / 1e3, self.seed)
    }
}

fn off_or<T>(
    text: &str,
    parse: impl FnOnce(&str) -> Result<T, String>,
) -> Result<Option<T>, String> {
    if text == "off" { Ok(None) } else { parse(text).map(Some) }
}

fn rate(text: &str) -> Result<u64, String> {
    match text.parse::<Rate>()?.bits_per_sec() {
        rate if rate >= MIN_RATE => Ok(rate),
        _ => Err(format!("{text:?} is less than 100 kbit/s; write for example 500M or 1G")),
    }
}

fn bytes(text: &str) -> Result<u64, String> {
    match parse_number::parse(text)? {
        bytes @ MIN_BUFFER..=MAX_BUFFER => Ok(bytes),
        _ => Err("a buffer has 4K to 1G: it holds frames of up to the MTU".to_owned()),
    }
}

fn lossless(text: &str) -> Result<u8, String> {
    match text {
        "off" => Ok(0),
        "on" => Ok(1 << DATA_CLASS),
        _ => text.split('+').try_fold(0, |classes, class| Ok(classes | 1 << self::class(class)?)),
    }
}

fn scheduling(text: &str) -> Result<[ClassScheduling; CLASSES], String> {
    let mut classes = ClassScheduling::DEFAULT;
    for part in text.split('+') {
        let Some((class, order)) = part.split_once(':') else {
            return Err(format!("{part:?} is not CLASS:strict or CLASS:WEIGHT"));
        };
        classes[self::class(class)?] = match (order, order.parse()) {
            ("strict", _) => ClassScheduling::Strict,
            (_, Ok(weight @ 1..=MAX_WEIGHT)) => ClassScheduling::Weighted(weight),
            _ => return Err(format!("{order:?} is neither strict nor a weight from 1 to 1000")),
        };
    }
    Ok(classes)
}

fn class(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(class @ 0..CLASSES) => Ok(class),
        _ => Err(format!("{text:?} is not a class; they are 0 to 7")),
    }
}

const CLASSES: usize = roce_switch::CLASSES;

/// Class of the data where only one is lossless, as in `roce simulate fabric`.
const DATA_CLASS: usize = 3;

const MAX_BUFFER: u64 = 1 << 30;
/// A frame of 4096 bytes of payload does not fit into less, and takes a third of a second at less.
const MIN_BUFFER: u64 = 4 << 10;
const MIN_RATE: u64 = 100_000;

const MAX_WEIGHT: u32 = 1000;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn spec(text: &str) -> SwitchSpec {
        text.parse().unwrap_or_else(|why| panic!("{text}: {why}"))
    }

    #[test]
    fn a_spec_sets_what_it_names_and_nothing_else() {
        assert_eq!(spec(""), SwitchSpec::default());
        let text = "rate=500M,buffer=256K,ecn=20K:80K:0.2,pfc=on,classes=3:8+6:strict,watchdog=5ms";
        let expected = SwitchSpec {
            rate: 500_000_000,
            buffer: 256 << 10,
            ecn: Some(EcnMarking { kmin: 20 << 10, kmax: 80 << 10, pmax: 0.2 }),
            pfc: 1 << 3,
            classes: {
                let mut classes = ClassScheduling::DEFAULT;
                classes[3] = ClassScheduling::Weighted(8);
                classes
            },
            watchdog: Some(Duration::from_millis(5)),
            ..SwitchSpec::default()
        };
        assert_eq!(spec(text), expected);
        assert_eq!(spec("pfc=0+3").pfc, 0b1001);
        let queues = spec("pfc=0+3").settings(4214).queues;
        assert_eq!(queues.pfc.unwrap().classes, 0b1001);
        assert_eq!(spec("ecn=off").settings(4214).queues.marking, [None; CLASSES]);
    }

    #[test]
    fn a_wrong_spec_is_refused_with_the_key_and_the_reason() {
        let refused = [
            ("rate", "has no value"),
            ("speed=1G", "the keys are rate, buffer"),
            ("rate=1G,rate=2G", "rate is given twice"),
            ("rate=fast", "rate: \"fast\" is not a rate"),
            ("rate=500", "rate: \"500\" is less than 100 kbit/s; write for example 500M"),
            ("buffer=0", "buffer: a buffer has"),
            ("buffer=1Q", "buffer: \"1Q\" is no number"),
            ("pfc=3,4", "\"4\" has no value; write KEY=VALUE; classes of pfc are joined by +"),
            ("alpha=0", "alpha:"),
            ("ecn=20K", "ecn: \"20K\" is not KMIN:KMAX:PMAX"),
            ("ecn=9K:8K:1", "ecn: the queue"),
            ("ecn=1:2:3", "ecn: use a probability"),
            ("pfc=8", "pfc: \"8\" is not a class"),
            ("classes=3", "classes: \"3\" is not CLASS"),
            ("classes=3:0", "classes: \"0\" is neither"),
            ("watchdog=1", "watchdog: \"1\" is not a time"),
        ];
        for (text, reason) in refused {
            let why = text.parse::<SwitchSpec>().unwrap_err();
            assert!(why.contains(reason), "{text}: {why}");
        }
    }

    proptest! {
        #[test]
        fn a_written_spec_is_read_unchanged(
            rate in MIN_RATE..1_000_000_000_000, buffer in MIN_BUFFER..1 << 30, pfc: u8, seed: u64,
            weight in 1u32..1000, micros in proptest::option::of(0u64..1_000_000),
            kmin in 0u64..1 << 20, more in 0u64..1 << 20, pmax in 0.0..=1.0f64,
        ) {
            let mut written = SwitchSpec {
                rate, buffer, pfc, seed, alpha: pmax + 0.125,
                ecn: Some(EcnMarking { kmin, kmax: kmin + more, pmax }),
                watchdog: micros.map(Duration::from_micros),
                ..SwitchSpec::default()
            };
            written.classes[2] = ClassScheduling::Weighted(weight);
            prop_assert_eq!(spec(&written.to_string()), written);
        }

        #[test]
        fn any_text_is_read_or_refused(text: String) {
            let _ = text.parse::<SwitchSpec>();
        }
    }
}
