//! `roce generate`: the manual pages and shell completions that an installation has.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use clap::{Args, Command};
use clap_complete::Shell;
use clap_mangen::Man;

use crate::error::{CliError, Result};

/// Write the manual pages and the completions of bash, zsh and fish below a folder
#[derive(Args, Clone, Debug)]
pub(crate) struct Options {
    /// The folder `share` of an installation, such as /usr/local/share
    folder: PathBuf,
}

/// Runs the command; `all` is `roce` with every subcommand.
pub(crate) fn run(options: &Options, all: &Command) -> Result {
    let command = visible(all);
    write_pages(&command, &make_folder(&options.folder, "man/man1")?)?;
    for (shell, folder, name) in COMPLETIONS {
        let mut file = create(&make_folder(&options.folder, folder)?.join(name))?;
        clap_complete::generate(shell, &mut command.clone(), command.get_name(), &mut file);
    }
    Ok(())
}

/// Shells, and where they look for completions below `share`.
const COMPLETIONS: [(Shell, &str, &str); 3] = [
    (Shell::Bash, "bash-completion/completions", "roce"),
    (Shell::Zsh, "zsh/site-functions", "_roce"),
    (Shell::Fish, "fish/vendor_completions.d", "roce.fish"),
];

/// Returns a command without its hidden subcommands and options, which completions would offer.
fn visible(command: &Command) -> Command {
    let mut copy = Command::new(command.get_name().to_owned())
        .args(command.get_arguments().filter(|argument| !argument.is_hide_set()).cloned())
        .subcommands(command.get_subcommands().filter(|inner| !inner.is_hide_set()).map(visible))
        .subcommand_required(command.is_subcommand_required_set());
    if let Some(about) = command.get_about() {
        copy = copy.about(about.clone());
    }
    if let Some(text) = command.get_long_about() {
        copy = copy.long_about(text.clone());
    }
    if let Some(text) = command.get_after_help() {
        copy = copy.after_help(text.clone());
    }
    if let Some(version) = command.get_version() {
        copy = copy.version(version.to_owned());
    }
    copy
}

/// Writes the page of a command and of each of its subcommands.
fn write_pages(command: &Command, folder: &Path) -> Result {
    let mut command = command.clone().disable_help_subcommand(true);
    command.build();
    write_pages_of_built(&command, folder)
}

fn write_pages_of_built(command: &Command, folder: &Path) -> Result {
    let version = concat!("roce ", env!("CARGO_PKG_VERSION"));
    let page = Man::new(command.clone()).source(version).manual("RoCEv2 in user space");
    let file = folder.join(page.get_filename());
    let written = render(&page, command).and_then(|text| fs::write(&file, text));
    written.map_err(|error| CliError::context(file.display().to_string(), error))?;
    command.get_subcommands().try_for_each(|inner| write_pages_of_built(inner, folder))
}

/// Returns the text of a page. The examples behind the options keep their lines.
fn render(page: &Man, command: &Command) -> std::io::Result<Vec<u8>> {
    let mut text = Vec::new();
    page.render_title(&mut text)?;
    page.render_name_section(&mut text)?;
    page.render_synopsis_section(&mut text)?;
    page.render_description_section(&mut text)?;
    page.render_options_section(&mut text)?;
    if command.has_subcommands() {
        page.render_subcommands_section(&mut text)?;
    }
    if let Some(notes) = command.get_after_help() {
        writeln!(text, ".SH NOTES\n.nf")?;
        for line in notes.to_string().lines() {
            let line = line.replace('\\', "\\e").replace('-', "\\-");
            // A dot or an apostrophe would begin a request.
            writeln!(text, "\\&{line}")?;
        }
        writeln!(text, ".fi")?;
    }
    Ok(text)
}

fn make_folder(parent: &Path, name: &str) -> Result<PathBuf> {
    let folder = parent.join(name);
    let made = fs::create_dir_all(&folder);
    made.map_err(|error| CliError::context(folder.display().to_string(), error))?;
    Ok(folder)
}

fn create(path: &Path) -> Result<File> {
    File::create(path).map_err(|error| CliError::context(path.display().to_string(), error))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::cli::Cli;

    fn generated() -> (PathBuf, Vec<String>) {
        let folder = std::env::temp_dir().join(format!("roce-generate-{}", std::process::id()));
        run(&Options { folder: folder.clone() }, &Cli::command()).unwrap();
        let mut pages: Vec<String> = fs::read_dir(folder.join("man/man1"))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        pages.sort();
        (folder, pages)
    }

    #[test]
    fn each_visible_command_has_a_page_and_a_completion_and_hidden_ones_have_none() {
        let (folder, pages) = generated();
        for (_, place, name) in COMPLETIONS {
            let text = fs::read_to_string(folder.join(place).join(name)).unwrap();
            for shown in ["allreduce", "run", "pingpong", "link-mtu"] {
                assert!(text.contains(shown), "{shown} in {name}");
            }
            for hidden in ["generate", "local-rank", "nthreads", "run-stage", "supervise"] {
                assert!(!text.contains(hidden), "{hidden} in {name}");
            }
        }
        for command in Cli::command().get_subcommands() {
            let page = format!("roce-{}.1", command.get_name());
            assert_eq!(pages.contains(&page), !command.is_hide_set(), "{page} in {pages:?}");
        }
        let page = fs::read_to_string(folder.join("man/man1/roce.1")).unwrap();
        assert!(page.contains("\n\\&  roce run \\-\\-local 2 \\-\\- ib_write_bw\n"), "{page}");
        fs::remove_dir_all(folder).unwrap();
    }
}
