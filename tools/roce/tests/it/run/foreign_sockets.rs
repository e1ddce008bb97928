//! Programs whose functions for sockets another library replaces, as librspreload does.

use std::fs;

use roce_test_macros::tier1;

use super::{Outcome, compile, output_of, temporary, text};

#[tier1("rdmacm-utils")]
fn no_library_takes_sockets_of_this_one_or_gets_calls_that_it_is_not_ready_for() -> Outcome {
    let source = temporary("sockets.c");
    fs::write(&source, include_str!("sockets.c"))?;
    let library = temporary("sockets.so");
    compile(&source, &library, &["-shared", "-fPIC", "-O1"])?;
    let preloaded = format!("LD_PRELOAD=\"{} $LD_PRELOAD\" exec", text(&library));
    let list = format!("{preloaded} ibv_devinfo");
    let listed = output_of(&["--local", "1", "--timeout", "60", "--", "sh", "-c", &list])?;
    assert!(listed.contains("PORT_ACTIVE"), "{listed}");
    let ping = format!("a={{peer?}}; {preloaded} ucmatose -C 3 ${{a:+-s}} $a");
    let done = output_of(&["--local", "2", "--timeout", "60", "--", "sh", "-c", &ping])?;
    assert!(done.matches("return status 0").count() == 2, "{done}");
    Ok(())
}
