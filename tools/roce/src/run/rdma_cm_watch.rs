//! Whether a program used rdma_cm.

use std::fs::{self, File};
use std::io;
use std::path::Path;

use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};

/// Notices that a program opens `/dev/infiniband/rdma_cm`, which librdmacm does when an event channel is
/// created, and not when a program merely loads it.
///
/// The path is a plain file. librdmacm refuses it, as it refuses a path that does not exist, but the
/// kernel reports its opening. That needs no call in the program to be replaced.
#[derive(Debug)]
pub(crate) struct RdmaCmWatch(Inotify);

impl RdmaCmWatch {
    /// Creates the file in the folder of a run. `None` if the system watches no more files.
    pub(crate) fn new(run_folder: &Path) -> Option<Self> {
        let file = run_folder.join(FILE);
        File::create(&file).ok()?;
        let watch = Inotify::init(InitFlags::IN_NONBLOCK | InitFlags::IN_CLOEXEC).ok()?;
        watch.add_watch(&file, AddWatchFlags::IN_OPEN).ok()?;
        Some(Self(watch))
    }

    /// Returns true if a process has opened the file.
    pub(crate) fn was_opened(&self) -> bool {
        self.0.read_events().is_ok_and(|events| !events.is_empty())
    }
}

/// Shows the file of a run in the view of a rank, if there is one.
pub(crate) fn show(run_folder: &Path, view: &Path) -> io::Result<()> {
    let devices = view.join("dev/infiniband");
    match fs::hard_link(run_folder.join(FILE), devices.join(FILE)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        linked => linked,
    }
}

/// Prints what the user can do, below the program's own message.
pub(crate) fn print_hint() {
    eprintln!(
        "roce: the program tried to use rdma_cm, which this library does not support yet; run it \
         without: perftest's programs without -R, and ibv_rc_pingpong instead of rping"
    );
}

/// Name of the file, and of the device.
pub(crate) const FILE: &str = "rdma_cm";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_opening_of_the_file_is_noticed_by_whatever_name() {
        let folder = std::env::temp_dir().join(format!("roce-rdma-cm-{}", std::process::id()));
        fs::create_dir_all(folder.join("view/dev/infiniband")).unwrap();
        let watch = RdmaCmWatch::new(&folder).expect("inotify");
        show(&folder, &folder.join("view")).unwrap();
        let name = folder.join("view/dev/infiniband/rdma_cm");
        assert!(fs::metadata(&name).unwrap().is_file());
        assert!(!watch.was_opened());
        drop(File::open(&name).unwrap());
        assert!(watch.was_opened());
        fs::remove_dir_all(folder).unwrap();
    }
}
