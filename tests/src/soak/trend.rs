//! Whether what a process holds grows.

use super::resources::Resources;

/// What a process has held over time, one sample a second.
#[derive(Debug, Default)]
pub(super) struct Trend {
    samples: Vec<Resources>,
}

impl Trend {
    pub(super) fn add(&mut self, sample: Resources) {
        self.samples.push(sample);
    }

    pub(super) fn latest(&self) -> Resources {
        self.samples.last().copied().unwrap_or_default()
    }

    /// Compares the last third of the samples with the third before it; the first third is when a
    /// process allocates what it will need. Returns what has grown.
    pub(super) fn growth(&self) -> Vec<String> {
        let third = self.samples.len() / 3;
        let (before, after) = (&self.samples[third..2 * third], &self.samples[2 * third..]);
        let mut grown = Vec::new();
        let mut compare = |name, of: fn(&Resources) -> u64, slack| {
            // The most, as a count is lower while a peer is dead.
            let most = |samples: &[Resources]| samples.iter().map(of).max().unwrap_or(0);
            let (was, is) = (most(before), most(after));
            if is > was + slack {
                grown.push(format!("{name}: {was}, later {is}"));
            }
        };
        compare("descriptors", |it| it.descriptors, 0);
        compare("threads", |it| it.threads, 0);
        compare("memory maps", |it| it.maps, MAPS_SLACK);
        compare("KiB resident", |it| it.resident, RESIDENT_SLACK);
        grown
    }
}

/// The allocator splits and joins its maps.
const MAPS_SLACK: u64 = 4;
/// KiB that the allocator may keep; a leak of 2 KiB each time a peer is killed shows in an hour.
const RESIDENT_SLACK: u64 = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    fn trend(sample: impl Fn(u64) -> Resources) -> Trend {
        Trend { samples: (0..90).map(sample).collect() }
    }

    const STEADY: Resources = Resources { resident: 9000, descriptors: 20, threads: 6, maps: 90 };

    #[test]
    fn what_comes_and_goes_and_what_is_allocated_at_first_is_no_growth() {
        let steady = trend(|i| Resources {
            resident: if i < 30 { 5000 + i * 100 } else { 9000 + i % 7 },
            descriptors: 20 - i % 4,
            maps: 90 + i % 3,
            ..STEADY
        });
        assert_eq!(steady.growth(), [""; 0]);
    }

    #[test]
    fn each_count_that_grows_is_named() {
        let one_in_ten_seconds = |i: u64| i / 10;
        for (name, grow) in [
            ("descriptors", (|it, n| it.descriptors += n) as fn(&mut Resources, u64)),
            ("threads", |it, n| it.threads += n),
            ("memory maps", |it, n| it.maps += 2 * n),
            ("KiB resident", |it, n| it.resident += 400 * n),
        ] {
            let grows = trend(|i| {
                let mut sample = STEADY;
                grow(&mut sample, one_in_ten_seconds(i));
                sample
            });
            let grown = grows.growth();
            assert!(matches!(&grown[..], [it] if it.starts_with(name)), "{grown:?}");
        }
    }
}
