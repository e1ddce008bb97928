//! Which tests: of a program, of a tier, of a name.

use crate::Result;
use crate::binaries::{self, ListedTest, TestProgram};
use crate::stages::Log;

/// Tests of one program.
pub(crate) type Listed = (TestProgram, Vec<ListedTest>);

/// Builds the test programs and lists their tests.
pub(crate) fn list(log: &Log) -> Result<Vec<Listed>> {
    let programs = binaries::build(log)?;
    let listed = programs.into_iter().map(|program| {
        let tests = binaries::list(&program)?;
        Ok((program, tests))
    });
    listed.collect()
}

/// Returns the tests of `cargo xtask test --quick`.
pub(crate) fn quick(all: &[Listed]) -> Vec<Listed> {
    filtered(all.to_vec(), |program, test| {
        let name = program.full_name(&test.name);
        QUICK.iter().any(|module| name.starts_with(module))
    })
}

/// Modules of tier 1 whose tests take half a minute together, and cross each way that a packet takes.
const QUICK: &[&str] = &[
    "roce-io/",
    "roce/connection_management::",
    "roce/dissect_live::",
    "tests/connection_management::",
    "tests/contexts::",
    "tests/datagrams::",
    "tests/errors::",
    "tests/joined_groups::",
    "tests/memory::",
    "tests/memory_windows::",
    "tests/multi_process::",
    "tests/multicast::",
    "tests/reopening::",
    "tests/routes::",
    "tests/shared_receive_queue::",
    "tests/udp_sockets::",
    "tests/unreliable_connection::",
    "tests/veth_operations::",
];

/// Returns the tests whose full name contains `name`; the one alone whose full name it is.
pub(crate) fn named(name: &str, all: Vec<Listed>) -> Vec<Listed> {
    let is_full = all
        .iter()
        .any(|(program, tests)| tests.iter().any(|test| program.full_name(&test.name) == name));
    let matches = |full: String| if is_full { full == name } else { full.contains(name) };
    filtered(all, |program, test| matches(program.full_name(&test.name)))
}

pub(crate) fn with_tier(all: &[Listed], tier: Option<u32>) -> Vec<Listed> {
    filtered(all.to_vec(), |_, test| test.tier == tier)
}

pub(crate) fn has_tier(all: &[Listed], tier: u32) -> bool {
    !with_tier(all, Some(tier)).is_empty()
}

/// Returns the tests that `is_wanted` admits, without programs that have none of them.
fn filtered(
    all: Vec<Listed>,
    is_wanted: impl Fn(&TestProgram, &ListedTest) -> bool,
) -> Vec<Listed> {
    let kept = all.into_iter().map(|(program, mut tests)| {
        tests.retain(|test| is_wanted(&program, test));
        (program, tests)
    });
    kept.filter(|(_, tests)| !tests.is_empty()).collect()
}

pub(crate) fn full_names(listed: &[Listed]) -> Vec<String> {
    let names = listed
        .iter()
        .flat_map(|(program, tests)| tests.iter().map(|test| program.full_name(&test.name)));
    names.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(programs: &[(&str, &[(&str, u32)])]) -> Vec<Listed> {
        let listed = programs.iter().map(|(program, tests)| {
            let tests = tests
                .iter()
                .map(|(name, tier)| ListedTest { name: (*name).to_owned(), tier: Some(*tier) });
            (TestProgram::named(program), tests.collect())
        });
        listed.collect()
    }

    fn all() -> Vec<Listed> {
        listed(&[
            ("wire/wire", &[("psn::wraps", 0), ("psn::wraps_twice", 0)]),
            ("tests/veth", &[("wraps", 1), ("other", 1)]),
            ("tests/guest", &[("answers", 2)]),
        ])
    }

    #[test]
    fn a_name_selects_the_tests_of_any_tier_that_contain_it() {
        let found = full_names(&named("wraps", all()));
        assert_eq!(
            found,
            ["wire/wire::psn::wraps", "wire/wire::psn::wraps_twice", "tests/veth::wraps"]
        );
        assert_eq!(full_names(&named("tests/guest::", all())), ["tests/guest::answers"]);
        assert!(named("absent", all()).is_empty());
    }

    #[test]
    fn a_full_name_selects_one_test_even_if_another_name_begins_with_it() {
        let found = full_names(&named("wire/wire::psn::wraps", all()));
        assert_eq!(found, ["wire/wire::psn::wraps"]);
    }

    #[test]
    fn a_tier_has_its_tests_and_no_program_without_one() {
        assert_eq!(
            full_names(&with_tier(&all(), Some(1))),
            ["tests/veth::wraps", "tests/veth::other"]
        );
        assert_eq!(with_tier(&all(), Some(1)).len(), 1);
        assert!(has_tier(&all(), 2) && !has_tier(&all(), 3));
    }
}
