//! The tree of files.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

/// Files by path, which starts without a slash.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tree {
    nodes: BTreeMap<PathBuf, Node>,
}

/// A file of the tree. Folders follow from the paths.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Node {
    /// A text file, with the line feed at its end.
    File(String),
    /// A symbolic link.
    Link(PathBuf),
    /// A character device without effect.
    Device,
}

impl Tree {
    /// Returns the files by path.
    pub fn nodes(&self) -> impl Iterator<Item = (&Path, &Node)> {
        self.nodes.iter().map(|(path, node)| (path.as_path(), node))
    }

    /// Writes the files below a folder. A device is written as a link to `/dev/null`, so that no
    /// privilege is needed.
    ///
    /// # Errors
    /// The first error of the file system.
    pub fn write_to(&self, folder: &Path) -> io::Result<()> {
        let mut made = None;
        for (path, node) in &self.nodes {
            let written = folder.join(path);
            let parent = path.parent();
            if parent != made {
                written.parent().map_or(Ok(()), fs::create_dir_all)?;
                made = parent;
            }
            // A table of GIDs has hundreds of empty entries, which cost a name each and no file of their own.
            if let Some(first) = self.first_of_row(path, node)
                && fs::hard_link(folder.join(first), &written).is_ok()
            {
                continue;
            }
            match node {
                Node::File(text) => fs::write(written, text)?,
                Node::Link(target) => symlink(target, written)?,
                Node::Device => symlink(NULL_DEVICE, written)?,
            }
        }
        Ok(())
    }

    pub(crate) fn insert(&mut self, path: impl Into<PathBuf>, node: Node) {
        self.nodes.insert(path.into(), node);
    }

    /// Adds a file with one line.
    pub(crate) fn line(&mut self, path: impl Into<PathBuf>, text: impl fmt::Display) {
        self.insert(path, Node::File(format!("{text}\n")));
    }
}

impl fmt::Display for Tree {
    /// Writes one line for each file: its path, and its text or target. Files of a folder that are the same, with
    /// numbers in a row as their names, have one line: `/folder/2 to 254`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (path, node) in &self.nodes {
            let Some(last) = self.last_of_row(path, node) else { continue };
            let path = path.display();
            let more = last.map(|last| format!(" to {last}")).unwrap_or_default();
            match node {
                Node::File(text) => writeln!(f, "/{path}{more}: {}", text.trim_end())?,
                Node::Link(target) => writeln!(f, "/{path}{more} -> {}", target.display())?,
                Node::Device => writeln!(f, "/{path}{more} (character device)")?,
            }
        }
        Ok(())
    }
}

/// Rows of files: in one folder, the same, and with numbers in a row as their names.
impl Tree {
    /// Returns a file of this file's row that comes before it in the order of paths.
    fn first_of_row(&self, path: &Path, node: &Node) -> Option<PathBuf> {
        let number = number_of(path)?;
        // "99" comes behind "100", and "9" behind both.
        let candidates = [number.checked_sub(1), number.checked_add(1), Some(number / 10)];
        let candidates =
            candidates.into_iter().flatten().map(|it| path.with_file_name(it.to_string()));
        candidates.into_iter().find(|it| it.as_path() < path && self.nodes.get(it) == Some(node))
    }

    /// Returns the last number of the row that a file begins, or `None` in it if it is alone; `None` for a file
    /// that another one's row has.
    fn last_of_row(&self, path: &Path, node: &Node) -> Option<Option<usize>> {
        let Some(number) = number_of(path) else { return Some(None) };
        let is_same =
            |number: usize| self.nodes.get(&path.with_file_name(number.to_string())) == Some(node);
        if number.checked_sub(1).is_some_and(is_same) {
            return None;
        }
        let last = (number..).take_while(|number| is_same(*number)).last();
        Some(last.filter(|last| *last > number))
    }
}

/// Returns the number that is a file's name.
fn number_of(path: &Path) -> Option<usize> {
    path.file_name()?.to_str()?.parse().ok()
}

const NULL_DEVICE: &str = "/dev/null";
