//! The lines of `docs/run.md` about sanitizers and debuggers.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use roce_test_macros::tier1;
use roce_tests::verbs_program::{VerbsProgram, roce_run};

const SECTION: &str = "## Sanitizers and debuggers";
/// The line that each end of the program prints at its end.
const LAST_LINE: &str = "all messages are right";

/// Returns the section of the document.
fn section() -> String {
    let document = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/run.md");
    let text = fs::read_to_string(document).expect("the document");
    let (_, after) = text.split_once(&format!("{SECTION}\n")).expect("the section");
    after.split_once("\n## ").map_or(after, |(section, _)| section).to_owned()
}

/// Compiles the program as a line of the document says.
fn compile(line: &str) -> VerbsProgram {
    let flags: Vec<_> = line.split(' ').filter(|word| word.starts_with("-fsanitize=")).collect();
    let variant = format!("checked{}", flags.concat().replace(['=', ','], "-"));
    VerbsProgram::linked_with("checked", &variant, &flags)
}

/// Runs a line of the document in a folder, and returns what is wrong.
fn problem_of(line: &str, program: &VerbsProgram, folder: &Path) -> Option<String> {
    let roce = roce_run().get_program().to_string_lossy().into_owned();
    let program = program.file().to_string_lossy();
    let is_debugger = line.contains("gdb ");
    let line = line.replace("roce run", &format!("{roce} run")).replace("./program", &program);
    let mut shell = Command::new("sh");
    shell.arg("-c").arg(&line).current_dir(folder).stdin(Stdio::null());
    let output = shell.output().expect("a shell");
    let words = [output.stdout, output.stderr].concat();
    let words = String::from_utf8_lossy(&words).into_owned();
    let ends = if line.contains("--local 2") { 2 } else { 1 };
    let is_right = output.status.success()
        && words.matches(LAST_LINE).count() == ends
        && (!is_debugger || words.contains("exited normally"));
    (!is_right).then(|| format!("{line}: {}\n{words}", output.status))
}

#[tier1("valgrind gdb")]
fn the_documented_lines_for_sanitizers_and_debuggers_work() {
    let section = section();
    let folder = std::env::temp_dir().join(format!("roce-tools-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("a folder");
    let (_, suppressions) = section.split_once("```text\n").expect("the suppressions");
    let (suppressions, _) = suppressions.split_once("```").expect("the end of the block");
    fs::write(folder.join("roce.supp"), suppressions).expect("a file");
    let (mut program, mut count, mut problems) = (None, 0, Vec::new());
    for line in section.lines().filter_map(|line| line.strip_prefix("$ ")) {
        if line.starts_with("gcc ") {
            program = Some(compile(line));
        } else {
            count += 1;
            let program = program.as_ref().expect("compiled before it is run");
            problems.extend(problem_of(line, program, &folder));
        }
    }
    let _gone = fs::remove_dir_all(&folder);
    assert!(problems.is_empty(), "{}", problems.join("\n"));
    assert!(count >= 9, "{count} lines");
}

#[tier1("valgrind gdb")]
fn without_suppressions_valgrind_reports_unset_bytes_that_are_sent() {
    let program = VerbsProgram::linked("checked");
    let line =
        "SEND_PADDING=1 roce run --local 1 -- valgrind -q --error-exitcode=9 ./program alone";
    let problem = problem_of(line, &program, &std::env::temp_dir()).expect("a report");
    assert!(problem.contains("uninitialised"), "{problem}");
}
