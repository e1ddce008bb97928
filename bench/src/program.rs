//! What the small programs have in common: how they are started, and how they fail.

use std::fmt;
use std::io;
use std::net::Ipv4Addr;
use std::process::ExitCode;
use std::str::FromStr;

use clap::{Args, Parser};
use serde_json::Value;

use crate::processor::pin_to_cpu;

/// The options of one end of a measurement.
#[derive(Args, Clone, Debug)]
pub struct EndOptions {
    /// Wait for a client and serve it; without this, be the client.
    #[arg(long, conflicts_with = "to")]
    pub listen: bool,
    /// The IPv4 address of the end that listens.
    #[arg(long, value_name = "ADDRESS", required_unless_present = "listen")]
    pub to: Option<Ipv4Addr>,
    /// Stay on this processor, counted from 0.
    #[arg(long)]
    pub cpu: Option<usize>,
    /// How long to measure, after a warm-up of 0.3 s. The client's word counts.
    #[arg(long, default_value_t = 2.0, value_parser = seconds)]
    pub seconds: f64,
    /// TCP port at which the ends meet before, and speak after, the measurement.
    #[arg(long, default_value_t = 47_911)]
    pub port: u16,
}

impl EndOptions {
    /// The address of the end that listens, at the end that does not.
    pub fn server(&self) -> Option<Ipv4Addr> {
        self.to.filter(|_| !self.listen)
    }
}

/// Why a program ends without a figure.
#[derive(Debug)]
pub enum Failure {
    /// This machine refused something.
    System {
        /// What was being done.
        doing: String,
        /// The system's reason.
        source: io::Error,
    },
    /// The other end did not do its part, or something was asked that cannot be.
    Told(String),
}

impl Failure {
    /// Something that cannot be, or what the other end did not do; says what to do about it.
    pub fn told(why: impl Into<String>) -> Self {
        Self::Told(why.into())
    }

    /// For `map_err`: the system refused while doing this.
    pub fn doing(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let doing = what.into();
        move |source| Self::System { doing, source }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::System { doing, source } => {
                write!(f, "{doing}: {source}")?;
                if source.kind() == io::ErrorKind::PermissionDenied {
                    write!(f, " (run it as root, or with CAP_NET_RAW and CAP_NET_ADMIN)")?;
                }
                Ok(())
            }
            Self::Told(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for Failure {}

/// Reads the options, pins the process, runs `body` and prints what it returns as one line of
/// JSON; an error goes to standard error and ends with 1, nonsense among the options with 2.
pub fn run<O: Parser>(
    cpu: impl FnOnce(&O) -> Option<usize>,
    body: impl FnOnce(&O) -> Result<Value, Failure>,
) -> ExitCode {
    let options = O::parse();
    let pinned = cpu(&options).map_or(Ok(()), |cpu| {
        pin_to_cpu(cpu).map_err(Failure::doing(format!("staying on processor {cpu}")))
    });
    match pinned.and_then(|()| body(&options)) {
        Ok(report) => {
            println!("{report}");
            ExitCode::SUCCESS
        }
        Err(failure) => {
            eprintln!("{}: {failure}", O::command().get_name());
            ExitCode::FAILURE
        }
    }
}

/// A number of bytes with `K`, `M` or `G` behind it, in powers of 1 024.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bytes(pub usize);

impl FromStr for Bytes {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (number, shift) = match text.char_indices().last() {
            Some((at, 'K' | 'k')) => (&text[..at], 10),
            Some((at, 'M' | 'm')) => (&text[..at], 20),
            Some((at, 'G' | 'g')) => (&text[..at], 30),
            _ => (text, 0),
        };
        let number: usize =
            number.parse().map_err(|_| format!("{text:?} is no size, as 64M is"))?;
        let bytes = number.checked_mul(1 << shift).ok_or("that is too much")?;
        Ok(Self(bytes))
    }
}

fn seconds(text: &str) -> Result<f64, String> {
    let seconds: f64 = text.parse().map_err(|_| "that is no number".to_owned())?;
    if (0.05..=600.0).contains(&seconds) {
        Ok(seconds)
    } else {
        Err("choose 0.05 to 600 seconds".to_owned())
    }
}

/// What both ends run before they measure, in seconds.
pub const WARM_UP: f64 = 0.3;

#[cfg(test)]
mod tests {
    use super::Bytes;

    #[test]
    fn sizes_are_understood_and_nonsense_is_not() {
        assert_eq!("64M".parse(), Ok(Bytes(64 << 20)));
        assert_eq!("512k".parse(), Ok(Bytes(512 << 10)));
        assert_eq!("7".parse(), Ok(Bytes(7)));
        for nonsense in ["", "M", "1.5M", "-1", "99999999999999999999", "18446744073709551615G"] {
            assert!(nonsense.parse::<Bytes>().is_err(), "{nonsense}");
        }
    }
}
