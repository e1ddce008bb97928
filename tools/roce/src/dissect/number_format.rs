//! Numbers and times as text, without `std::fmt`, which would take most of the time of a line.

use std::io::Write;
use std::time::Duration;

use roce_dissect::Timestamp;

/// Writing to memory cannot fail.
pub(super) fn put_fmt(text: &mut Vec<u8>, arguments: std::fmt::Arguments<'_>) {
    let _ = text.write_fmt(arguments);
}

pub(super) fn put_decimal(text: &mut Vec<u8>, mut value: u64) {
    let len = decimals(value);
    let mut digits = [0; MAX_DECIMAL_DIGITS];
    for digit in digits[..len].iter_mut().rev() {
        *digit = b'0' + (value % 10) as u8;
        value /= 10;
    }
    put_front(text, &digits, len);
}

/// Returns the digits that [`put_decimal`] writes.
pub(super) fn decimals(value: u64) -> usize {
    value.checked_ilog10().unwrap_or(0) as usize + 1
}

pub(super) fn put_hex(text: &mut Vec<u8>, value: u64, width: usize) {
    let mut digits = [0; MAX_HEX_DIGITS];
    for (i, digit) in digits[..width].iter_mut().enumerate() {
        *digit = HEX[(value >> (4 * (width - 1 - i))) as usize & 0xf];
    }
    put_front(text, &digits, width);
}

/// Writes a hexadecimal number without leading zeros.
pub(super) fn put_hex_short(text: &mut Vec<u8>, value: u64) {
    let width = (64 - value.leading_zeros()).div_ceil(4).max(1) as usize;
    put_hex(text, value, width);
}

/// Writes the seconds since the start of the capture.
pub(super) fn put_time(text: &mut Vec<u8>, time: Timestamp, began: Timestamp) {
    let nanos = match time.0.checked_sub(began.0) {
        Some(nanos) => nanos,
        None => {
            text.push(b'-');
            began.0 - time.0
        }
    };
    put_decimal(text, nanos / 1_000_000_000);
    let mut digits = *b".000000000";
    let mut rest = (nanos % 1_000_000_000) as u32;
    for digit in digits[1..].iter_mut().rev() {
        *digit = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    text.extend_from_slice(&digits);
}

/// Writes a duration as [`roce_dissect::DisplayDuration`] does.
pub(super) fn put_duration(text: &mut Vec<u8>, duration: Duration) {
    let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
    let (unit_nanos, unit) = match nanos {
        0..=999 => {
            put_decimal(text, nanos);
            return text.extend_from_slice(b" ns");
        }
        1_000..=999_499 => (1_000, " µs"),
        999_500..=999_499_999 => (1_000_000, " ms"),
        _ => (1_000_000_000, " s"),
    };
    // Three significant digits, rounded.
    let (scale, decimals) = match nanos {
        n if n < 9_995 * unit_nanos / 1000 => (100, 2),
        n if n < 99_950 * (unit_nanos / 1000) => (10, 1),
        _ => (1, 0),
    };
    let scaled = (u128::from(nanos) * scale + u128::from(unit_nanos) / 2) / u128::from(unit_nanos);
    let scaled = scaled as u64;
    let scale = scale as u64;
    put_decimal(text, scaled / scale);
    if decimals > 0 {
        text.push(b'.');
        if decimals == 2 {
            text.push(b'0' + (scaled / 10 % 10) as u8);
        }
        text.push(b'0' + (scaled % 10) as u8);
    }
    text.extend_from_slice(unit.as_bytes());
}

/// Writes the first `len` of `bytes`. Copies all and truncates, since a copy of constant length is
/// a few instructions and any other is a call.
#[inline]
pub(super) fn put_front<const N: usize>(text: &mut Vec<u8>, bytes: &[u8; N], len: usize) {
    let end = text.len() + len;
    text.extend_from_slice(bytes);
    text.truncate(end);
}

const HEX: &[u8; 16] = b"0123456789abcdef";
const MAX_HEX_DIGITS: usize = 16;
const MAX_DECIMAL_DIGITS: usize = 20;

#[cfg(test)]
mod tests {
    use super::*;

    fn text(write: impl FnOnce(&mut Vec<u8>)) -> String {
        let mut text = Vec::new();
        write(&mut text);
        String::from_utf8(text).unwrap()
    }

    #[test]
    fn numbers_are_written_as_the_standard_library_writes_them() {
        for value in [0, 9, 10, 4791, u64::MAX] {
            assert_eq!(text(|text| put_decimal(text, value)), value.to_string());
            assert_eq!(text(|text| put_hex_short(text, value)), format!("{value:x}"));
        }
        assert_eq!(text(|text| put_hex(text, 0x12, 6)), "000012");
    }

    #[test]
    fn a_duration_has_the_common_format() {
        let cases = [0, 1, 999, 1000, 9_994, 9_995, 12_345, 99_949, 99_950, 999_499, 999_500]
            .into_iter()
            .chain([1_234_567, 64_000_000, 999_499_999, 999_500_000, 4_294_967_296]);
        for nanos in cases {
            let duration = Duration::from_nanos(nanos);
            let expected = roce_dissect::DisplayDuration(duration).to_string();
            assert_eq!(text(|text| put_duration(text, duration)), expected, "{nanos}");
        }
    }

    #[test]
    fn a_frame_before_the_first_has_a_negative_time() {
        let (early, late) = (Timestamp(1_000_000_001), Timestamp(2_500_000_000));
        assert_eq!(text(|text| put_time(text, late, early)), "1.499999999");
        assert_eq!(text(|text| put_time(text, early, late)), "-1.499999999");
    }
}
