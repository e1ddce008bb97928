//! Sentences about links and rails that a command cannot follow.

use std::process::Command;

use roce_test_macros::tier1;

use super::{Outcome, roce, roce_run};

#[tier1]
fn a_link_or_rail_that_a_command_has_not_is_refused() -> Outcome {
    let private = "links go down between private hosts alone: use roce run --local N";
    for (line, told) in [
        (
            &["--local", "2", "--fault", "rail 1 down"][..],
            "the only rail is 0; --rails K makes several",
        ),
        (&["--local", "2", "--rails", "3", "--fault", "rail 3 down"], "the rails are 0 to 2"),
        (&["--local", "2", "--rails", "3", "--fault", "drop 1% on rail 3"], "the rails are 0 to 2"),
        (&["--local", "2", "--fault", "rail 0 of rank 2 down"], "the ranks are 0 to 1"),
        (&["--local", "2", "--fault", "rail 0 up"], "\"down\" or \"flap\""),
        (&["--fault", "rail 0 down"], private),
        (&["--local", "2", "--require", "no packet on rail 1 after 2s"], "the rails are 0 to 0"),
        (&["--local", "2", "--require", "no pause above 2s"], "\"pause\" where"),
    ] {
        let output = roce_run(line).args(["--", "true"]).output()?;
        let said = String::from_utf8(output.stderr)?;
        assert!(!output.status.success() && said.contains(told), "{line:?}: {said}");
    }
    let output = Command::new(roce())
        .args(["perf", "write", "bw", "--local", "--fault", "rail 0 down"])
        .output()?;
    let said = String::from_utf8(output.stderr)?;
    assert!(!output.status.success() && said.contains(private), "{said}");
    Ok(())
}

#[tier1]
fn a_run_that_does_not_show_what_is_required_ends_with_an_exit_code_of_its_own() -> Outcome {
    let line = ["--local", "1", "--require", "no standstill above 1s", "--", "true"];
    let output = roce_run(&line).output()?;
    let said = String::from_utf8(output.stderr)?;
    assert_eq!(output.status.code(), Some(123), "{said}");
    let told = "required: no standstill above 1s: not shown: rank 0 completed nothing\n";
    assert!(said.contains(told), "{said}");
    Ok(())
}

#[tier1]
fn a_link_that_never_went_down_fails_the_run() -> Outcome {
    let line = ["--local", "1", "--fault", "rail 0 down from 1000s", "--", "true"];
    let output = roce_run(&line).output()?;
    let said = String::from_utf8(output.stderr)?;
    assert_eq!(output.status.code(), Some(125), "{said}");
    assert!(said.contains("rail 0 down from 1000s: never happened\n"), "{said}");
    assert!(said.contains("a scripted fault never happened: the run ended before"), "{said}");
    Ok(())
}
