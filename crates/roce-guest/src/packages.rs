//! Debian packages, fetched with apt and unpacked below a directory.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use crate::GuestError;
use crate::architecture::Architecture;
use crate::kernel::{Kernel, KernelPackage};
use crate::tool::{Tool, make_directory, run_tool};

/// Packages with the guest's programs and their libraries.
const PACKAGES: &[&str] = &[
    "busybox-static",
    "dash",
    "ibverbs-providers",
    "ibverbs-utils",
    "iproute2",
    "libbpf1",
    "libbsd0",
    "libc6",
    "libcap2",
    "libelf1",
    "libgcc-s1",
    "libibumad3",
    "libibverbs-dev",
    "libibverbs1",
    "libmd0",
    "libmnl0",
    "libnl-3-200",
    "libnl-route-3-200",
    "libpci3",
    "librdmacm-dev",
    "librdmacm1",
    "libudev1",
    "libxtables12",
    "perftest",
    "rdmacm-utils",
    "zlib1g",
];

/// Packages that have another name in releases with 64-bit times, from Debian 13 on.
const RENAMED: &[(&str, &str)] = &[("libelf1", "libelf1t64"), ("librdmacm1", "librdmacm1t64")];

/// What libraries need from Debian 13 on besides.
const FURTHER: &[&str] = &["libpcre2-8-0", "libselinux1", "libtirpc3t64", "libzstd1"];

/// The guest's packages in their current versions.
#[derive(Debug)]
pub(crate) struct Selection {
    packages: Vec<String>,
    /// Options with which apt finds the packages; none where they are in this machine's lists.
    options: Vec<String>,
    /// The kernel, where it is in other lists than the programs.
    kernel: Option<KernelPackage>,
    /// Names of the package files, which contain the versions.
    pub(crate) files: BTreeSet<String>,
}

impl Selection {
    /// Asks apt for the current versions.
    ///
    /// # Errors
    /// If apt does not know a package. Without package lists, this fetches them as root; for another
    /// user the error says so.
    pub(crate) fn current(
        architecture: Architecture,
        kernel: &Kernel,
        directory: &Path,
    ) -> Result<Self, GuestError> {
        let first = Self::known_to_apt(architecture, kernel, directory);
        if first.is_ok() || run_tool(Tool::AptGet, |apt| apt.args(["-q", "update"])).is_err() {
            return first;
        }
        Self::known_to_apt(architecture, kernel, directory)
    }

    fn known_to_apt(
        architecture: Architecture,
        kernel: &Kernel,
        directory: &Path,
    ) -> Result<Self, GuestError> {
        let options = kernel.lists_of_programs(architecture, directory)?;
        let is_other_release = kernel.other_release().is_some();
        let kernel = kernel.find(architecture, directory, &options)?;
        let mut packages: Vec<String> = PACKAGES.iter().copied().map(str::to_owned).collect();
        if is_other_release {
            packages.extend(FURTHER.iter().map(|&name| name.to_owned()));
            for name in &mut packages {
                if let Some((_, now)) = RENAMED.iter().find(|(old, _)| old == name) {
                    (*now).clone_into(name);
                }
            }
        }
        if kernel.options == options {
            packages.extend(kernel.names.iter().cloned());
        }
        let mut files = files_of(&options, &packages)?;
        let kernel = Some(kernel).filter(|it| it.options != options);
        if let Some(kernel) = &kernel {
            files.extend(files_of(&kernel.options, &kernel.names)?);
        }
        Ok(Self { packages, options, kernel, files })
    }

    /// Fetches the packages that `directory/packages` lacks, and unpacks all into `directory/root`.
    pub(crate) fn unpack(&self, directory: &Path) -> Result<PathBuf, GuestError> {
        let packages = directory.join("packages");
        let root = directory.join("root");
        make_directory(&packages)?;
        for old in list(&packages)?.into_iter().filter(|name| !self.files.contains(name)) {
            let path = packages.join(old);
            fs::remove_file(&path).map_err(GuestError::io(format!("remove {}", path.display())))?;
        }
        // apt skips packages that are there in the right version.
        run_tool(Tool::AptGet, |apt| {
            let apt = apt.args(&self.options).args(["-q", "download"]);
            apt.args(&self.packages).current_dir(&packages)
        })?;
        if let Some(kernel) = &self.kernel {
            run_tool(Tool::AptGet, |apt| {
                let apt = apt.args(&kernel.options).args(["-q", "download"]).args(&kernel.names);
                apt.current_dir(&packages)
            })?;
        }
        if root.exists() {
            fs::remove_dir_all(&root)
                .map_err(GuestError::io(format!("remove {}", root.display())))?;
        }
        make_directory(&root)?;
        for package in list(&packages)?.into_iter().filter(|name| name.ends_with(".deb")) {
            run_tool(Tool::DpkgDeb, |dpkg| dpkg.arg("-x").arg(packages.join(package)).arg(&root))?;
        }
        Ok(root)
    }
}

/// Returns the names of the files of packages in their current versions.
fn files_of(options: &[String], packages: &[String]) -> Result<BTreeSet<String>, GuestError> {
    // One line per package: 'address' file size checksum
    let lines = run_tool(Tool::AptGet, |apt| {
        apt.args(options).args(["-q", "--print-uris", "download"]).args(packages)
    })?;
    Ok(lines.lines().filter_map(|line| line.split(' ').nth(1)).map(str::to_owned).collect())
}

/// Returns the sorted names in a directory.
pub(crate) fn list(directory: &Path) -> Result<Vec<String>, GuestError> {
    let doing = || GuestError::io(format!("list {}", directory.display()));
    let mut names = Vec::new();
    for entry in fs::read_dir(directory).map_err(doing())? {
        names.push(entry.map_err(doing())?.file_name().to_string_lossy().into_owned());
    }
    names.sort();
    Ok(names)
}
