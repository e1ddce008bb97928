//! The binary interface of `libibverbs.so.1` beside that of the installed one.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use roce_test_macros::tier1;
use roce_tests::verbs_program::library;

/// Where Debian installs the library of rdma-core.
const INSTALLED: &str = "/usr/lib/x86_64-linux-gnu/libibverbs.so.1";

/// Newest version of the C library that ours may need: that of Debian 12, Ubuntu 22.04 and RHEL 9.
const NEWEST_GLIBC: [u32; 2] = [2, 34];

fn output_of(program: &str, arguments: &[&str], file: &Path) -> String {
    let output = Command::new(program).args(arguments).arg(file).output().unwrap();
    let words = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {}: {words}", file.display());
    String::from_utf8(output.stdout).unwrap()
}

/// Returns the kind of each exported symbol, by its name and version, such as
/// `ibv_open_device@@IBVERBS_1.1`. Version nodes themselves are left out.
fn exports_of(file: &Path) -> BTreeMap<String, char> {
    let listed = output_of("nm", &["-D", "--defined-only", "--with-symbol-versions"], file);
    let symbols = listed.lines().filter_map(|line| {
        let [_, kind, name] = line.split_whitespace().collect::<Vec<_>>().try_into().ok()?;
        Some((name.to_owned(), kind.chars().next()?))
    });
    symbols.filter(|(_, kind)| *kind != 'A').collect()
}

/// Returns the versions that a file needs of other libraries, such as `GLIBC_2.34`.
fn needs_of(file: &Path) -> Vec<String> {
    let imported = output_of("objdump", &["-T"], file);
    let undefined = imported.lines().filter(|line| line.contains("*UND*"));
    let versions = undefined.filter_map(|line| line.split(['(', ')']).nth(1)).map(str::to_owned);
    versions.collect()
}

#[tier1("libibverbs-dev")]
fn every_symbol_of_rdma_core_is_exported_with_its_version() {
    let [ours, theirs] = [&library(), Path::new(INSTALLED)].map(exports_of);
    // A name of several versions has one default, which dlsym finds; programs that are linked or use
    // dlvsym name the version. Of the private names the newest version is the default.
    let of_version = |name: &str| name.replace("@@", "@");
    let ours: BTreeMap<_, _> = ours
        .into_iter()
        .flat_map(|(name, kind)| [(of_version(&name), kind), (name, kind)])
        .collect();
    let is_found = |name: &str| {
        ours.contains_key(name)
            || (name.contains("@@IBVERBS_PRIVATE_") && ours.contains_key(&of_version(name)))
            // The versions of the time before 2007 have structures of other sizes.
            || is_ancient(name, &theirs)
    };
    let missing: Vec<_> = theirs.keys().filter(|name| !is_found(name)).collect();
    assert!(theirs.len() > 150, "{} symbols of rdma-core", theirs.len());
    assert!(missing.is_empty(), "{missing:?}");
    // Data stays data: a program copies it into itself.
    let is_data = |kind: char| "BDRV".contains(kind);
    for (name, kind) in theirs.iter().filter(|(name, _)| ours.contains_key(*name)) {
        assert_eq!(is_data(ours[name]), is_data(*kind), "{name}");
    }
}

/// Returns true for a version 1.0 of a function that has a later one.
fn is_ancient(name: &str, all: &BTreeMap<String, char>) -> bool {
    name.strip_suffix("@IBVERBS_1.0")
        .is_some_and(|function| all.contains_key(&format!("{function}@@IBVERBS_1.1")))
}

#[tier1("binutils")]
fn nothing_is_exported_without_a_version() {
    let exports = exports_of(&library());
    let has_version = |name: &str| name.contains("@IBVERBS_") || name.ends_with("@@ROCE_PRIVATE_1");
    let stray: Vec<_> = exports.keys().filter(|name| !has_version(name)).collect();
    assert!(stray.is_empty(), "{stray:?}");
}

#[tier1("binutils")]
fn the_library_runs_with_the_c_libraries_of_the_distributions() {
    let needs = needs_of(&library());
    assert!(needs.iter().any(|need| need.starts_with("GLIBC_")), "{needs:?}");
    for need in needs.iter().filter_map(|need| need.strip_prefix("GLIBC_")) {
        let numbers: Vec<u32> = need.split('.').map(|part| part.parse().unwrap()).collect();
        assert!(numbers[..2] <= NEWEST_GLIBC[..], "GLIBC_{need}");
    }
}

#[tier1("binutils")]
fn the_library_has_the_name_that_programs_load_and_stays_in_memory() {
    let dynamic = output_of("readelf", &["-dW"], &library());
    assert!(dynamic.contains("Library soname: [libibverbs.so.1]"), "{dynamic}");
    assert!(dynamic.contains("NODELETE"), "{dynamic}");
}
