//! The tree of files.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use roce_io::InterfaceInfo;
use roce_verbs::NamedDevice;

use crate::device_files;

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
    /// Creates the files of devices. `hardware` returns the folder of an interface's hardware.
    pub fn new(
        devices: &[NamedDevice],
        hardware: impl Fn(&InterfaceInfo) -> Option<PathBuf>,
    ) -> Self {
        let mut tree = Self::default();
        device_files::add_common(&mut tree);
        for device in devices {
            device_files::add(&mut tree, device, hardware(&device.info.interface));
        }
        tree
    }

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
        for (path, node) in &self.nodes {
            let path = folder.join(path);
            if let Some(parent) = path.parent() {
                fs::create_dir_all(parent)?;
            }
            match node {
                Node::File(text) => fs::write(path, text)?,
                Node::Link(target) => symlink(target, path)?,
                Node::Device => symlink(NULL_DEVICE, path)?,
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
    /// Writes one line for each file: its path, and its text or target.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (path, node) in &self.nodes {
            let path = path.display();
            match node {
                Node::File(text) => writeln!(f, "/{path}: {}", text.trim_end())?,
                Node::Link(target) => writeln!(f, "/{path} -> {}", target.display())?,
                Node::Device => writeln!(f, "/{path} (character device)")?,
            }
        }
        Ok(())
    }
}

const NULL_DEVICE: &str = "/dev/null";
