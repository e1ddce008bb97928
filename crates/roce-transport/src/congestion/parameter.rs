//! The parameters of congestion control that have a name.

use core::fmt;
use core::ops::RangeInclusive;
use core::time::Duration;

use super::CongestionConfig;

/// A named parameter of a [`CongestionConfig`], under the name that ConnectX cards have for it, where
/// they have it.
///
/// ```
/// use roce_transport::congestion::{CongestionConfig, Parameter};
///
/// let interval = Parameter::named("np_min_time_between_cnps").unwrap();
/// let mut config = CongestionConfig::default();
/// assert_eq!((interval.get(&config), interval.unit()), (50, "µs"));
/// assert!(interval.set(&mut config, 4).is_ok());
/// assert_eq!(config.np_min_time_between_cnps, 4);
/// ```
#[derive(Clone, Copy)]
pub struct Parameter {
    name: &'static str,
    unit: &'static str,
    range: [u32; 2],
    meaning: &'static str,
    get: fn(&CongestionConfig) -> u32,
    set: fn(&mut CongestionConfig, u32),
}

/// A value outside of the range of its parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutOfRange;

impl Parameter {
    /// Returns all parameters, those of the notification point first.
    pub const fn all() -> &'static [Self] {
        &ALL
    }

    /// Returns the parameter of this name.
    pub fn named(name: &str) -> Option<&'static Self> {
        ALL.iter().find(|parameter| parameter.name == name)
    }

    /// Returns its name.
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// Returns the unit of its value; empty for a number or a switch.
    pub const fn unit(&self) -> &'static str {
        self.unit
    }

    /// Returns the values that it can have.
    pub const fn range(&self) -> RangeInclusive<u32> {
        self.range[0]..=self.range[1]
    }

    /// Returns what it does, in a few words.
    pub const fn meaning(&self) -> &'static str {
        self.meaning
    }

    /// Returns its value.
    pub fn get(&self, config: &CongestionConfig) -> u32 {
        (self.get)(config)
    }

    /// Sets its value.
    ///
    /// # Errors
    /// [`OutOfRange`]; `config` is as before then.
    pub fn set(&self, config: &mut CongestionConfig, value: u32) -> Result<(), OutOfRange> {
        if !self.range().contains(&value) {
            return Err(OutOfRange);
        }
        (self.set)(config, value);
        Ok(())
    }
}

impl fmt::Debug for Parameter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Parameter").field(&self.name).finish()
    }
}

/// Longest time of a parameter in µs: ten seconds.
const MAX_TIME: u32 = 10_000_000;
/// Largest rate of a parameter in Mbit/s.
const MAX_RATE: u32 = 1_000_000;

/// The type of a parameter's field.
trait Value {
    fn from_number(number: u32) -> Self;
    fn to_number(self) -> u32;
}

macro_rules! number {
    ($type:ty) => {
        impl Value for $type {
            /// The range of a parameter fits its field.
            fn from_number(number: u32) -> Self {
                Self::try_from(number).unwrap_or(Self::MAX)
            }

            fn to_number(self) -> u32 {
                self.into()
            }
        }
    };
}

number!(u8);
number!(u16);
number!(u32);

impl Value for bool {
    fn from_number(number: u32) -> Self {
        number != 0
    }

    fn to_number(self) -> u32 {
        self.into()
    }
}

impl Value for Duration {
    /// In µs.
    fn from_number(number: u32) -> Self {
        Self::from_micros(number.into())
    }

    fn to_number(self) -> u32 {
        u32::try_from(self.as_micros()).unwrap_or(u32::MAX)
    }
}

macro_rules! parameters {
    ($($name:ident $(of $part:ident)?, $unit:literal, $min:literal..=$max:expr, $meaning:literal;)*) => {
        [$(Parameter {
            name: stringify!($name),
            unit: $unit,
            range: [$min, $max],
            meaning: $meaning,
            get: |config| Value::to_number(config$(.$part)?.$name),
            set: |config, value| config$(.$part)?.$name = Value::from_number(value),
        }),*]
    };
}

const ALL: [Parameter; 20] = parameters! {
    np_enable, "", 0..=1, "answer marked packets: CNPs, and BECN on ACKs";
    np_min_time_between_cnps, "µs", 0..=MAX_TIME, "shortest time between two CNPs of a queue pair";
    np_cnp_dscp, "", 0..=63, "DSCP of CNPs";
    rp_dce_tcp_g of dcqcn, "1/1024", 0..=1024, "weight of the old value when α is updated";
    rp_dce_tcp_rtt of dcqcn, "µs", 1..=MAX_TIME, "time without a CNP after which α falls";
    rp_initial_alpha_value of dcqcn, "1/1023", 0..=1023, "first value of α";
    rp_rate_reduce_monitor_period of dcqcn, "µs", 0..=MAX_TIME, "shortest time between two cuts";
    rp_time_reset of dcqcn, "µs", 1..=MAX_TIME, "time between two increases by the timer";
    rp_byte_reset of dcqcn, "bytes", 0..=u32::MAX, "bytes between two increases; 0: by time alone";
    rp_threshold of dcqcn, "", 0..=1000, "increases that only approach the target rate";
    rp_ai_rate of dcqcn, "Mbit/s", 0..=MAX_RATE, "step of the target rate after them";
    rp_hai_rate of dcqcn, "Mbit/s", 0..=MAX_RATE, "step once time and bytes have passed them";
    rp_gd of dcqcn, "", 10..=20, "a cut takes α/2^(this − 10) of the rate";
    rp_min_dec_fac of dcqcn, "%", 0..=100, "least share of the rate that a cut leaves";
    rp_min_rate of dcqcn, "Mbit/s", 1..=MAX_RATE, "smallest rate";
    rp_max_rate of dcqcn, "Mbit/s", 0..=MAX_RATE, "largest rate; 0: that of the link";
    rp_rate_to_set_on_first_cnp of dcqcn, "Mbit/s", 0..=MAX_RATE, "rate after the first CNP; 0: a cut";
    rp_clamp_tgt_rate of dcqcn, "", 0..=1, "every cut lowers the target rate too";
    rp_clamp_tgt_rate_ati of dcqcn, "", 0..=1, "a cut does so after an increase by the timer";
    swift_base_target, "µs", 1..=MAX_TIME, "round trip that swift keeps";
};
