//! The C programs under tools that check each access to memory: AddressSanitizer and Valgrind. Both
//! see the library's accesses to a program's memory by functions of the C library; Valgrind sees all.

use std::process::Command;

use roce_netns::Host;
use roce_test_macros::tier1;
use roce_tests::fixtures::Cable;
use roce_tests::verbs_program::{VerbsProgram, expect_success, roce_run};

/// Makes a program do little: these tools make everything slow.
fn reduce(command: &mut Command) {
    command.env("FEW_ROUNDS", "1").env("TIME_LIMIT", "120");
}

/// Compiles a program with AddressSanitizer, whose runtime is linked statically: as a library it
/// would have to stand before all that is preloaded.
fn with_sanitizer(folder: &str) -> VerbsProgram {
    let flags = ["-fsanitize=address", "-static-libasan", "-fno-omit-frame-pointer"];
    VerbsProgram::linked_with(folder, &format!("{folder}-asan"), &flags)
}

#[tier1]
fn address_sanitizer_finds_nothing_in_the_torture() {
    let cable = Cable::with_mtu(1500);
    let program = with_sanitizer("torture");
    // Up to GCC 13, the sanitizer's allocator does not hold its locks during `fork`: a child waits for
    // one for ever if a thread of the library or of the program was allocating. A child that calls
    // `exec` allocates nothing before.
    const FORKS_BESIDE_THREADS: [&str; 5] = [
        "fork-after-open",
        "fork-connected",
        "fork-outstanding",
        "fork-beside-posting",
        "fork-after-close",
    ];
    let mut scenarios = program.scenarios();
    for scenario in FORKS_BESIDE_THREADS {
        assert!(scenarios.iter().any(|it| it == scenario), "a scenario {scenario}");
    }
    scenarios.retain(|it| !FORKS_BESIDE_THREADS.contains(&it.as_str()));
    for scenario in scenarios {
        let mut command = program.command(&scenario);
        // The leaks that it finds are those of children, which end with a copy of all.
        command.env("ASAN_OPTIONS", "detect_leaks=0");
        reduce(&mut command);
        expect_success(&scenario, &cable.left, command);
    }
}

#[tier1]
fn address_sanitizer_finds_nothing_with_wrong_arguments() {
    let cable = Cable::with_mtu(1500);
    with_sanitizer("arguments").run_all(&cable.left, reduce);
}

/// Runs a scenario under Valgrind, with status 9 if that finds an error.
fn run_under_valgrind(host: &Host, program: &VerbsProgram, scenario: &str, options: &[&str]) {
    let mut command = roce_run();
    command.args(["--", "valgrind", "--quiet", "--error-exitcode=9"]).args(options);
    command.arg(program.file()).arg(scenario);
    reduce(&mut command);
    expect_success(scenario, host, command);
}

#[tier1("valgrind")]
fn valgrind_finds_no_wrong_access() {
    let cable = Cable::with_mtu(1500);
    let torture = VerbsProgram::linked("torture");
    for scenario in ["fork-connected", "exit-in-a-thread", "threads-on-one-queue-pair"] {
        run_under_valgrind(&cable.left, &torture, scenario, &[]);
    }
    let arguments = VerbsProgram::linked("arguments");
    for scenario in ["registrations", "refused-requests"] {
        run_under_valgrind(&cable.left, &arguments, scenario, &[]);
    }
}

#[tier1("valgrind")]
fn valgrind_finds_no_leak_of_closed_objects() {
    let cable = Cable::with_mtu(1500);
    let program = VerbsProgram::linked("torture");
    let options = ["--leak-check=full", "--errors-for-leak-kinds=definite"];
    for scenario in ["own-device", "unacknowledged-event"] {
        run_under_valgrind(&cable.left, &program, scenario, &options);
    }
}
