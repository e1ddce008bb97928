//! Which kernel a guest boots, and where apt finds it.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use crate::GuestError;
use crate::mirror::debian_mirror;
use crate::tool::{Tool, make_directory, run_tool};

/// The kernel of a guest. Its programs are those of this machine's Debian release in any case.
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
    /// The newest of another suite of the Debian archive, such as `bookworm-backports`.
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

    /// Returns the options with which apt finds its package. For another suite these are lists of its
    /// own below `directory`, so that this machine's stay as they are.
    ///
    /// # Errors
    /// If they cannot be written, or apt has no mirror of Debian.
    fn apt_options(&self, directory: &Path) -> Result<Vec<String>, GuestError> {
        let Self::Suite(suite) = self else { return Ok(Vec::new()) };
        let apt = directory.join("apt");
        let sources = apt.join("sources.list");
        for folder in ["lists/partial", "cache/archives/partial"] {
            make_directory(&apt.join(folder))?;
        }
        let line = format!("deb [signed-by={KEYRING}] {} {suite} main\n", debian_mirror()?);
        fs::write(&sources, line)
            .map_err(GuestError::io(format!("write {}", sources.display())))?;
        let option = |name: &str, path: PathBuf| format!("-oDir::{name}={}", path.display());
        Ok(vec![
            option("Etc::SourceList", sources),
            option("Etc::SourceParts", "/dev/null".into()),
            option("State::Lists", apt.join("lists")),
            option("Cache", apt.join("cache")),
            "-oAPT::Sandbox::User=root".to_owned(),
        ])
    }

    /// Finds the package of the kernel.
    ///
    /// # Errors
    /// If apt does not know one.
    pub(crate) fn find(&self, directory: &Path) -> Result<KernelPackage, GuestError> {
        let options = self.apt_options(directory)?;
        if !options.is_empty() {
            run_tool(Tool::AptGet, |apt| apt.args(&options).args(["-q", "update"]))?;
        }
        let depends = run_tool(Tool::AptCache, |apt| apt.args(&options).args(["depends", KERNEL]))?;
        let name = depends
            .lines()
            .filter_map(|line| line.trim().strip_prefix("Depends: "))
            .find(|package| package.starts_with("linux-image-"))
            .ok_or_else(|| GuestError::NotInPackages {
                what: "a kernel image".into(),
                needed_by: format!("the package {KERNEL}"),
            })?;
        Ok(KernelPackage { name: name.to_owned(), options })
    }
}

/// A package with a kernel.
#[derive(Debug)]
pub(crate) struct KernelPackage {
    pub(crate) name: String,
    /// Options with which apt finds it.
    pub(crate) options: Vec<String>,
}

impl KernelPackage {
    /// Returns true if this machine's own lists of packages have it.
    pub(crate) fn is_of_this_machine(&self) -> bool {
        self.options.is_empty()
    }
}
