//! The first message of a rank, and the comparison of two of them.

use roce_ring::RingConfig;

use super::progress;
use crate::message::{Message, MessageError};

use crate::config::GroupConfig;

/// The protocol version.
const VERSION: u64 = 2;

/// Returns the first message of the rank with this configuration.
pub(crate) fn message(config: &GroupConfig) -> Message {
    let RingConfig { lanes, slots, slot_bytes, small_message_max, split } = config.ring_config();
    let host = nix::unistd::gethostname().unwrap_or_default();
    let message = Message::new("HELLO")
        .with("version", VERSION)
        .with("rank", config.rank)
        .with("size", config.size)
        .with("host", host.to_string_lossy())
        .with("pid", std::process::id())
        .with("ring.lanes", lanes)
        .with("ring.slots", slots)
        .with("ring.slot_bytes", slot_bytes)
        .with("ring.small_limit", small_message_max)
        .with("ring.split", u8::from(split))
        .with(progress::KEY, 1);
    config
        .job
        .iter()
        .fold(message, |message, (key, value)| message.with(&format!("job.{key}"), value))
}

/// Returns why a rank's first message does not fit a ring of `size`, if it does not.
pub(crate) fn validate(hello: &Message, size: u32) -> Result<Option<String>, MessageError> {
    let (rank, version) = (hello.number("rank")?, hello.number("version")?);
    if version != VERSION {
        return Ok(Some(format!("rank {rank} speaks version={version}, this ring {VERSION}")));
    }
    let theirs = hello.number("size")?;
    if theirs != u64::from(size) {
        return Ok(Some(format!("rank {rank} has size={theirs}, but rank 0 has size={size}")));
    }
    let stray = rank >= u64::from(size);
    Ok(stray.then(|| format!("rank {rank} is not a rank of {size}: ranks are 0 to {}", size - 1)))
}

/// Returns the first difference between a rank's message and rank 0's in the shared keys.
pub(crate) fn difference(hello: &Message, root: &Message) -> Option<String> {
    let compared = |key: &&str| key.starts_with("ring.") || key.starts_with("job.");
    let keys = |message: &'_ Message| -> Vec<String> {
        message.fields().map(|(key, _)| key).filter(compared).map(str::to_owned).collect()
    };
    let rank = hello.value("rank").unwrap_or("?");
    let mut all = keys(root);
    all.extend(keys(hello));
    all.into_iter().find_map(|key| {
        let describe = |message: &Message| match message.value(&key) {
            Some(value) => format!("has {key}={value}"),
            None => format!("has no {key}"),
        };
        (hello.value(&key) != root.value(&key))
            .then(|| format!("rank {rank} {}, but rank 0 {}", describe(hello), describe(root)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hello(rank: u32, job: &[(&str, &str)]) -> Message {
        let job = job.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect();
        message(&GroupConfig { job, ..GroupConfig::new(rank, 3, "localhost:1") })
    }

    #[test]
    fn a_difference_names_rank_key_and_both_values() {
        let root = hello(0, &[("type", "float"), ("op", "sum")]);
        let same = hello(2, &[("op", "sum"), ("type", "float")]);
        assert_eq!(difference(&same, &root), None);
        let other = hello(2, &[("type", "double"), ("op", "sum")]);
        let reason = difference(&other, &root).unwrap();
        assert_eq!(reason, "rank 2 has job.type=double, but rank 0 has job.type=float");
        let less = hello(1, &[("type", "float")]);
        let reason = difference(&less, &root).unwrap();
        assert_eq!(reason, "rank 1 has no job.op, but rank 0 has job.op=sum");
        let reason = difference(&root, &less).unwrap();
        assert_eq!(reason, "rank 0 has job.op=sum, but rank 0 has no job.op");
    }

    #[test]
    fn a_rank_of_another_size_or_version_is_refused_with_the_reason() {
        assert_eq!(validate(&hello(2, &[]), 3), Ok(None));
        let reason = validate(&hello(2, &[]), 4).unwrap().unwrap();
        assert_eq!(reason, "rank 2 has size=3, but rank 0 has size=4");
        let reason = validate(&hello(7, &[]), 3).unwrap().unwrap();
        assert_eq!(reason, "rank 7 is not a rank of 3: ranks are 0 to 2");
        for other in [VERSION - 1, VERSION + 1] {
            let other =
                Message::new("HELLO").with("version", other).with("rank", 1).with("size", 3);
            assert!(validate(&other, 3).unwrap().unwrap().contains("rank 1 speaks version="));
        }
        assert!(validate(&Message::new("HELLO"), 3).is_err());
    }
}
