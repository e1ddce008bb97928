//! Archive of an initramfs in the cpio format "newc".

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::Path;

/// An archive under construction. Missing parent directories are added.
///
/// The archive is not compressed: the emulated processor would need a second to unpack it.
#[derive(Debug, Default)]
pub(crate) struct Archive {
    bytes: Vec<u8>,
    directories: BTreeSet<String>,
    entries: u32,
}

impl Archive {
    /// Adds the file at `source` as `path` (absolute) with permission bits `mode`.
    pub(crate) fn file_from(&mut self, path: &str, source: &Path, mode: u32) -> io::Result<()> {
        self.file(path, &fs::read(source)?, mode);
        Ok(())
    }

    /// Adds a regular file holding `content`.
    pub(crate) fn file(&mut self, path: &str, content: &[u8], mode: u32) {
        self.parents(path);
        self.entry(path, 0o100_000 | mode, content);
    }

    /// Adds an empty directory.
    pub(crate) fn directory(&mut self, path: &str) {
        self.parents(path);
        if self.directories.insert(path.to_owned()) {
            self.entry(path, 0o040_755, &[]);
        }
    }

    /// Adds `/dev/console`, which the kernel opens as standard output of init.
    pub(crate) fn console(&mut self) {
        self.directory("/dev");
        self.header("/dev/console", 0o020_600, 0, (5, 1));
    }

    /// Ends the archive and returns it.
    pub(crate) fn finish(mut self) -> Vec<u8> {
        self.entry("/TRAILER!!!", 0, &[]);
        self.bytes
    }

    fn parents(&mut self, path: &str) {
        for (at, _) in path.match_indices('/').skip(1) {
            let parent = &path[..at];
            if self.directories.insert(parent.to_owned()) {
                self.entry(parent, 0o040_755, &[]);
            }
        }
    }

    fn entry(&mut self, path: &str, mode: u32, content: &[u8]) {
        self.header(path, mode, content.len(), (0, 0));
        self.bytes.extend_from_slice(content);
        self.pad();
    }

    fn header(&mut self, path: &str, mode: u32, len: usize, device: (u32, u32)) {
        self.entries += 1;
        let name = path.trim_start_matches('/');
        let len = u32::try_from(len).expect("a file of the guest is smaller than 4 GiB");
        let name_len = u32::try_from(name.len() + 1).expect("a path is short");
        let fields = [
            self.entries,
            mode,
            0,
            0,
            1,
            0,
            len,
            0,
            0,
            device.0,
            device.1,
            name_len,
            0, /* no checksum */
        ];
        self.bytes.extend_from_slice(b"070701");
        for field in fields {
            self.bytes.extend_from_slice(format!("{field:08x}").as_bytes());
        }
        self.bytes.extend_from_slice(name.as_bytes());
        self.bytes.push(0);
        self.pad();
    }

    fn pad(&mut self) {
        while !self.bytes.len().is_multiple_of(4) {
            self.bytes.push(0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_header_and_every_content_starts_at_a_multiple_of_four() {
        let mut archive = Archive::default();
        archive.file("/a/bc", b"12345", 0o644);
        archive.file("/a/empty", b"", 0o644);
        let bytes = archive.finish();
        let mut at = 0;
        let mut names = Vec::new();
        loop {
            assert_eq!(&bytes[at..at + 6], b"070701", "header {} at {at}", names.len());
            let field = |index: usize| {
                let from = at + 6 + 8 * index;
                let digits = std::str::from_utf8(&bytes[from..from + 8]).unwrap();
                usize::from_str_radix(digits, 16).unwrap()
            };
            let (len, name_len) = (field(6), field(11));
            names.push(
                String::from_utf8(bytes[at + 110..at + 110 + name_len - 1].to_vec()).unwrap(),
            );
            let content = (at + 110 + name_len).next_multiple_of(4);
            at = (content + len).next_multiple_of(4);
            if names.last().unwrap() == "TRAILER!!!" {
                break;
            }
        }
        assert_eq!(at, bytes.len());
        assert_eq!(names, ["a", "a/bc", "a/empty", "TRAILER!!!"]);
    }
}
