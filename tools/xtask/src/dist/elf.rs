//! What programs and libraries need from the system that loads them.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::architecture::{Architecture, BinaryTool};
use crate::Result;

/// What files need together.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Needs {
    libraries: BTreeSet<String>,
    /// Newest glibc of which a symbol is used.
    glibc: (u32, u32),
}

impl Needs {
    /// Returns what programs and libraries need.
    pub(super) fn of_all(architecture: Architecture, files: &[PathBuf]) -> Result<Self> {
        files.iter().try_fold(Self::default(), |mut all, file| {
            let one = Self::of(architecture, file)?;
            all.libraries.extend(one.libraries);
            all.glibc = all.glibc.max(one.glibc);
            Ok(all)
        })
    }

    /// Returns the oldest glibc that has what the files use.
    pub(super) fn glibc(&self) -> (u32, u32) {
        self.glibc
    }

    /// Checks that a glibc, as major and minor version, is new enough.
    ///
    /// # Errors
    /// Otherwise, with both versions.
    pub(super) fn check(&self, oldest: (u32, u32)) -> Result<()> {
        let ((major, minor), (max_major, max_minor)) = (self.glibc, oldest);
        if self.glibc <= oldest {
            return Ok(());
        }
        Err(format!(
            "a program or library needs glibc {major}.{minor}, newer than {max_major}.{max_minor}; `objdump -T` \
             shows for which function"
        )
        .into())
    }

    /// Returns the value of the field `Depends` of a Debian package.
    ///
    /// # Errors
    /// If the package of a library is not known.
    pub(super) fn packages(&self) -> Result<String> {
        let (major, minor) = self.glibc;
        let mut packages = BTreeSet::from([format!("libc6 (>= {major}.{minor})")]);
        for library in &self.libraries {
            match library.split_once(".so").map(|(name, _)| name) {
                Some(name) if Self::GLIBC.contains(&name) => {}
                Some("libgcc_s") => _ = packages.insert("libgcc-s1".to_owned()),
                _ => return Err(format!("which package has {library} is not known").into()),
            }
        }
        Ok(packages.into_iter().collect::<Vec<_>>().join(", "))
    }

    /// Libraries of glibc.
    const GLIBC: [&str; 7] =
        ["libc", "libm", "libdl", "libpthread", "librt", "ld-linux-x86-64", "ld-linux-aarch64"];

    /// Returns what a package for rpm requires.
    pub(super) fn capabilities(&self) -> Vec<String> {
        let (major, minor) = self.glibc;
        let glibc = format!("libc.so.6(GLIBC_{major}.{minor})(64bit)");
        let others = self.libraries.iter().filter(|library| {
            !library.split_once(".so").is_some_and(|(name, _)| Self::GLIBC.contains(&name))
        });
        [glibc].into_iter().chain(others.map(|library| format!("{library}()(64bit)"))).collect()
    }

    fn of(architecture: Architecture, file: &Path) -> Result<Self> {
        let mut objdump = Command::new(architecture.tool(BinaryTool::Objdump));
        let output = objdump.arg("-p").arg(file).env("LC_ALL", "C").output()?;
        if !output.status.success() {
            return Err(String::from_utf8_lossy(&output.stderr).into());
        }
        Ok(Self::parse(&String::from_utf8_lossy(&output.stdout)))
    }

    fn parse(text: &str) -> Self {
        let words = || text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        let libraries = words().filter_map(|line| match line[..] {
            ["NEEDED", library] => Some(library.to_owned()),
            _ => None,
        });
        let glibc = words().filter_map(|line| {
            let (major, minor) = line.last()?.strip_prefix("GLIBC_")?.split_once('.')?;
            // 2.2.5 counts as 2.2: all of them are older than what counts.
            let minor = minor.split('.').next()?;
            Some((major.parse().ok()?, minor.parse().ok()?))
        });
        Self { libraries: libraries.collect(), glibc: glibc.max().unwrap_or_default() }
    }
}

#[cfg(test)]
mod tests {
    use super::Needs;

    #[test]
    fn the_headers_tell_which_packages_a_file_needs() {
        let text = "
Dynamic Section:
  NEEDED               libgcc_s.so.1
  NEEDED               libc.so.6
  SONAME               libibverbs.so.1

Version definitions:
1 0x01 0x0f8eb841 libibverbs.so.1

Version References:
  required from libgcc_s.so.1:
    0x09276060 0x00 28 GCC_4.2.0
  required from libc.so.6:
    0x069691b4 0x00 02 GLIBC_2.34
    0x09691a75 0x00 03 GLIBC_2.2.5
    0x069691b3 0x00 04 GLIBC_2.9
";
        let needs = Needs::parse(text);
        assert_eq!(needs.packages().unwrap(), "libc6 (>= 2.34), libgcc-s1");
        assert_eq!(
            needs.capabilities(),
            ["libc.so.6(GLIBC_2.34)(64bit)", "libgcc_s.so.1()(64bit)"]
        );
        assert!(needs.check((2, 34)).is_ok());
        let newer = Needs::parse(&text.replace("2.34", "2.35"));
        assert!(newer.check((2, 34)).is_err());
        let other = Needs::parse(&text.replace("libc.so.6", "libssl.so.3"));
        assert!(other.packages().is_err());
    }
}
