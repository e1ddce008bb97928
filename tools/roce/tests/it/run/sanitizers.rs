//! Programs that are built with a sanitizer, and libraries that the user preloads.

use std::fs;
use std::process::Output;

use roce_test_macros::tier1;

use super::{Outcome, compile, roce_run, succeeded, temporary, text};

fn build(sanitizer: &str) -> Outcome<String> {
    let source = temporary("sanitized.c");
    fs::write(&source, include_str!("sanitized.c"))?;
    let program = temporary(&format!("sanitized-{sanitizer}"));
    let flag = format!("-fsanitize={sanitizer}");
    compile(&source, &program, &["-g", "-pthread", &flag, "-l:libibverbs.so.1"])?;
    Ok(text(&program).to_owned())
}

fn run(ranks: &str, view: &str, line: &[&str]) -> Outcome<Output> {
    let options = ["--local", ranks, "--view", view, "--"];
    let mut command = roce_run(&[&options[..], line].concat());
    // Memory that the standard library of Rust orders by fences, which ThreadSanitizer does not see.
    let suppressions = temporary("suppressions");
    fs::write(&suppressions, "called_from_lib:libibverbs.so\n")?;
    command.env("TSAN_OPTIONS", format!("suppressions={}", suppressions.display()));
    Ok(command.output()?)
}

#[tier1]
fn programs_that_are_built_with_sanitizers_run() -> Outcome {
    for sanitizer in ["address", "thread", "undefined", "leak"] {
        let program = build(sanitizer)?;
        for view in ["mount", "preload"] {
            let direct = [program.as_str(), "{rank}"];
            let wrapped = format!("{program} {{rank}}; exit $?");
            for line in [
                &direct[..],
                &["sh", "-c", &wrapped],
                &["env", "ASAN_OPTIONS=verify_asan_link_order=0", &program, "{rank}"],
            ] {
                for ranks in ["1", "2"] {
                    let text = succeeded(&run(ranks, view, line)?)
                        .map_err(|error| format!("{sanitizer} {view} {line:?}: {error}"))?;
                    let found = text.matches("device roce0").count();
                    assert_eq!(found.to_string(), ranks, "{sanitizer} {view} {line:?}: {text}");
                }
            }
        }
    }
    Ok(())
}

#[tier1]
fn a_sanitizer_finds_what_it_looks_for() -> Outcome {
    let program = build("address")?;
    let output = run("1", "mount", &[&program, "use-after-free"])?;
    let words = String::from_utf8(output.stderr)?;
    assert!(words.contains("heap-use-after-free"), "{words}");
    assert_eq!(output.status.code(), Some(1), "{words}");
    Ok(())
}

#[tier1]
fn libraries_that_the_user_preloads_come_first() -> Outcome {
    let mut command = roce_run(&["--local", "1", "--", "sh", "-c", "echo $LD_PRELOAD"]);
    let text = succeeded(&command.env("LD_PRELOAD", "libm.so.6").output()?)?;
    assert!(text.starts_with("[0] libm.so.6:/"), "{text}");
    // An interpreter with an extension that is built with AddressSanitizer is started like this.
    let script = "import ctypes; print(len(open('/proc/self/maps').read()) > 0)";
    let mut command = roce_run(&["--local", "1", "--", "python3", "-c", script]);
    command
        .env("LD_PRELOAD", "libasan.so.8")
        .env("ASAN_OPTIONS", "detect_leaks=0:verify_asan_link_order=1");
    assert_eq!(succeeded(&command.output()?)?, "[0] True\n");
    Ok(())
}
