//! Kernel and initramfs of a guest.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use crate::GuestError;
use crate::architecture::Architecture;
use crate::cpio::Archive;
use crate::elf::Libraries;
use crate::kernel::Kernel;
use crate::modules;
use crate::packages::{Selection, list};
use crate::tool::{Tool, make_directory, run_tool};

/// A kernel and an initramfs, which any number of guests can boot.
///
/// ```no_run
/// # fn main() -> Result<(), roce_guest::GuestError> {
/// let image = roce_guest::Image::prepare("target/guest".as_ref())?;
/// println!("{}", image.kernel_release());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Image {
    directory: PathBuf,
    architecture: Architecture,
    release: String,
}

impl Image {
    /// Builds the image below `directory`, or returns the existing one.
    ///
    /// An existing image is rebuilt if a package has a new version, or if this crate's own files in
    /// the guest have changed. If the versions cannot be queried, the existing image is used.
    /// Several processes may call this for the same directory at the same time.
    ///
    /// Takes seconds the first time (some 80 MB are fetched), less than one after that.
    ///
    /// # Errors
    /// If a tool is missing (see [`crate::missing_tools`]), apt cannot fetch, or a file that the
    /// guest needs is in no package.
    pub fn prepare(directory: &Path) -> Result<Self, GuestError> {
        Self::prepare_with(directory, Architecture::X86_64, &Kernel::Stock)
    }

    /// As [`prepare`](Self::prepare), for an architecture and with a kernel, whose package is fetched and not
    /// installed.
    ///
    /// # Errors
    /// As [`prepare`](Self::prepare).
    pub fn prepare_with(
        directory: &Path,
        architecture: Architecture,
        kernel: &Kernel,
    ) -> Result<Self, GuestError> {
        make_directory(directory)?;
        let directory = directory
            .canonicalize()
            .map_err(GuestError::io(format!("find {}", directory.display())))?;
        let lock = directory.join("lock");
        let lock = File::create(&lock)
            .and_then(|file| file.lock().map(|()| file))
            .map_err(GuestError::io(format!("lock {}", lock.display())))?;
        let image = Self::prepare_locked(directory, architecture, kernel);
        drop(lock);
        image
    }

    fn prepare_locked(
        directory: PathBuf,
        architecture: Architecture,
        kernel: &Kernel,
    ) -> Result<Self, GuestError> {
        let stamp_path = directory.join("stamp");
        let built = fs::read_to_string(&stamp_path).unwrap_or_default();
        let selection = match Selection::current(architecture, kernel, &directory) {
            Ok(selection) => selection,
            // Without network or package lists, use the existing image.
            Err(_) if built.ends_with(OWN_PARTS) => {
                return Self::in_directory(directory, architecture);
            }
            Err(error) => return Err(error),
        };
        let files: String = selection.files.iter().map(|name| format!("{name}\n")).collect();
        let stamp = files + OWN_PARTS;
        if stamp != built {
            let _ = fs::remove_file(&stamp_path);
            let root = selection.unpack(&directory)?;
            build(&directory, architecture, &root)?;
            fs::write(&stamp_path, stamp).map_err(GuestError::io("write the image's stamp"))?;
        }
        Self::in_directory(directory, architecture)
    }

    fn in_directory(directory: PathBuf, architecture: Architecture) -> Result<Self, GuestError> {
        let release = kernel_release(&directory.join("root"))?;
        Ok(Self { directory, architecture, release })
    }

    /// Returns the architecture of the guest.
    pub fn architecture(&self) -> Architecture {
        self.architecture
    }

    /// Returns the release of the guest's kernel, as `uname -r` prints it.
    pub fn kernel_release(&self) -> &str {
        &self.release
    }

    /// Returns the directory of the image, its packages and the console logs of its guests.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Returns the release of the guest's rdma-core, such as 44; 0 if its headers do not tell.
    pub fn rdma_core_release(&self) -> u32 {
        let file = self.libraries().join("pkgconfig/libibverbs.pc");
        rdma_core_release(&fs::read_to_string(file).unwrap_or_default()).unwrap_or(0)
    }

