//! Values as filters and scripts write them.

/// Reads `18` or `0x12`.
pub(crate) fn number(word: &str) -> Option<u64> {
    match word.strip_prefix("0x").or_else(|| word.strip_prefix("0X")) {
        Some(digits) if !digits.starts_with('+') => u64::from_str_radix(digits, 16).ok(),
        None if !word.starts_with('+') => word.parse().ok(),
        _ => None,
    }
}

/// Reads `de:ad:be:ef`, `de-ad` or `0xdead`.
pub(crate) fn bytes(word: &str) -> Option<Vec<u8>> {
    let digits: String = word
        .strip_prefix("0x")
        .unwrap_or(word)
        .chars()
        .filter(|letter| !":-.".contains(*letter))
        .collect();
    if digits.is_empty() || !digits.len().is_multiple_of(2) || !digits.is_ascii() {
        return None;
    }
    let pairs = digits.as_bytes().chunks(2);
    let byte = |pair: &[u8]| {
        let high = char::from(pair[0]).to_digit(16)?;
        let low = char::from(pair[1]).to_digit(16)?;
        Some((high << 4 | low) as u8)
    };
    pairs.map(byte).collect()
}
