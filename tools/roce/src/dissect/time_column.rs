//! The time of a packet in its line, in the manners of tshark's `-t`.

use clap::ValueEnum;
use jiff::tz::TimeZone;
use roce_dissect::Timestamp;

use super::number_format::{put_fmt, put_time};

/// What a packet's time is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum TimeFormat {
    /// Seconds since the first frame of the capture
    #[default]
    #[value(name = "r", alias = "relative")]
    Relative,
    /// Local time of day
    #[value(name = "a", alias = "absolute")]
    Absolute,
    /// Local date and time of day
    #[value(name = "ad", alias = "date")]
    AbsoluteDate,
    /// Seconds since the frame before
    #[value(name = "d", alias = "delta")]
    Delta,
    /// Seconds since the frame of the line before
    #[value(name = "dd")]
    DeltaDisplayed,
    /// Seconds since 1970
    #[value(name = "e", alias = "epoch")]
    Epoch,
    /// Time of day in UTC
    #[value(name = "u", alias = "utc")]
    Utc,
    /// Date and time of day in UTC
    #[value(name = "ud")]
    UtcDate,
}

/// Writes the times of packets.
#[derive(Debug)]
pub(crate) struct TimeColumn {
    format: TimeFormat,
    zone: TimeZone,
    first: Option<Timestamp>,
    /// Number and time of the last frame, and the time of the one before.
    last: (u64, Option<Timestamp>, Option<Timestamp>),
    /// The same for frames that have lines.
    displayed: (u64, Option<Timestamp>, Option<Timestamp>),
}

impl TimeColumn {
    pub(crate) fn new(format: TimeFormat) -> Self {
        let zone = match format {
            TimeFormat::Absolute | TimeFormat::AbsoluteDate => TimeZone::system(),
            _ => TimeZone::UTC,
        };
        Self { format, zone, first: None, last: (0, None, None), displayed: (0, None, None) }
    }

    /// Notes a frame of the capture, shown or not.
    pub(crate) fn pass(&mut self, number: u64, time: Timestamp) {
        self.first.get_or_insert(time);
        advance(&mut self.last, number, time);
    }

    /// Writes the time of a frame.
    pub(crate) fn write(&mut self, number: u64, time: Timestamp, text: &mut Vec<u8>) {
        advance(&mut self.displayed, number, time);
        match self.format {
            TimeFormat::Relative => put_time(text, time, self.first.unwrap_or(time)),
            TimeFormat::Delta => put_time(text, time, self.last.2.unwrap_or(time)),
            TimeFormat::DeltaDisplayed => put_time(text, time, self.displayed.2.unwrap_or(time)),
            TimeFormat::Epoch => put_fmt(text, format_args!("{time}")),
            TimeFormat::Absolute | TimeFormat::Utc => self.write_date("%H:%M:%S", time, text),
            TimeFormat::AbsoluteDate | TimeFormat::UtcDate => {
                self.write_date("%Y-%m-%d %H:%M:%S", time, text);
            }
        }
    }

    fn write_date(&self, format: &str, time: Timestamp, text: &mut Vec<u8>) {
        // Every number of nanoseconds that fits is a date: the last is in the year 2554.
        match jiff::Timestamp::from_nanosecond(time.0.into()) {
            Ok(at) => {
                let at = at.to_zoned(self.zone.clone());
                put_fmt(
                    text,
                    format_args!("{}.{:09}", at.strftime(format), time.0 % 1_000_000_000),
                );
            }
            Err(_) => put_fmt(text, format_args!("{time}")),
        }
    }
}

/// Steps to the next frame; packets of one frame are one step.
fn advance(
    (last, time, before): &mut (u64, Option<Timestamp>, Option<Timestamp>),
    number: u64,
    now: Timestamp,
) {
    if *last != number {
        *before = *time;
        (*last, *time) = (number, Some(now));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the times of frames 1, 2 and 4, of which frame 3 has no line.
    fn lines(format: TimeFormat) -> Vec<String> {
        let mut column = TimeColumn::new(format);
        let mut lines = Vec::new();
        for number in 1..=4 {
            let time = Timestamp(1_700_000_000_000_000_000 + number * 1_500_000_001);
            column.pass(number, time);
            if number != 3 {
                let mut text = Vec::new();
                column.write(number, time, &mut text);
                lines.push(String::from_utf8(text).unwrap());
            }
        }
        lines
    }

    #[test]
    fn times_are_relative_to_what_the_format_says() {
        assert_eq!(lines(TimeFormat::Relative), ["0.000000000", "1.500000001", "4.500000003"]);
        assert_eq!(lines(TimeFormat::Delta), ["0.000000000", "1.500000001", "1.500000001"]);
        assert_eq!(
            lines(TimeFormat::DeltaDisplayed),
            ["0.000000000", "1.500000001", "3.000000002"]
        );
    }

    #[test]
    fn absolute_times_have_all_nanoseconds() {
        assert_eq!(lines(TimeFormat::Epoch)[0], "1700000001.500000001");
        assert_eq!(lines(TimeFormat::Utc)[1], "22:13:23.000000002");
        assert_eq!(lines(TimeFormat::UtcDate)[0], "2023-11-14 22:13:21.500000001");
        let local = lines(TimeFormat::AbsoluteDate);
        assert!(local[0].ends_with(".500000001") && local[0].len() == 29, "{local:?}");
    }
}
