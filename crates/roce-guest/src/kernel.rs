//! Which kernel a guest boots, and where apt finds it.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use crate::GuestError;
use crate::mirror::debian_mirror;
use crate::tool::{Tool, make_directory, run_tool};

/// The kernel of a guest, and with it the Debian release of its programs: the one that the kernel's suite
/// belongs to.
///
/// ```
/// use roce_guest::Kernel;
/// let newer = Kernel::of_suite("bookworm-backports").unwrap();
/// assert_eq!(newer.directory(), "guest-bookworm-backports");
/// assert_eq!(Kernel::Stock.directory(), "guest");
/// assert_eq!(Kernel::of_suite("../sid"), None);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Kernel {
    /// That of this machine's Debian release.
    #[default]
    Stock,
    /// The newest of another suite of the Debian archive, such as `bookworm-backports`; with
    /// `trixie-backports` the programs, rdma-core among them, are those of `trixie`.
    Suite(String),
}

/// The package that depends on the newest stock kernel; the cloud flavour has no `rdma_rxe`.
const KERNEL: &str = "linux-image-amd64";

/// Keys of the Debian archive, from the package `debian-archive-keyring`.
const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

impl Kernel {
    /// Environment variable that [`from_environment`](Self::from_environment) reads.
    pub const VARIABLE: &'static str = "ROCE_GUEST_KERNEL";

    /// Returns the kernel of a suite; `None` for a name that no suite has.
    pub fn of_suite(name: &str) -> Option<Self> {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '-';
        (!name.is_empty() && name.chars().all(is_plain)).then(|| Self::Suite(name.to_owned()))
    }

    /// Returns the kernel that [`VARIABLE`](Self::VARIABLE) names, or the stock one.
    pub fn from_environment() -> Self {
        let name = env::var(Self::VARIABLE).unwrap_or_default();
        Self::of_suite(&name).unwrap_or_default()
    }

    /// Returns the name of the folder for its image, below that of builds.
    pub fn directory(&self) -> String {
        match self {
            Self::Stock => "guest".to_owned(),
            Self::Suite(name) => format!("guest-{name}"),
        }
    }

    /// Returns the release whose programs the guest has, if it is not that of this machine: the one that the
    /// suite belongs to.
    pub(crate) fn other_release(&self) -> Option<&str> {
        let Self::Suite(name) = self else { return None };
        let release = name.split('-').next().unwrap_or(name);
        let text = fs::read_to_string("/etc/os-release").unwrap_or_default();
        (codename_of(&text) != Some(release)).then_some(release)
    }

    /// Finds the package of the kernel.
    ///
    /// # Errors
    /// If apt does not know one.
    pub(crate) fn find(&self, directory: &Path) -> Result<KernelPackage, GuestError> {
        let options = match self {
            Self::Suite(suite) => lists_of(suite, &directory.join("apt"))?,
            Self::Stock => Vec::new(),
        };
        let depends = run_tool(Tool::AptCache, |apt| apt.args(&options).args(["depends", KERNEL]))?;
        let name = depends
            .lines()
            .filter_map(|line| line.trim().strip_prefix("Depends: "))
            .find(|package| package.starts_with("linux-image-"))
            .ok_or_else(|| GuestError::NotInPackages {
                what: "a kernel image".into(),
                needed_by: format!("the package {KERNEL}"),
            })?;
        let mut names = vec![name.to_owned()];
        let depends = run_tool(Tool::AptCache, |apt| apt.args(&options).args(["depends", name]))?;
        names.extend(parts_of(&depends));
        Ok(KernelPackage { names, options })
    }
}

/// Fetches the lists of a suite into a folder of their own, so that this machine's stay as they are, and
/// returns the options with which apt reads them.
///
/// # Errors
/// If they cannot be fetched, or apt has no mirror of Debian.
pub(crate) fn lists_of(suite: &str, apt: &Path) -> Result<Vec<String>, GuestError> {
    let sources = apt.join("sources.list");
    for folder in ["lists/partial", "cache/archives/partial"] {
        make_directory(&apt.join(folder))?;
    }
    let line = format!("deb [signed-by={KEYRING}] {} {suite} main\n", debian_mirror()?);
    fs::write(&sources, line).map_err(GuestError::io(format!("write {}", sources.display())))?;
    let option = |name: &str, path: PathBuf| format!("-oDir::{name}={}", path.display());
    let options = vec![
        option("Etc::SourceList", sources),
        option("Etc::SourceParts", "/dev/null".into()),
        option("State::Lists", apt.join("lists")),
        option("Cache", apt.join("cache")),
        "-oAPT::Sandbox::User=root".to_owned(),
    ];
    run_tool(Tool::AptGet, |apt| apt.args(&options).args(["-q", "update"]))?;
    Ok(options)
}

/// Returns the codename in the text of `/etc/os-release`.
fn codename_of(text: &str) -> Option<&str> {
    let value = text.lines().find_map(|line| line.strip_prefix("VERSION_CODENAME="));
    value.map(|value| value.trim_matches('"'))
}

/// Returns the packages with the parts of a kernel, from what `apt-cache depends` says of its image: newer
/// ones have the program, modules and their lists in packages of their own.
fn parts_of(depends: &str) -> Vec<String> {
    let packages = depends.lines().filter_map(|line| line.trim().strip_prefix("Depends: "));
    let starts = ["linux-base-", "linux-binary-", "linux-modules-"];
    packages
        .filter(|it| starts.iter().any(|start| it.starts_with(start)))
        .map(str::to_owned)
        .collect()
}

/// The packages of a kernel.
#[derive(Debug)]
pub(crate) struct KernelPackage {
    pub(crate) names: Vec<String>,
    /// Options with which apt finds them.
    pub(crate) options: Vec<String>,
}

impl KernelPackage {
    /// Returns true if this machine's own lists of packages have it.
    pub(crate) fn is_of_this_machine(&self) -> bool {
        self.options.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_of_several_packages_has_its_program_and_modules_in_them() {
        let split = "linux-image-7.3-amd64\n  Depends: linux-base\n |Depends: dracut\n  \
                     Depends: linux-binary-7.3-amd64\n  Depends: linux-modules-7.3-amd64\n";
        assert_eq!(parts_of(split), ["linux-binary-7.3-amd64", "linux-modules-7.3-amd64"]);
        assert_eq!(parts_of("linux-image-6.1\n  Depends: kmod\n"), [""; 0]);
    }

    #[test]
    fn programs_are_of_the_release_that_the_suite_belongs_to() {
        assert_eq!(codename_of("ID=debian\nVERSION_CODENAME=bookworm\n"), Some("bookworm"));
        assert_eq!(codename_of("VERSION_CODENAME=\"noble\"\n"), Some("noble"));
        assert_eq!(codename_of("ID=arch\n"), None);
        assert_eq!(Kernel::Stock.other_release(), None);
        let other = Kernel::of_suite("other-backports").unwrap();
        assert_eq!(other.other_release(), Some("other"));
    }
}
