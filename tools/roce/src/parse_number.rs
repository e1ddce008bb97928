//! Numbers in the format of the RDMA tools: decimal or hexadecimal, with a suffix K, M or G.

use roce_switch::EcnMarking;

/// Parses `4096`, `0x1000`, `4K`, `1m`; K, M, G are powers of 1024.
pub(crate) fn parse(text: &str) -> Result<u64, String> {
    let trimmed = text.trim();
    let (digits, shift) = match trimmed.char_indices().next_back() {
        Some((at, 'k' | 'K')) => (&trimmed[..at], 10),
        Some((at, 'm' | 'M')) => (&trimmed[..at], 20),
        Some((at, 'g' | 'G')) => (&trimmed[..at], 30),
        _ => (trimmed, 0),
    };
    let number = match digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X")) {
        Some(hex) => u64::from_str_radix(hex, 16),
        None => digits.parse(),
    };
    let number =
        number.map_err(|_| format!("{text:?} is no number; write for example 4096 or 4K"))?;
    number.checked_mul(1 << shift).ok_or_else(|| "number too large".to_owned())
}

/// Parses a 32-bit number, as [`parse`].
pub(crate) fn parse_u32(text: &str) -> Result<u32, String> {
    u32::try_from(parse(text)?).map_err(|_| "number too large".to_owned())
}

/// Parses the length of a message in bytes: at most 2 GiB.
pub(crate) fn parse_message_len(text: &str) -> Result<u32, String> {
    let len = parse_u32(text)?;
    if len <= 1 << 31 { Ok(len) } else { Err("a message has at most 2G".to_owned()) }
}

/// Parses a probability: 0 ..= 1, or a percentage such as `1%`.
pub(crate) fn parse_probability(text: &str) -> Result<f64, String> {
    let (digits, scale) = match text.strip_suffix('%') {
        Some(digits) => (digits, 0.01),
        None => (text, 1.0),
    };
    match digits.parse::<f64>().map(|number| number * scale) {
        Ok(probability) if (0.0..=1.0).contains(&probability) => Ok(probability),
        _ => Err("use a probability from 0 to 1 (or 0% to 100%)".to_owned()),
    }
}

/// Parses the factor of a queue's share of a buffer: more than 0, at most 1024.
pub(crate) fn parse_factor(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(factor) if factor > 0.0 && factor <= 1024.0 => Ok(factor),
        _ => Err(format!("{text:?} is not a factor between 0 and 1024, such as 0.125")),
    }
}

/// Reads `KMIN:KMAX:PMAX`; commas may stand for the colons.
pub(crate) fn parse_marking(text: &str) -> Result<EcnMarking, String> {
    let parts: Vec<_> = text.split([',', ':']).collect();
    let [kmin, kmax, pmax] = parts[..] else {
        return Err(format!("{text:?} is not KMIN:KMAX:PMAX; write for example 20K:80K:0.2"));
    };
    let (kmin, kmax) = (parse(kmin)?, parse(kmax)?);
    if kmin > kmax {
        return Err("the queue from which packets are marked exceeds the other".to_owned());
    }
    Ok(EcnMarking { kmin, kmax, pmax: parse_probability(pmax)? })
}

#[cfg(test)]
mod tests {
    use super::{parse, parse_probability};

    #[test]
    fn suffixes_are_powers_of_1024() {
        let pairs = [("0", 0), ("4096", 4096), ("0x10", 16), ("4K", 4096), ("8m", 8 << 20)];
        for (text, number) in pairs {
            assert_eq!(parse(text), Ok(number), "{text}");
        }
    }

    #[test]
    fn what_is_no_number_or_too_large_is_refused() {
        for text in ["", "K", "-1", "4x", "99999999999G"] {
            let why = parse(text).unwrap_err();
            assert!(
                why.contains("write for example") || why.contains("too large"),
                "{text}: {why}"
            );
        }
    }

    #[test]
    fn a_probability_may_be_a_percentage_and_never_leaves_its_range() {
        assert_eq!(parse_probability("0.25"), Ok(0.25));
        assert_eq!(parse_probability("50%"), Ok(0.5));
        for text in ["1.1", "-0.1", "101%", "NaN", "often"] {
            assert!(parse_probability(text).is_err(), "{text}");
        }
    }
}
