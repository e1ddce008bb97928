//! The view by mounts.

use std::fs::{self, DirEntry, File};
use std::io;
use std::os::unix::fs::symlink;
use std::path::Path;

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};

/// Moves this process into a mount namespace of its own and shows the files of `view` there. `work`
/// is the name of a folder that this creates for its mount points; only the namespace sees what is
/// mounted on them. In a private host it shows the interfaces of this network namespace in /sys, too.
///
/// # Errors
/// The first error of the kernel. The namespace may show a part of the files then.
pub(crate) fn show(view: &Path, work: &Path, is_private_host: bool) -> io::Result<()> {
    unshare(CloneFlags::CLONE_NEWNS)?;
    // Mounts of this namespace stay in it, those of the system still appear in it.
    change("/", MsFlags::MS_REC | MsFlags::MS_SLAVE)?;
    if is_private_host && let Err(error) = show_interfaces(&work.join("sys")) {
        // A container may have hidden parts of /sys, and the kernel shows none of them again.
        tracing::info!(%error, "/sys/class/net is not that of the private host");
    }
    show_classes(&view.join("sys/class"), &work.join("class"))?;
    if let Err(error) = show_devices_of_interfaces(&view.join("sys/class/net"), &work.join("net")) {
        tracing::info!(%error, "no device/infiniband in /sys/class/net");
    }
    if let Err(error) = add_layer(&view.join("sys/class").join(MISCELLANEOUS), MISCELLANEOUS) {
        tracing::info!(%error, "no rdma_cm in /sys/class/misc");
    }
    show_devices(&view.join("dev/infiniband"), work)
}

/// Shows the interfaces of this network namespace in /sys: it has those of the namespace in which it
/// was mounted.
fn show_interfaces(new: &Path) -> io::Result<()> {
    fs::create_dir_all(new)?;
    mount(Some("sysfs"), new, Some("sysfs"), MsFlags::MS_RDONLY, None::<&str>)?;
    // What else is mounted in /sys, such as control groups, stays.
    ["devices", "class"]
        .iter()
        .try_for_each(|name| bind(&new.join(name), &Path::new("/sys").join(name)))
}

/// Shows the folders of `classes` in `/sys/class`.
fn show_classes(classes: &Path, layer: &Path) -> io::Result<()> {
    let mut names: Vec<_> = entries(classes)?.iter().map(DirEntry::file_name).collect();
    names.retain(|name| name != INTERFACES && name != MISCELLANEOUS);
    let system = Path::new("/sys/class");
    if names.iter().any(|name| !system.join(name).exists()) {
        for name in &names {
            fs::create_dir_all(layer.join(name))?;
        }
        // /sys has no folder to mount on, and none can be made in it.
        let layers = format!("lowerdir={}:{}", layer.display(), system.display());
        mount(Some("overlay"), system, Some("overlay"), MsFlags::empty(), Some(layers.as_str()))?;
    }
    names.iter().try_for_each(|name| bind(&classes.join(name), &system.join(name)))
}

/// Shows the devices of `interfaces`, a folder for each interface, in `/sys/class/net`. The interface's
/// own files stay.
fn show_devices_of_interfaces(interfaces: &Path, work: &Path) -> io::Result<()> {
    for entry in entries(interfaces)? {
        let (shown, system) = (entry.path(), Path::new("/sys/class").join(INTERFACES));
        let system = system.join(entry.file_name());
        // The links of the view lead from its own place; from that of the interface they are others.
        let files = work.join(entry.file_name());
        let links = files.join(DEVICES_OF_INTERFACE);
        fs::create_dir_all(&links)?;
        for device in entries(&shown.join(DEVICES_OF_INTERFACE))? {
            let target = Path::new("/sys/class/infiniband").join(device.file_name());
            symlink(target, links.join(device.file_name()))?;
        }
        // A virtual interface has no `device`, and that of another may not be hidden by ours.
        let (files, system) = match system.join("device") {
            device if device.is_dir() => (files.join("device"), device),
            _ => (files, system),
        };
        let (files, system) = (files.canonicalize()?, system.canonicalize()?);
        let layers = format!("lowerdir={}:{}", layer_name(&files), layer_name(&system));
        mount(Some("overlay"), &system, Some("overlay"), MsFlags::empty(), Some(layers.as_str()))?;
    }
    Ok(())
}

