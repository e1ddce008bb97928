//! The first line that a rank says, and whether two of them fit together.

use roce_ring::{Line, LineError, RingConfig};

use crate::config::GroupConfig;

/// The version of the protocol that is spoken here.
const VERSION: u64 = 2;

/// The first line of the rank that `config` describes.
pub(crate) fn of(config: &GroupConfig) -> Line {
    let RingConfig { lanes, slots, slot_bytes, small_message_max, split } = config.ring_config();
    let host = nix::unistd::gethostname().unwrap_or_default();
    let line = Line::new("HELLO")
        .with("version", VERSION)
        .with("rank", config.rank)
        .with("size", config.size)
        .with("host", host.to_string_lossy())
        .with("pid", std::process::id())
        .with("ring.lanes", lanes)
        .with("ring.slots", slots)
        .with("ring.slot_bytes", slot_bytes)
        .with("ring.small_limit", small_message_max)
        .with("ring.split", u8::from(split));
    config.job.iter().fold(line, |line, (key, value)| line.with(&format!("job.{key}"), value))
}

/// What is wrong with one rank's line by itself, in a ring of `size`.
pub(crate) fn judge(hello: &Line, size: u32) -> Result<Option<String>, LineError> {
    let (rank, version) = (hello.number("rank")?, hello.number("version")?);
    if version != VERSION {
        return Ok(Some(format!("rank {rank} speaks version={version}, this ring {VERSION}")));
    }
    let theirs = hello.number("size")?;
    if theirs != u64::from(size) {
        return Ok(Some(format!("rank {rank} has size={theirs}, but rank 0 has size={size}")));
    }
    let stray = rank >= u64::from(size);
    Ok(stray.then(|| format!("rank {rank} is no rank of {size}: ranks are 0 to {}", size - 1)))
}

/// What all ranks must agree on, and `hello` says otherwise than rank 0's line.
pub(crate) fn difference(hello: &Line, root: &Line) -> Option<String> {
    let compared = |key: &&str| key.starts_with("ring.") || key.starts_with("job.");
    let keys = |line: &'_ Line| -> Vec<String> {
        line.fields().map(|(key, _)| key).filter(compared).map(str::to_owned).collect()
    };
    let rank = hello.value("rank").unwrap_or("?");
    let mut all = keys(root);
    all.extend(keys(hello));
    all.into_iter().find_map(|key| {
        let say = |line: &Line| match line.value(&key) {
            Some(value) => format!("has {key}={value}"),
            None => format!("has no {key}"),
        };
        (hello.value(&key) != root.value(&key))
            .then(|| format!("rank {rank} {}, but rank 0 {}", say(hello), say(root)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hello(rank: u32, job: &[(&str, &str)]) -> Line {
        let job = job.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect();
        of(&GroupConfig { job, ..GroupConfig::new(rank, 3, "localhost:1") })
    }

    #[test]
    fn a_difference_names_rank_key_and_both_values() {
        let root = hello(0, &[("type", "float"), ("op", "sum")]);
        let same = hello(2, &[("op", "sum"), ("type", "float")]);
        assert_eq!(difference(&same, &root), None);
        let other = hello(2, &[("type", "double"), ("op", "sum")]);
        let said = difference(&other, &root).unwrap();
        assert_eq!(said, "rank 2 has job.type=double, but rank 0 has job.type=float");
        let less = hello(1, &[("type", "float")]);
        let said = difference(&less, &root).unwrap();
        assert_eq!(said, "rank 1 has no job.op, but rank 0 has job.op=sum");
        let said = difference(&root, &less).unwrap();
        assert_eq!(said, "rank 0 has job.op=sum, but rank 0 has no job.op");
    }

    #[test]
    fn a_rank_of_another_size_or_version_is_told_so() {
        assert_eq!(judge(&hello(2, &[]), 3), Ok(None));
        let said = judge(&hello(2, &[]), 4).unwrap().unwrap();
        assert_eq!(said, "rank 2 has size=3, but rank 0 has size=4");
        let said = judge(&hello(7, &[]), 3).unwrap().unwrap();
        assert_eq!(said, "rank 7 is no rank of 3: ranks are 0 to 2");
        for other in [VERSION - 1, VERSION + 1] {
            let other = Line::new("HELLO").with("version", other).with("rank", 1).with("size", 3);
            assert!(judge(&other, 3).unwrap().unwrap().contains("rank 1 speaks version="));
        }
        assert!(judge(&Line::new("HELLO"), 3).is_err());
    }
}