    pub(crate) fn kernel(&self) -> PathBuf {
        let in_boot = self.root().join("boot").join(format!("vmlinuz-{}", self.release));
        let beside_modules = kernel_modules(&self.root()).join(&self.release).join("vmlinuz");
        if beside_modules.is_file() { beside_modules } else { in_boot }
    }

    pub(crate) fn initramfs(&self) -> PathBuf {
        self.directory.join("initramfs")
    }

    /// Compiles a C program against the guest's headers and libraries, and returns its path. The macro
    /// `RDMA_CORE` is the [release](Self::rdma_core_release) of rdma-core.
    ///
    /// `sources` are C files, or directories of which all C files are compiled. The program has the
    /// name of the first source. `libraries` are names as after `-l`. The program is written to
    /// [`Image::directory`]; [`crate::Guest::push`] copies it to a running guest.
    ///
    /// # Errors
    /// [`GuestError::ToolFailed`] with the compiler's last lines.
    pub fn compile(&self, sources: &[&Path], libraries: &[&str]) -> Result<PathBuf, GuestError> {
        let mut files = Vec::new();
        for source in sources {
            if source.is_dir() {
                let names = list(source)?.into_iter().filter(|name| name.ends_with(".c"));
                files.extend(names.map(|name| source.join(name)));
            } else {
                files.push(source.to_path_buf());
            }
        }
        let name = sources.first().and_then(|source| source.file_stem());
        let name = name.map_or("program".into(), |name| name.to_string_lossy());
        let program = self.directory.join(&*name);
        // Write another file and rename it: another process may be reading the program.
        let fresh = self.directory.join(format!("{name}.{}", std::process::id()));
        let root = self.root();
        let lib = self.libraries();
        run_tool(Tool::Cc(self.architecture), |cc| {
            cc.args(["-O2", "-Wall", "-Wextra", "-Werror", "-std=c11", "-o"]).arg(&fresh);
            cc.arg(format!("-DRDMA_CORE={}", self.rdma_core_release()));
            cc.arg("-isystem").arg(root.join("usr/include"));
            cc.args(files).arg("-L").arg(&lib);
            cc.arg(format!("-Wl,-rpath-link,{}", lib.display()));
            // Libraries of a newer release need functions of its own C library, which the guest has.
            cc.arg("-Wl,--allow-shlib-undefined");
            cc.args(libraries.iter().map(|name| format!("-l{name}")))
        })?;
        fs::rename(&fresh, &program)
            .map_err(GuestError::io(format!("put {} in place", program.display())))?;
        Ok(program)
    }

    fn root(&self) -> PathBuf {
        self.directory.join("root")
    }

    /// Returns the folder of the libraries to link with.
    fn libraries(&self) -> PathBuf {
        self.root().join("usr/lib").join(self.architecture.properties().library_folder)
    }
}

