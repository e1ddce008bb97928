//! Growth of the resources of a process.

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
    /// process allocates what it will need. Returns what has grown in a process with this many
    /// pairs.
    pub(super) fn growth(&self, pairs: u64) -> Vec<String> {
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
        // The next peer of a pair may call before the connection to the last one has failed.
        compare("descriptors", |it| it.descriptors, pairs);
        compare("threads", |it| it.threads, 0);
        compare("memory maps", |it| it.maps, MAPS_SLACK);
        compare("KiB resident", |it| it.resident, RESIDENT_SLACK);
        grown
    }
}

/// The kernel joins neighbouring maps, and regions that are registered for a moment split them.
const MAPS_SLACK: u64 = 16;
/// KiB that the allocator may keep. In half an hour a survivor of four pairs sees 720 kills, 240 of
/// them in a third: a leak of 5 KiB a kill shows.
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
            descriptors: 24 - i % 9,
            maps: 90 + i % 11,
            ..STEADY
        });
        assert_eq!(steady.growth(4), [""; 0]);
    }

    #[test]
    fn each_count_that_grows_is_named() {
        // Four pairs lose a peer each ten seconds.
        let kills = |i: u64| 4 * (i / 10);
        for (name, grow) in [
            ("descriptors", (|it, n| it.descriptors += n) as fn(&mut Resources, u64)),
            ("threads", |it, n| it.threads += n),
            ("memory maps", |it, n| it.maps += 2 * n),
            ("KiB resident", |it, n| it.resident += 100 * n),
        ] {
            let grows = trend(|i| {
                let mut sample = STEADY;
                grow(&mut sample, kills(i));
                sample
            });
            let grown = grows.growth(4);
            assert!(matches!(&grown[..], [it] if it.starts_with(name)), "{grown:?}");
        }
    }
}
