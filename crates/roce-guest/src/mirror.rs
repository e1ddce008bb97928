//! The archive from which apt installs this machine's packages.

use crate::GuestError;
use crate::tool::{Tool, run_tool};

/// Returns the URL of the mirror from which apt installs packages of this machine's Debian release. It has
/// other releases, too.
///
/// # Errors
/// [`GuestError::NoMirror`] if apt has no source of a whole release; if there is no apt.
///
/// ```no_run
/// let mirror = roce_guest::debian_mirror()?;
/// assert!(mirror.contains("://"));
/// # Ok::<(), roce_guest::GuestError>(())
/// ```
pub fn debian_mirror() -> Result<String, GuestError> {
    let targets = run_tool(Tool::AptGet, |apt| {
        apt.args(["indextargets", "--format", "$(SITE) $(CODENAME) $(COMPONENT)"])
            .arg("Created-By: Packages")
    })?;
    mirror_of(&targets).map(str::to_owned).ok_or(GuestError::NoMirror)
}

/// Returns the site of the first release as a whole: updates of one have a hyphen in their codename.
fn mirror_of(targets: &str) -> Option<&str> {
    targets.lines().find_map(|line| match line.split_whitespace().collect::<Vec<_>>()[..] {
        [site, codename, "main"] if !codename.contains('-') => Some(site),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mirror_is_that_of_a_whole_release_and_not_of_its_updates() {
        let targets = "http://one/security bookworm-security main\n\
                       http://two/other bookworm contrib\n\
                       http://three/debian bookworm main\n\
                       http://four/debian trixie main\n";
        assert_eq!(mirror_of(targets), Some("http://three/debian"));
        assert_eq!(mirror_of("http://one/security bookworm-security main\n\n"), None);
    }
}
