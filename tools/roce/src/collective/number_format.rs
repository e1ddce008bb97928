//! Numbers in the formats of nccl-tests.

/// Formats a number in `width` characters with up to two decimals, or with an exponent if it does
/// not fit.
pub(crate) fn fitted(value: f64, width: usize) -> String {
    let attempts = (0..=2).rev().map(|decimals| format!("{value:>width$.decimals$}"));
    attempts.into_iter().find(|text| text.len() <= width).unwrap_or_else(|| {
        let decimals = usize::from(width >= 7);
        format!("{:>width$}", exponent(value, decimals))
    })
}

/// Formats a number as C's `%g`: six significant digits without trailing zeros.
pub(crate) fn general(value: f64) -> String {
    const DIGITS: i32 = 6;
    if value == 0.0 || !value.is_finite() {
        return format!("{value}");
    }
    // Rounding may add a digit, so use the exponent of the rounded number.
    let rounded = format!("{value:.*e}", DIGITS as usize - 1);
    let power = rounded.split_once('e').and_then(|(_, power)| power.parse().ok()).unwrap_or(0);
    if (-4..DIGITS).contains(&power) {
        let decimals = usize::try_from(DIGITS - 1 - power).unwrap_or(0);
        without_zeros(&format!("{value:.decimals$}")).to_owned()
    } else {
        let text = exponent(value, DIGITS as usize - 1);
        match text.split_once('e') {
            Some((digits, power)) => format!("{}e{power}", without_zeros(digits)),
            None => text,
        }
    }
}

/// Formats a number as C's `%e`: the exponent has a sign and at least two digits.
fn exponent(value: f64, decimals: usize) -> String {
    let text = format!("{value:.decimals$e}");
    match text.split_once('e') {
        Some((digits, power)) => {
            let (sign, power) = match power.strip_prefix('-') {
                Some(power) => ('-', power),
                None => ('+', power),
            };
            format!("{digits}e{sign}{power:0>2}")
        }
        None => text,
    }
}

fn without_zeros(text: &str) -> &str {
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimals_go_before_digits_do() {
        let cases = [
            (0.0, 7, "   0.00"),
            (12.345, 7, "  12.35"),
            (9999.994, 7, "9999.99"),
            (9999.996, 7, "10000.0"),
            (123_456.7, 7, " 123457"),
            (12_345_678.0, 7, "1.2e+07"),
            (999.999, 6, "1000.0"),
            (1_234_567.0, 6, " 1e+06"),
        ];
        for (value, width, text) in cases {
            assert_eq!(fitted(value, width), text, "{value}");
        }
    }

    #[test]
    fn general_numbers_read_as_c_prints_them() {
        let cases = [
            (0.0, "0"),
            (1.0, "1"),
            (0.123_456_789, "0.123457"),
            (12.5, "12.5"),
            (99_999.95, "99999.9"),
            (999_999.6, "1e+06"),
            (1_234_567.0, "1.23457e+06"),
            (0.000_012_5, "1.25e-05"),
            (0.000_125, "0.000125"),
        ];
        for (value, text) in cases {
            assert_eq!(general(value), text, "{value}");
        }
    }
}
