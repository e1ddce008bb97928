//! Where, when and how: what makes figures worth keeping.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

/// Where, when and how something was measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct About {
    /// UTC.
    pub date: String,
    /// What to type to repeat it.
    pub command: String,
    /// Which code.
    pub commit: Commit,
    /// Which machine.
    pub machine: Machine,
    /// How often everything was measured.
    pub rounds: u32,
    /// How long a run over time takes.
    pub seconds: f64,
    /// Whether it was the short form.
    pub quick: bool,
    /// Whether ours asked for the real-time class.
    pub realtime: bool,
    /// Nanoseconds of a cache line's round trip at which the two processors count as far from each
    /// other; reports without probes have none.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub cache_threshold: Option<f64>,
}

/// A state of the code.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Commit {
    /// As git names it; empty where there is no git.
    pub id: String,
    /// Whether files were changed since.
    pub changed: bool,
}

/// A machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// As it calls itself.
    pub processor: String,
    /// How many processors programs may use.
    pub cores: usize,
    /// Main memory.
    pub memory_bytes: u64,
    /// Name and release.
    pub kernel: String,
}

impl Machine {
    /// The one this runs on; what the system does not tell is said so.
    pub fn this() -> Self {
        let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        let kibibytes = value_of(&meminfo, "MemTotal")
            .and_then(|text| text.trim_end_matches("kB").trim().parse::<u64>().ok());
        Self {
            processor: value_of(&cpuinfo, "model name").unwrap_or("unknown").to_owned(),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            memory_bytes: kibibytes.unwrap_or(0) * 1024,
            kernel: format!("Linux {}", release.trim()),
        }
    }
}

impl Commit {
    /// The state of the checkout that holds `folder`.
    pub fn of(folder: &Path) -> Self {
        let git = |arguments: &[&str]| {
            let output = Command::new("git").arg("-C").arg(folder).args(arguments).output().ok()?;
            let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
            output.status.success().then_some(text)
        };
        // What earlier runs left there changes no code.
        let status = ["status", "--porcelain", "--untracked-files=no", ":!bench/results"];
        Self {
            id: git(&["rev-parse", "HEAD"]).unwrap_or_default(),
            changed: git(&status).is_some_and(|text| !text.is_empty()),
        }
    }

    /// The first twelve digits, and whether something was changed since.
    pub fn short(&self) -> String {
        let id = self.id.get(..12).unwrap_or(&self.id);
        match (id, self.changed) {
            ("", _) => "no commit".to_owned(),
            (id, true) => format!("{id}, changed"),
            (id, false) => id.to_owned(),
        }
    }
}

/// `name : value` or `name: value`, as files below `/proc` have it.
fn value_of<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == name).then_some(value.trim())
    })
}

/// Now, as `2026-11-21 16:20 UTC`.
pub fn date_and_time() -> String {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    in_calendar(since.as_secs())
}

/// Days are counted from March, so that a leap day is the last of its year.
fn in_calendar(seconds: u64) -> String {
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    // 0000-03-01 lies 719 468 days before 1970; a cycle of 400 years has 146 097.
    let day = days + 719_468;
    let (cycle, day) = (day / 146_097, day % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (month, next) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    let year = 400 * cycle + year + next;
    format!("{year:04}-{month:02}-{day:02} {:02}:{:02} UTC", second / 3600, second / 60 % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        let known = [
            (0, "1970-01-01 00:00 UTC"),
            (951_782_400, "2000-02-29 00:00 UTC"),
            (951_868_799, "2000-02-29 23:59 UTC"),
            (951_868_800, "2000-03-01 00:00 UTC"),
            (1_795_275_414, "2026-11-21 15:36 UTC"),
            (4_102_444_800, "2100-01-01 00:00 UTC"),
            (4_107_542_400, "2100-03-01 00:00 UTC"),
        ];
        for (seconds, date) in known {
            assert_eq!(in_calendar(seconds), date);
        }
    }

    #[test]
    fn values_are_found_by_their_whole_name() {
        let text = "model\t\t: 143\nmodel name\t: Example CPU @ 2: fast\n";
        assert_eq!(value_of(text, "model name"), Some("Example CPU @ 2: fast"));
        assert_eq!(value_of(text, "flags"), None);
    }

    #[test]
    fn a_commit_is_short_and_says_what_was_changed() {
        let commit = |id: &str, changed| Commit { id: id.to_owned(), changed }.short();
        assert_eq!(commit("0123456789abcdef", false), "0123456789ab");
        assert_eq!(commit("0123456789abcdef", true), "0123456789ab, changed");
        assert_eq!(commit("", false), "no commit");
    }
}
