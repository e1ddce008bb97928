//! Counters of a port.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use nix::fcntl::OFlag;
use roce_transport::Counters;

use crate::tree::Tree;

/// The counters of a device, summed over the processes that use it.
///
/// Every process publishes its own in files `DEVICE.PROCESS`, `DEVICE.PROCESS.1` and so on
/// ([`RunPlan::counter_file`](roce_verbs::RunPlan::counter_file)); those of a process that has ended still
/// count.
///
/// ```no_run
/// use std::path::Path;
/// use roce_view::CounterTotals;
///
/// let totals = CounterTotals::of_device(Path::new("/tmp/counters"), "roce0")?;
/// for (name, count) in totals.iter() {
///     println!("{name} {count}");
/// }
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CounterTotals(BTreeMap<String, u64>);

impl CounterTotals {
    /// Adds up what the processes have published in a folder. What is no file of counters counts as
    /// nothing, since programs may make what they like there: links, pipes, devices, files of
    /// another user than the folder's, files of more than 64 KiB, and files beyond 65 536. Nothing
    /// of that is waited for.
    ///
    /// # Errors
    /// The error of the file system if the folder cannot be listed.
    pub fn of_device(folder: &Path, device: &str) -> io::Result<Self> {
        let mut totals = Self::default();
        let user = fs::metadata(folder)?.uid();
        for entry in fs::read_dir(folder)?.take(MAX_FILES) {
            let name = entry?.file_name();
            let is_of_device = name.to_str().is_some_and(|name| is_of_device(name, device));
            if is_of_device && let Some(text) = read_counters(&folder.join(&name), user) {
                totals.add(&text);
            }
        }
        Ok(totals)
    }

    fn add(&mut self, text: &str) {
        for line in text.lines() {
            let Some((name, count)) = line.split_once(' ') else { continue };
            let is_name = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
            if let Some(count) = count.parse::<u64>().ok().filter(|_| is_name && !name.is_empty()) {
                let total = self.0.entry(name.to_owned()).or_default();
                *total = total.saturating_add(count);
            }
        }
    }

    /// Returns names and counts, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, u64)> {
        self.0.iter().map(|(name, count)| (name.as_str(), *count))
    }

    fn get(&self, name: &str) -> u64 {
        self.0.get(name).copied().unwrap_or(0)
    }

    /// Returns the files of a device with their counts; paths start without a slash.
    fn files<'a>(&'a self, device: &str) -> impl Iterator<Item = (PathBuf, u64)> + use<'a> {
        let port = Path::new("sys/class/infiniband").join(device).join("ports/1");
        let (general, own) = (port.join("counters"), port.join("hw_counters"));
        let general = self.general().map(move |(name, count)| (general.join(name), count));
        general.chain(self.iter().map(move |(name, count)| (own.join(name), count)))
    }

    /// Returns the counters that every InfiniBand device has, as far as they are counted here. Data
    /// are in units of four bytes, and include headers.
    fn general(&self) -> impl Iterator<Item = (&'static str, u64)> + use<> {
        let (sent, received) = (self.get("sent_pkts"), self.get("rcvd_pkts"));
        let words = |name| self.get(name) / 4;
        [
            ("port_xmit_data", words("device_sent_bytes")),
            ("port_rcv_data", words("device_rcvd_bytes")),
            ("port_xmit_packets", sent),
            ("port_rcv_packets", received),
            ("unicast_xmit_packets", sent),
            ("unicast_rcv_packets", received),
        ]
        .into_iter()
    }

    /// Writes the files of a device below the folder of a tree. A reader sees the old or the new
    /// number: counts only grow, and so does their text.
    ///
    /// # Errors
    /// The first error of the file system.
    pub fn write_below(&self, root: &Path, device: &str) -> io::Result<()> {
        for (path, count) in self.files(device) {
            // Neither truncated nor replaced: an open file stays the same.
            let path = root.join(path);
            let opened = OpenOptions::new().write(true).create(true).truncate(false).open(path);
            opened?.write_all(format!("{count}\n").as_bytes())?;
        }
        Ok(())
    }

    /// Adds the files of a device that has counted nothing yet.
    pub(crate) fn add_zeros(tree: &mut Tree, device: &str) {
        let names = Counters::default().iter().map(|(name, _)| (name.to_owned(), 0));
        for (path, count) in Self(names.collect()).files(device) {
            tree.line(path, count);
        }
    }
}

/// Most files of a folder that are looked at.
const MAX_FILES: usize = 1 << 16;
/// Most bytes of a file with counters.
const MAX_LEN: u64 = 1 << 16;
/// Most times that a file is read which is written to meanwhile.
const MAX_READS: u32 = 8;

