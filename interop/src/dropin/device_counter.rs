//! The counters that `roce run --counters` prints when a rank has ended.

/// Returns a counter of a rank, which is written `[0]`.
pub(super) fn device_counter(text: &str, rank: &str, name: &str) -> Option<u64> {
    let mut lines = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    lines.find_map(|words| match words[..] {
        [of, _device, counter, value] if of == rank && counter == name => value.parse().ok(),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_is_that_of_its_rank() {
        let text = "[1] roce0 device_sent_bytes   8595934\n[0] roce0 device_sent_bytes  12\nrest";
        assert_eq!(device_counter(text, "[0]", "device_sent_bytes"), Some(12));
        assert_eq!(device_counter(text, "[1]", "device_sent_bytes"), Some(8_595_934));
        assert_eq!(device_counter(text, "[1]", "sent_pkts"), None);
    }
}
