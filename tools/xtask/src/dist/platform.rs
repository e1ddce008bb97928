//! The platform tag of a wheel: the systems that pip installs it on.

use std::fmt;

use super::architecture::Architecture;
use crate::Result;

/// The systems of an architecture with a glibc, as major and minor version, or a newer one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Platform {
    pub(super) glibc: (u32, u32),
    pub(super) architecture: Architecture,
}

impl fmt::Display for Platform {
    /// Writes the tag.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}_{}", self.compatibility(), self.architecture.machine())
    }
}

impl Platform {
    /// Returns the tag without the architecture, as maturin takes it.
    pub(super) fn compatibility(&self) -> String {
        let (major, minor) = self.glibc;
        format!("manylinux_{major}_{minor}")
    }

    /// Checks the tag that auditwheel finds for what is in a wheel of this platform.
    ///
    /// # Errors
    /// If the wheel needs more than this platform has.
    pub(super) fn check(&self, found: &str) -> Result<()> {
        let suffix = format!("_{}", self.architecture.machine());
        let glibc = || {
            let version = found.strip_prefix("manylinux_")?.strip_suffix(&suffix)?;
            let (major, minor) = version.split_once('_')?;
            Some((major.parse::<u32>().ok()?, minor.parse::<u32>().ok()?))
        };
        match glibc() {
            Some(glibc) if glibc <= self.glibc => Ok(()),
            _ => Err(format!("auditwheel finds that the wheel is {found}, not {self}").into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLATFORM: Platform = Platform { glibc: (2, 28), architecture: Architecture::Aarch64 };

    #[test]
    fn the_tag_names_glibc_and_architecture() {
        assert_eq!(PLATFORM.to_string(), "manylinux_2_28_aarch64");
    }

    #[test]
    fn what_needs_no_more_than_the_platform_has_is_accepted() {
        for tag in ["manylinux_2_28_aarch64", "manylinux_2_17_aarch64"] {
            PLATFORM.check(tag).unwrap();
        }
    }

    #[test]
    fn a_newer_glibc_another_architecture_and_no_glibc_are_refused() {
        let refused = [
            "manylinux_2_29_aarch64",
            "manylinux_2_28_x86_64",
            "linux_aarch64",
            "musllinux_1_2_aarch64",
            "",
        ];
        for tag in refused {
            PLATFORM.check(tag).unwrap_err();
        }
    }
}
