//! Payloads as text.

use crate::NameError;

/// Most bytes of a payload: four times the largest path MTU.
pub const MAX_PAYLOAD_LEN: usize = 16384;

/// Returns a payload: of so many bytes that count up from 0, or the bytes of a hexadecimal text such as
/// `0xdeadbeef` or `de:ad:be:ef`.
///
/// ```
/// use roce_generator::parse_payload;
/// assert_eq!(parse_payload("4"), Ok(vec![0, 1, 2, 3]));
/// assert_eq!(parse_payload("0xdead"), Ok(vec![0xde, 0xad]));
/// ```
///
/// # Errors
/// [`NameError::Payload`], also for more than [`MAX_PAYLOAD_LEN`] bytes.
pub fn parse_payload(text: &str) -> Result<Vec<u8>, NameError> {
    let wrong = || NameError::Payload(text.chars().take(40).collect());
    if let Ok(len) = text.parse::<usize>() {
        let is_plain = text.bytes().all(|it| it.is_ascii_digit()) && len <= MAX_PAYLOAD_LEN;
        return is_plain.then(|| (0..len).map(|at| at as u8).collect()).ok_or_else(wrong);
    }
    let digits = match text.strip_prefix("0x") {
        Some(digits) => digits.to_owned(),
        None if text.contains(':') => {
            let pairs = text.split(':');
            let is_pair = |pair: &str| pair.len() == 2;
            if !pairs.clone().all(is_pair) {
                return Err(wrong());
            }
            pairs.collect()
        }
        None => return Err(wrong()),
    };
    let is_hex = !digits.is_empty() && digits.bytes().all(|it| it.is_ascii_hexdigit());
    if !is_hex || !digits.len().is_multiple_of(2) || digits.len() / 2 > MAX_PAYLOAD_LEN {
        return Err(wrong());
    }
    let pairs = (0..digits.len()).step_by(2);
    pairs.map(|at| u8::from_str_radix(&digits[at..at + 2], 16).map_err(|_| wrong())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payload_is_a_length_or_bytes_and_bounded() {
        assert_eq!(parse_payload("0"), Ok(vec![]));
        assert_eq!(parse_payload("300").unwrap()[255..258], [255, 0, 1]);
        assert_eq!(parse_payload("de:ad"), Ok(vec![0xde, 0xad]));
        assert_eq!(parse_payload(&MAX_PAYLOAD_LEN.to_string()).unwrap().len(), MAX_PAYLOAD_LEN);
        let long = format!("0x{}", "00".repeat(MAX_PAYLOAD_LEN + 1));
        for text in ["", "-1", "+4", "16385", "0x", "0xabc", "0xzz", "d:ad", "dead", "é:éé", &long]
        {
            assert!(parse_payload(text).is_err(), "{text}");
        }
    }
}
