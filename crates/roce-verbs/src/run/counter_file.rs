//! A file with the counters of a device of this process.
//!
//! ```text
//! # 00000000000000000003
//! sent_pkts 00000000000000000017
//! …
//! # 00000000000000000003
//! ```
//!
//! It is written in place by one call, so that it costs little and nothing is lost with the process. Its
//! first and last line number what was written: a reader that finds two numbers reads again.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use roce_io::process::Own;

use crate::process::fork::PerProcess;
use crate::run::numbered_file;
use crate::shard_set::MAX_SHARDS;

/// Digits of a number: a file never becomes shorter.
const DIGITS: usize = 20;

/// The file and what stands in it.
#[derive(Debug)]
pub(crate) struct CounterFile {
    file: Own<File>,
    lines: Vec<Line>,
    text: Vec<u8>,
    writes: u64,
}

#[derive(Debug)]
struct Line {
    name: &'static str,
    /// Counted before the device was opened the last time.
    before: u64,
    /// Counted since then, by each shard.
    counts: [u64; MAX_SHARDS],
    /// Where the digits begin.
    at: usize,
}

pub(crate) type SharedCounterFile = Arc<Mutex<CounterFile>>;

/// The files of this process, each used by one open device at most.
static FILES: PerProcess<Mutex<Vec<(PathBuf, SharedCounterFile)>>> = PerProcess::new();

/// Returns the file of this name for a device that was opened: the one that this process has and no
/// device uses, whose counters go on, or else a new one, if need be with a number behind its name.
pub(crate) fn open(path: &Path) -> io::Result<SharedCounterFile> {
    let mut files = FILES.get().lock().unwrap_or_else(PoisonError::into_inner);
    let free = |(known, file): &&(PathBuf, SharedCounterFile)| {
        known == path && Arc::strong_count(file) == 1 && lock(file).file.is_open()
    };
    if let Some((_, file)) = files.iter().find(free) {
        lock(file).go_on();
        return Ok(Arc::clone(file));
    }
    let file = CounterFile {
        file: numbered_file::create(path, 0o644)?.0,
        lines: Vec::new(),
        text: Vec::new(),
        writes: 0,
    };
    let file = Arc::new(Mutex::new(file));
    files.push((path.to_owned(), Arc::clone(&file)));
    Ok(file)
}

/// Adds counters of the same names.
pub(crate) fn add(all: &mut Vec<(&'static str, u64)>, more: &[(&'static str, u64)]) {
    for (name, count) in more {
        match all.iter_mut().find(|(known, _)| known == name) {
            Some((_, total)) => *total += count,
            None => all.push((name, *count)),
        }
    }
}