/// Packs `directory/initramfs` from the unpacked packages.
fn build(directory: &Path, architecture: Architecture, root: &Path) -> Result<(), GuestError> {
    let properties = architecture.properties();
    let release = kernel_release(root)?;
    let mut archive = Archive::default();
    archive.console();
    for path in ["/proc", "/sys", "/tmp", "/etc", "/bin"] {
        archive.directory(path);
    }
    archive.file("/init", INIT.as_bytes(), 0o755);
    archive.file("/bin/set-network", SET_NETWORK.as_bytes(), 0o755);
    archive.file("/etc/welcome", WELCOME.as_bytes(), 0o644);
    add_modules(&mut archive, architecture, root, &release)?;

    let mut programs = Vec::new();
    let mut add = |archive: &mut Archive, to: String, from: PathBuf| {
        archive
            .file_from(&to, &from, 0o755)
            .map_err(GuestError::io(format!("read {}", from.display())))?;
        programs.push(from);
        Ok::<(), GuestError>(())
    };
    add(&mut archive, "/bin/busybox".into(), in_bin(root, "busybox"))?;
    add(&mut archive, "/bin/guestd".into(), compile_guestd(directory, architecture)?)?;
    add(&mut archive, "/bin/sh".into(), in_bin(root, "dash"))?;
    for name in IPROUTE {
        let path = ["bin", "sbin", "usr/bin", "usr/sbin"].map(|place| root.join(place).join(name));
        // Not a symbolic link: an absolute one would lead to a program of this machine.
        let path = path.into_iter().find(|path| path.is_file() && !path.is_symlink());
        let path = path.ok_or_else(|| GuestError::NotInPackages {
            what: format!("the program {name}"),
            needed_by: "the guest".into(),
        })?;
        add(&mut archive, format!("/usr/bin/{name}"), path)?;
    }
    for name in list(&root.join("usr/bin"))? {
        let path = root.join("usr/bin").join(&name);
        // The other files there are documentation tools.
        if path.is_file() && (RDMA_PROGRAMS.iter().any(|start| name.starts_with(start))) {
            add(&mut archive, format!("/usr/bin/{name}"), path)?;
        }
    }
    // libibverbs looks for its drivers in these two places.
    let providers = format!("usr/lib/{}/libibverbs", properties.library_folder);
    for name in list(&root.join(&providers))?.into_iter().filter(|name| name.contains("rxe")) {
        add(&mut archive, format!("/{providers}/{name}"), root.join(&providers).join(&name))?;
    }
    archive.file("/etc/libibverbs.d/rxe.driver", b"driver rxe\n", 0o644);

    let libraries = Libraries::below(root, architecture);
    let mut needed = libraries.needed_by(&programs)?;
    // Programs of this workspace that run in the guest need these libraries.
    needed.extend(libraries.closure_of(&OF_WORKSPACE)?);
    for (name, path) in needed {
        let place = match name.starts_with("ld-linux") {
            true => properties.loader_folder.to_owned(),
            false => format!("/lib/{}", properties.library_folder),
        };
        archive
            .file_from(&format!("{place}/{name}"), &path, 0o755)
            .map_err(GuestError::io(format!("read {}", path.display())))?;
    }
    let path = directory.join("initramfs");
    fs::write(&path, archive.finish()).map_err(GuestError::io(format!("write {}", path.display())))
}

fn add_modules(
    archive: &mut Archive,
    architecture: Architecture,
    root: &Path,
    release: &str,
) -> Result<(), GuestError> {
    let modules = kernel_modules(root).join(release);
    unpack_modules(&modules)?;
    let base = modules.ancestors().nth(3).unwrap_or(root);
    let busybox = in_bin(root, "busybox");
    let status = Tool::Emulator(architecture)
        .command_for(&busybox)
        .args(["depmod", "-b"])
        .arg(base)
        .arg(release)
        .status()
        .map_err(GuestError::io(format!("start {}", busybox.display())))?;
    if !status.success() {
        return Err(GuestError::ToolFailed {
            command: "busybox depmod".into(),
            status: status.to_string(),
            stderr: String::new(),
        });
    }
    let read = |name: &str| {
        let path = modules.join(name);
        fs::read_to_string(&path).map_err(GuestError::io(format!("read {}", path.display())))
    };
    let (list, built_in) = (read("modules.dep")?, read("modules.builtin")?);
    let mut order = String::new();
    for module in modules::load_order(&list, &built_in)? {
        let path = modules.join(&module);
        let name = module.rsplit('/').next().unwrap_or(&module);
        archive
            .file_from(&format!("/lib/modules/{name}"), &path, 0o644)
            .map_err(GuestError::io(format!("read {}", path.display())))?;
        order.push_str(name);
        order.push('\n');
    }
    archive.file("/lib/modules/order", order.as_bytes(), 0o644);
    Ok(())
}

