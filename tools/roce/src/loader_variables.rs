//! Variables that the dynamic loader has removed.
//!
//! A program whose file has a capability, as `setcap` gives one to `roce`, is a secure one: the loader removes
//! `LD_LIBRARY_PATH`, `LD_PRELOAD`, `TMPDIR` and the like from its environment. They are meant for the program of
//! the run, which is none, and the kernel still shows the environment as it was.

use std::collections::BTreeSet;
use std::env;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::process::Command;
use std::sync::OnceLock;

use nix::sys::prctl;
use nix::unistd::{getegid, geteuid, getgid, getuid};

/// Returns the variables that the loader has removed, and their values.
fn removed() -> &'static [(OsString, OsString)] {
    static REMOVED: OnceLock<Vec<(OsString, OsString)>> = OnceLock::new();
    REMOVED.get_or_init(|| {
        // With the rights of another user they stay removed: what they name may not be that user's.
        let is_same_user = getuid() == geteuid() && getgid() == getegid();
        let here: BTreeSet<OsString> = env::vars_os().map(|(name, _)| name).collect();
        let initial = is_same_user.then(initial_block).unwrap_or_default();
        let is_missing = |(name, _): &(OsString, OsString)| !here.contains(name);
        parse(&initial).filter(is_missing).collect()
    })
}

/// Gives a program that is started the variables that the loader has removed.
pub(crate) fn give_back(command: &mut Command) {
    command.envs(removed().iter().map(|(name, value)| (name, value)));
}

/// Returns the value of a variable, also of one that was removed.
pub(crate) fn var_os(name: &str) -> Option<OsString> {
    let found = removed().iter().find(|(removed, _)| removed == name);
    env::var_os(name).or_else(|| found.map(|(_, value)| value.clone()))
}

/// Returns the environment with which this program was started.
fn initial_block() -> Vec<u8> {
    let read = || fs::read("/proc/self/environ");
    read().unwrap_or_else(|_| {
        // The files in /proc of a process whose file has a capability are root's, unless it says so.
        let _ = prctl::set_dumpable(true);
        let block = read().unwrap_or_default();
        let _ = prctl::set_dumpable(false);
        block
    })
}

/// Returns the variables of an environment, each with a zero behind it.
fn parse(block: &[u8]) -> impl Iterator<Item = (OsString, OsString)> {
    block.split(|byte| *byte == 0).filter_map(|line| {
        let at = line.iter().position(|byte| *byte == b'=').filter(|at| *at > 0)?;
        let owned = |bytes: &[u8]| OsStr::from_bytes(bytes).to_owned();
        Some((owned(&line[..at]), owned(&line[at + 1..])))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_environment_is_parsed_as_the_kernel_shows_it() {
        let parsed: Vec<_> = parse(b"A=1\0B=\0=x\0no\0C=a=b\0").collect();
        let pair = |name: &str, value: &str| (name.into(), value.into());
        assert_eq!(parsed, [pair("A", "1"), pair("B", ""), pair("C", "a=b")]);
        // Nothing was removed here.
        assert_eq!(removed(), []);
    }
}