/// Writes the counters of a shard into a file, which has the sums over all shards. A device works without
/// it, so that an error is only logged.
pub(crate) fn write(file: &SharedCounterFile, shard: usize, counters: &[(&'static str, u64)]) {
    if let Err(error) = lock(file).write(shard, counters) {
        tracing::debug!(%error, "counters are not published");
    }
}

fn lock(file: &SharedCounterFile) -> std::sync::MutexGuard<'_, CounterFile> {
    file.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Line {
    fn total(&self) -> u64 {
        self.counts.iter().fold(self.before, |total, count| total.saturating_add(*count))
    }
}

impl CounterFile {
    fn go_on(&mut self) {
        for line in &mut self.lines {
            line.before = line.total();
            line.counts = [0; MAX_SHARDS];
        }
    }

    fn write(&mut self, shard: usize, counters: &[(&'static str, u64)]) -> io::Result<()> {
        let mut is_changed = false;
        for (place, (name, count)) in counters.iter().enumerate() {
            // Mostly the counters come in the order of before.
            let known = match self.lines.get(place) {
                Some(line) if line.name == *name => Some(place),
                _ => self.lines.iter().position(|line| line.name == *name),
            };
            let place = known.unwrap_or_else(|| {
                is_changed = true;
                self.lines.push(Line { name, before: 0, counts: [0; MAX_SHARDS], at: 0 });
                self.lines.len() - 1
            });
            let line = &mut self.lines[place];
            if line.counts[shard] != *count {
                is_changed = true;
                line.counts[shard] = *count;
                put(&mut self.text, line.at, line.total());
            }
        }
        if !is_changed {
            return Ok(());
        }
        self.writes += 1;
        if self.lines.last().is_some_and(|line| line.at == 0) {
            self.lay_out();
        }
        let last = self.text.len().saturating_sub(DIGITS + 1);
        for at in [2, last] {
            put(&mut self.text, at, self.writes);
        }
        if !self.file.is_open() {
            // The program has closed it, and may have a file of its own there.
            return Ok(());
        }
        numbered_file::write(&self.file, &self.text, 0)
    }

    /// Writes the text anew, with all lines.
    fn lay_out(&mut self) {
        let blank = [b'0'; DIGITS];
        self.text.clear();
        let mut add = |name: &str| {
            self.text.extend(name.as_bytes());
            self.text.push(b' ');
            let at = self.text.len();
            self.text.extend(blank);
            self.text.push(b'\n');
            at
        };
        add("#");
        for line in &mut self.lines {
            line.at = add(line.name);
        }
        add("#");
        for line in &self.lines {
            put(&mut self.text, line.at, line.total());
        }
    }
}

/// Puts a number into the text, if it has the digits there.
fn put(text: &mut [u8], at: usize, mut number: u64) {
    let Some(digits) = text.get_mut(at..at + DIGITS).filter(|_| at > 0) else { return };
    for digit in digits.iter_mut().rev() {
        *digit = b'0' + (number % 10) as u8;
        number /= 10;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    /// A folder, removed when dropped.
    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let name = format!("roce-counter-file-{name}-{}", std::process::id());
            let folder = Self(std::env::temp_dir().join(name));
            fs::create_dir_all(&folder.0).unwrap();
            folder
        }

        fn read(&self, name: &str) -> BTreeMap<String, u64> {
            let text = fs::read_to_string(self.0.join(name)).unwrap();
            let lines: Vec<_> = text.lines().map(|line| line.split_once(' ').unwrap()).collect();
            assert_eq!(lines.first(), lines.last(), "one number for one write");
            let counts = lines.iter().filter(|(name, _)| *name != "#");
            counts.map(|(name, count)| ((*name).to_owned(), count.parse().unwrap())).collect()
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn the_counters_of_a_device_that_is_opened_again_go_on() {
        let folder = Folder::new("again");
        for open in 1..=20 {
            let file = super::open(&folder.0.join("x.1")).unwrap();
            for count in [1, 4] {
                write(&file, 0, &[("a", count), ("b", 0)]);
                let expected = [("a".to_owned(), (open - 1) * 4 + count), ("b".to_owned(), 0)];
                assert_eq!(folder.read("x.1"), expected.into());
            }
        }
        assert_eq!(fs::read_dir(&folder.0).unwrap().count(), 1);
    }

    #[test]
    fn a_file_has_the_sums_over_the_shards() {
        let folder = Folder::new("shards");
        for open in 1..=2 {
            let file = super::open(&folder.0.join("x.1")).unwrap();
            for (shard, counts) in [(0, [1, 2]), (1, [10, 20]), (0, [3, 2])] {
                write(&file, shard, &[("a", counts[0]), ("b", counts[1])]);
            }
            let expected = [("a".to_owned(), 13 * open), ("b".to_owned(), 22 * open)];
            assert_eq!(folder.read("x.1"), expected.into());
        }
    }

    #[test]
    fn two_devices_of_one_name_have_a_file_each() {
        let folder = Folder::new("two");
        let path = folder.0.join("x.1");
        let (first, second) = (super::open(&path).unwrap(), super::open(&path).unwrap());
        write(&first, 0, &[("a", 1)]);
        write(&second, 0, &[("a", 2)]);
        assert_eq!(folder.read("x.1")["a"] + folder.read("x.1.1")["a"], 3);
    }

    #[test]
    fn a_counter_that_appears_later_gets_a_line_and_shifts_no_other() {
        let folder = Folder::new("later");
        let file = super::open(&folder.0.join("x.1")).unwrap();
        write(&file, 0, &[("a", 1), ("c", u64::MAX)]);
        write(&file, 0, &[("a", 1), ("b", 7), ("c", u64::MAX)]);
        let expected = [("a", 1), ("b", 7), ("c", u64::MAX)];
        assert_eq!(
            folder.read("x.1"),
            expected.map(|(name, count)| (name.to_owned(), count)).into()
        );
    }

    #[test]
    fn a_file_or_link_that_is_there_before_is_not_written_to() {
        let folder = Folder::new("link");
        let target = folder.0.join("target");
        fs::write(&target, "precious").unwrap();
        symlink(&target, folder.0.join("x.1")).unwrap();
        symlink(folder.0.join("nothing"), folder.0.join("x.1.1")).unwrap();
        write(&super::open(&folder.0.join("x.1")).unwrap(), 0, &[("a", 1)]);
        assert_eq!(fs::read_to_string(&target).unwrap(), "precious");
        assert!(!folder.0.join("nothing").exists());
        assert_eq!(folder.read("x.1.2")["a"], 1);
    }
}