/// Where the folder of an interface has its devices.
const DEVICES_OF_INTERFACE: &str = "device/infiniband";

/// Returns a path as it stands in a list of layers. Addresses of PCI devices have colons, and names of interfaces may
/// have commas, which separate options.
fn layer_name(path: &Path) -> String {
    let name = path.display().to_string();
    name.replace('\\', r"\\").replace(':', r"\:").replace(',', r"\,")
}

/// Shows the files of `files` in a class, beside those that it has.
fn add_layer(files: &Path, class: &str) -> io::Result<()> {
    let system = Path::new("/sys/class").join(class);
    let layers = format!("lowerdir={}:{}", files.display(), system.display());
    mount(Some("overlay"), &system, Some("overlay"), MsFlags::empty(), Some(layers.as_str()))?;
    Ok(())
}

/// The class of the interfaces, to which files are added.
const INTERFACES: &str = "net";

/// The class of the device of librdmacm and of others, to which files are added.
const MISCELLANEOUS: &str = "misc";

/// Shows devices as /dev/null in `/dev/infiniband`, and empty files as they are.
fn show_devices(devices: &Path, work: &Path) -> io::Result<()> {
    let folder = Path::new("/dev/infiniband");
    if !folder.is_dir() {
        replace_dev(&work.join("dev"))?;
    }
    let files = work.join("infiniband");
    fs::create_dir_all(&files)?;
    let entries = entries(devices)?;
    for entry in &entries {
        File::create(files.join(entry.file_name()))?;
    }
    bind(&files, folder)?;
    for entry in &entries {
        // The view has devices as links.
        if entry.file_type()?.is_symlink() {
            bind(Path::new("/dev/null"), &folder.join(entry.file_name()))?;
        }
    }
    Ok(())
}

/// Replaces /dev by a folder with the same files and an empty folder `infiniband`. That folder cannot
/// be made in the system's /dev, where it would stay after the run.
fn replace_dev(new: &Path) -> io::Result<()> {
    fs::create_dir_all(new)?;
    mount(Some("tmpfs"), new, Some("tmpfs"), MsFlags::MS_NOSUID, Some("mode=755"))?;
    for entry in entries(Path::new("/dev"))? {
        let (from, to) = (entry.path(), new.join(entry.file_name()));
        let kind = entry.file_type()?;
        if kind.is_symlink() {
            symlink(fs::read_link(&from)?, &to)?;
            continue;
        }
        if kind.is_dir() {
            fs::create_dir(&to)?;
        } else {
            File::create(&to)?;
        }
        // Without the right to a single file the program still has all others.
        if let Err(error) = bind(&from, &to) {
            tracing::info!(%error, file = %from.display(), "not in the program's /dev");
        }
    }
    fs::create_dir(new.join("infiniband"))?;
    mount(Some(new), "/dev", None::<&str>, MsFlags::MS_MOVE, None::<&str>)?;
    Ok(())
}

fn entries(folder: &Path) -> io::Result<Vec<DirEntry>> {
    fs::read_dir(folder)?.collect()
}

/// Shows a file or a folder, with all that is mounted in it, in another place.
fn bind(from: &Path, to: &Path) -> io::Result<()> {
    let flags = MsFlags::MS_BIND | MsFlags::MS_REC;
    Ok(mount(Some(from), to, None::<&str>, flags, None::<&str>)?)
}

fn change(place: &str, flags: MsFlags) -> io::Result<()> {
    Ok(mount(None::<&str>, place, None::<&str>, flags, None::<&str>)?)
}
