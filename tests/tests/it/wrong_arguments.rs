//! Calls of C programs that fail as with rdma-core: wrong arguments, full queues, no memory.

use roce_test_macros::tier1;
use roce_tests::fixtures::Cable;
use roce_tests::verbs_program::{VerbsProgram, expect_success, roce_run};

#[tier1]
fn wrong_arguments_fail_with_the_errors_of_rdma_core() {
    let cable = Cable::with_mtu(1500);
    VerbsProgram::linked("arguments").run_all(&cable.left, |_| {});
}

#[tier1]
fn requests_take_places_until_their_completions_are_polled_also_with_shards() {
    run_unpolled("arguments-places", "ROCE_SHARDS", "3");
}

#[tier1]
fn requests_that_are_done_take_no_places_where_the_environment_says_so() {
    run_unpolled("arguments-rule", "ROCE_QUEUES", "rxe");
}

#[tier1]
fn memory_files_are_registered_by_their_descriptor_where_the_environment_says_so() {
    let cable = Cable::with_mtu(1500);
    let program = VerbsProgram::linked("arguments");
    for scenario in ["memory-files", "no-dma-buffers"] {
        let mut command = program.command(scenario);
        command.env("ROCE_DMABUF", "memfd");
        expect_success(scenario, &cable.left, command);
    }
    // Another value is a mistake, which no device opens with.
    let mut command = program.command("moderation");
    let output = cable.left.run(|| command.env("ROCE_DMABUF", "1").output()).unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && errors.contains("ROCE_DMABUF"), "{errors}");
}

#[tier1]
fn wishes_for_fewer_events_are_counted() {
    let mut command = roce_run();
    let program = VerbsProgram::linked("arguments");
    command.args(["--counters", "--"]).arg(program.file()).arg("moderation");
    let output = Cable::with_mtu(1500).left.run(|| command.output()).unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    let is_it = |line: &str| line.ends_with(" 3") && line.contains(" cq_moderation_requests ");
    assert!(output.status.success() && errors.lines().any(is_it), "{errors}");
}

#[tier1("librdmacm-dev")]
fn calls_that_find_no_memory_fail_and_leave_nothing_behind() {
    let program = VerbsProgram::linked_with("exhausted", "exhausted", &["-lrdmacm"]);
    program.run_all(&Cable::with_mtu(1500).left, |_| {});
}

#[tier1("librdmacm-dev")]
fn no_memory_and_the_end_of_the_process_are_the_same_with_udp_sockets() {
    let program = VerbsProgram::linked_with("exhausted", "exhausted-udp", &["-lrdmacm"]);
    let cable = Cable::with_mtu(1500);
    for scenario in ["exit-and-open", "last-thread", "traffic-without-memory"] {
        let mut command = program.command(scenario);
        command.env("ROCE_BACKEND", "udp");
        expect_success(scenario, &cable.left, command);
    }
}

/// Runs the scenarios of requests whose completions are not polled, with a variable of the environment.
fn run_unpolled(variant: &str, name: &str, value: &str) {
    let cable = Cable::with_mtu(1500);
    let program = VerbsProgram::linked_with("arguments", variant, &[]);
    let is_one = |name: &String| name.starts_with("unpolled-");
    let scenarios: Vec<_> = program.scenarios().into_iter().filter(is_one).collect();
    assert!(scenarios.len() >= 6, "{scenarios:?}");
    for scenario in scenarios {
        let mut command = program.command(&scenario);
        command.env(name, value);
        expect_success(&scenario, &cable.left, command);
    }
}