/// Returns true for `DEVICE.PROCESS` and `DEVICE.PROCESS.NUMBER`.
fn is_of_device(name: &str, device: &str) -> bool {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let rest = name.strip_prefix(device).and_then(|rest| rest.strip_prefix('.'));
    rest.is_some_and(|rest| match rest.split_once('.') {
        Some((process, number)) => is_number(process) && is_number(number),
        None => is_number(rest),
    })
}

/// Reads a file of counters; `None` if it is none.
fn read_counters(path: &Path, user: u32) -> Option<String> {
    let flags = (OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_NOCTTY).bits();
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path).ok()?;
    let metadata = file.metadata().ok()?;
    if !metadata.is_file() || metadata.uid() != user || metadata.len() > MAX_LEN {
        return None;
    }
    let mut text = String::new();
    for _ in 0..MAX_READS {
        text.clear();
        (&file).seek(SeekFrom::Start(0)).ok()?;
        (&file).take(MAX_LEN).read_to_string(&mut text).ok()?;
        // The first and the last line say which write they are of.
        let is_whole = text.lines().next() == text.lines().next_back();
        if is_whole || !text.starts_with('#') {
            break;
        }
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::process::Command;

    use super::*;

    /// A folder, removed when dropped.
    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let name = format!("roce-counters-{name}-{}", std::process::id());
            let folder = Self(std::env::temp_dir().join(name));
            fs::create_dir_all(&folder.0).unwrap();
            folder
        }

        fn totals(&self) -> Vec<(String, u64)> {
            let totals = CounterTotals::of_device(&self.0, "roce0").unwrap();
            totals.iter().map(|(name, count)| (name.to_owned(), count)).collect()
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn what_is_no_file_of_counters_is_neither_read_nor_waited_for() {
        let folder = Folder::new("hostile");
        let place = |name: &str| folder.0.join(name);
        fs::write(place("roce0.1"), "# 1\nsent_pkts 2\n# 1\n").unwrap();
        fs::write(place("target"), "sent_pkts 100\n").unwrap();
        symlink(place("target"), place("roce0.2")).unwrap();
        symlink("/dev/zero", place("roce0.3")).unwrap();
        assert!(Command::new("mkfifo").arg(place("roce0.4")).status().unwrap().success());
        fs::create_dir(place("roce0.5")).unwrap();
        let sparse = fs::File::create(place("roce0.6")).unwrap();
        sparse.set_len(1 << 40).unwrap();
        fs::write(place("roce0.7.x"), "sent_pkts 100\n").unwrap();
        fs::write(place("roce0..7"), "sent_pkts 100\n").unwrap();
        fs::write(place("roce0.7.8"), "sent_pkts 3\n").unwrap();
        if std::os::unix::fs::chown(place("target"), Some(65534), None).is_ok() {
            fs::rename(place("target"), place("roce0.9")).unwrap();
        }
        assert_eq!(folder.totals(), [("sent_pkts".to_owned(), 5)]);
    }

    #[test]
    fn the_counts_of_all_processes_are_added_up() {
        let folder = std::env::temp_dir().join(format!("roce-counters-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        for (name, text) in [
            ("roce0.17", "sent_pkts 2\nrcvd_pkts 3\n"),
            ("roce0.18", "sent_pkts 5\n"),
            ("roce0.18.new", "sent_pkts 100\n"),
            ("roce1.17", "sent_pkts 1000\n"),
        ] {
            fs::write(folder.join(name), text).unwrap();
        }
        let totals = CounterTotals::of_device(&folder, "roce0").unwrap();
        assert_eq!(totals.iter().collect::<Vec<_>>(), [("rcvd_pkts", 3), ("sent_pkts", 7)]);
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn text_that_is_no_counter_is_ignored() {
        let mut totals = CounterTotals::default();
        totals.add("a 1\n\nb\n ../x 2\nc -1\nd 1 2\n 3\na 18446744073709551615\n");
        assert_eq!(totals.iter().collect::<Vec<_>>(), [("a", u64::MAX)]);
    }

    #[test]
    fn a_count_is_written_over_the_one_before() {
        let root = std::env::temp_dir().join(format!("roce-view-{}", std::process::id()));
        let port = root.join("sys/class/infiniband/x.1/ports/1");
        for folder in ["counters", "hw_counters"] {
            fs::create_dir_all(port.join(folder)).unwrap();
        }
        for (sent, bytes) in [(9, 40), (10, 4000)] {
            let mut totals = CounterTotals::default();
            totals.add(&format!("sent_pkts {sent}\ndevice_sent_bytes {bytes}\n"));
            totals.write_below(&root, "x.1").unwrap();
            let read = |name: &str| fs::read_to_string(port.join(name)).unwrap();
            assert_eq!(read("counters/port_xmit_packets"), format!("{sent}\n"));
            assert_eq!(read("counters/port_xmit_data"), format!("{}\n", bytes / 4));
            assert_eq!(read("hw_counters/sent_pkts"), format!("{sent}\n"));
        }
        fs::remove_dir_all(root).unwrap();
    }
}
