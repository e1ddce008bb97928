//! `roce env`: variables with which programs load this library where `roce run` does not start them.

use std::borrow::Cow;
use std::fmt::Write;

use clap::Args;

use crate::error::{CliError, Result};
use crate::output::print;
use crate::run;

const EXAMPLES: &str = "\
In a shell, in a GitHub workflow, and in a Containerfile's entry point:
  eval \"$(roce env --export)\"
  roce env >> \"$GITHUB_ENV\"
  exec env $(roce env) my-program

Only programs that read these variables load the library so; all others need `roce run`.";

/// Print the variables by which NCCL and others take a path to libibverbs
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Options {
    /// Print lines that a shell evaluates
    #[arg(long)]
    export: bool,
}

/// Variables, and what reads them.
const VARIABLES: [&str; 4] = [
    // NCCL 2.30 and RCCL.
    "NCCL_IBVERBS_LIB",
    "MSCCLPP_IBV_SO",
    "MORI_IBVERBS_LIB",
    // torchcomms and monarch.
    "IBVERBX_IBVERBS_SO",
];

/// Runs the command.
pub(crate) fn run(options: &Options) -> Result {
    let library = run::program::library::find()?.verbs_path()?;
    let path = library.to_str().filter(|path| !path.contains('\n')).ok_or_else(|| {
        CliError::new(format!(
            "the path {} is not UTF-8 or has a line break; install roce in another folder",
            library.display()
        ))
    })?;
    print(&lines(path, options.export))
}

fn lines(path: &str, export: bool) -> String {
    let mut text = String::new();
    for variable in VARIABLES {
        let _always = match export {
            true => writeln!(text, "export {variable}={}", quoted(path)),
            false => writeln!(text, "{variable}={path}"),
        };
    }
    text
}

/// Returns a word as a shell reads it.
fn quoted(word: &str) -> Cow<'_, str> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/._-+".contains(&byte);
    match word.bytes().all(is_plain) {
        true => Cow::Borrowed(word),
        false => Cow::Owned(format!("'{}'", word.replace('\'', r"'\''"))),
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn a_shell_reads_the_path_back() {
        for path in ["/usr/lib/roce/libibverbs.so.1", "/a b/it's/$x;`y`/libibverbs.so.1"] {
            let script = format!("{}printf %s \"$NCCL_IBVERBS_LIB\"", lines(path, true));
            let output = Command::new("sh").args(["-c", &script]).output().expect("sh");
            assert_eq!(String::from_utf8_lossy(&output.stdout), path);
        }
    }

    #[test]
    fn each_line_has_a_variable_and_the_path_as_it_is() {
        let expected: Vec<_> = VARIABLES.map(|name| format!("{name}=/a b/lib.so")).to_vec();
        assert_eq!(lines("/a b/lib.so", false).lines().collect::<Vec<_>>(), expected);
    }
}
