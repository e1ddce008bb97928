//! Programs that cannot load the library.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::process::Command;

use roce_test_macros::tier1;

use super::{Outcome, compile, roce_run, temporary, text};

#[tier1]
fn a_program_out_of_reach_is_named_and_run_all_the_same() -> Outcome {
    let source = temporary("nothing.c");
    fs::write(&source, "int main(void) { return 3; }\n")?;
    let program = temporary("static");
    compile(&source, &program, &["-static"])?;
    let name = program.to_str().ok_or("a path that is text")?;
    let output = roce_run(&["--", name]).output()?;
    let words = String::from_utf8(output.stderr)?;
    assert_eq!(output.status.code(), Some(3), "{words}");
    assert!(words.contains("statically linked") && words.lines().count() == 1, "{words}");

    let program = temporary("setuid");
    compile(&source, &program, &[])?;
    if chown(&program, Some(65534), None).is_err() {
        // In a user namespace there is no second user.
        return Ok(());
    }
    fs::set_permissions(&program, fs::Permissions::from_mode(0o4755))?;
    let name = program.to_str().ok_or("a path that is text")?;
    let words = String::from_utf8(roce_run(&["--", name]).output()?.stderr)?;
    assert!(words.contains("setuid") && words.lines().count() == 1, "{words}");
    Ok(())
}

/// Its loader ends a program for which it cannot load what `LD_PRELOAD` names.
#[tier1("musl-tools")]
fn a_program_on_another_c_library_is_named_and_run_without_ours() -> Outcome {
    let source = temporary("musl.c");
    fs::write(&source, "#include <stdio.h>\nint main(void) { puts(\"runs\"); return 5; }\n")?;
    let program = temporary("musl");
    let compiled = Command::new("musl-gcc").arg("-o").arg(&program).arg(&source).output()?;
    assert!(compiled.status.success(), "{compiled:?}");
    let script = temporary("musl-script");
    fs::write(&script, format!("#!{}\n", program.display()))?;
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755))?;
    for file in [&program, &script] {
        for place in [&["--"][..], &["--local", "1", "--prefix", "none", "--"]] {
            let output = roce_run(&[place, &[text(file)]].concat()).output()?;
            let words = String::from_utf8(output.stderr)?;
            assert_eq!(output.status.code(), Some(5), "{words}");
            assert_eq!(String::from_utf8(output.stdout)?, "runs\n");
            assert!(words.contains("another C library"), "{words}");
        }
    }
    Ok(())
}