/// Unpacks the modules of newer kernels, which `insmod` and `depmod` of the guest do not read.
fn unpack_modules(directory: &Path) -> Result<(), GuestError> {
    let mut packed = Vec::new();
    let mut folders = vec![directory.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for name in list(&folder)? {
            let path = folder.join(&name);
            if path.is_symlink() {
                continue;
            }
            if path.is_dir() {
                folders.push(path);
            } else if name.ends_with(".ko.xz") {
                packed.push(path);
            }
        }
    }
    for some in packed.chunks(500) {
        run_tool(Tool::Xz, |xz| xz.arg("-d").args(some))?;
    }
    Ok(())
}

/// Returns the file of a program in `/bin`; packages from Debian 13 on have it in `/usr/bin`.
fn in_bin(root: &Path, name: &str) -> PathBuf {
    let [old, new] = ["bin", "usr/bin"].map(|folder| root.join(folder).join(name));
    if old.is_file() { old } else { new }
}

/// Returns the third number of the version in `libibverbs.pc`.
fn rdma_core_release(text: &str) -> Option<u32> {
    let version = text.lines().find_map(|line| line.strip_prefix("Version:"))?;
    version.trim().split('.').nth(2)?.parse().ok()
}

/// Returns the folder of the kernels' modules: newer packages have no `/lib`.
fn kernel_modules(root: &Path) -> PathBuf {
    let [old, new] = ["lib/modules", "usr/lib/modules"].map(|path| root.join(path));
    if new.is_dir() { new } else { old }
}

fn compile_guestd(directory: &Path, architecture: Architecture) -> Result<PathBuf, GuestError> {
    let source = directory.join("guestd.c");
    let program = directory.join("guestd");
    fs::write(&source, GUESTD).map_err(GuestError::io("write guestd.c"))?;
    run_tool(Tool::Cc(architecture), |cc| {
        cc.args(["-O2", "-Wall", "-Wextra", "-std=c11", "-o"]).arg(&program).arg(&source)
    })?;
    Ok(program)
}

fn kernel_release(root: &Path) -> Result<String, GuestError> {
    let kernels = list(&kernel_modules(root))?;
    kernels.into_iter().next_back().ok_or_else(|| GuestError::NotInPackages {
        what: "a kernel's modules".into(),
        needed_by: "the guest".into(),
    })
}

const INIT: &str = include_str!("../guest/init");
const SET_NETWORK: &str = include_str!("../guest/set-network");
const WELCOME: &str = include_str!("../guest/welcome");
const GUESTD: &str = include_str!("../guest/guestd.c");

/// This crate's own files in the image: the image is rebuilt when they change. The first line is a
/// version of the code that packs the image.
const OWN_PARTS: &str = concat!(
    "layout 6\n",
    include_str!("../guest/init"),
    include_str!("../guest/set-network"),
    include_str!("../guest/welcome"),
    include_str!("../guest/guestd.c"),
);

/// Libraries of this workspace's programs. glibc has had the last ones as parts of the first since 2.34, but what
/// is linked for older ones names them.
const OF_WORKSPACE: [&str; 5] =
    ["libc.so.6", "libgcc_s.so.1", "libm.so.6", "libdl.so.2", "libpthread.so.0"];

const IPROUTE: &[&str] = &["ip", "tc", "rdma"];

/// Prefixes of the names of programs in ibverbs-utils, rdmacm-utils and perftest.
const RDMA_PROGRAMS: &[&str] = &[
    "ibv_",
    "ib_atomic",
    "ib_read",
    "ib_send",
    "ib_write",
    "raw_ethernet",
    "rping",
    "udaddy",
    "ucmatose",
    "udpong",
    "rdma_client",
    "rdma_server",
    "rdma_xclient",
    "rdma_xserver",
    "rstream",
    "rcopy",
    "riostream",
    "mckey",
    "cmtime",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_release_of_rdma_core_is_the_third_number_of_its_version() {
        assert_eq!(rdma_core_release("Name: libibverbs\nVersion: 1.14.44.0\n"), Some(44));
        assert_eq!(rdma_core_release("Version: 1.15\n"), None);
        assert_eq!(rdma_core_release(""), None);
    }
}
