//! Draws the terminal picture of README.md: the project's main command and what it prints.

use std::fs;
use std::time::Duration;

use anstyle_svg::Term;
use roce_netns::process::{Launch, Outcome};

use crate::{Result, workspace};

/// The arguments of `roce` that the picture shows.
const ARGUMENTS: [&str; 9] = ["allreduce", "--local", "3", "-b", "8", "-e", "64M", "-f", "8"];

/// The picture, from the workspace's top folder.
const PICTURE: &str = "docs/allreduce.svg";

/// Runs the command and writes the picture.
///
/// # Errors
/// When `roce` does not compile, the command fails, or the picture cannot be written.
pub(crate) fn run() -> Result<()> {
    if !workspace::cargo()
        .args(["build", "--quiet", "--release", "--bin", "roce"])
        .status()?
        .success()
    {
        return Err("roce does not compile".into());
    }
    let roce = Launch::new(workspace::target().join("release/roce")).args(ARGUMENTS).join_stderr();
    let Outcome { status, stdout, .. } = roce.start()?.wait(Duration::MAX)?;
    if !status.success() {
        return Err(format!("{} ended with {status}:\n{stdout}", command_line()).into());
    }
    fs::write(workspace::root().join(PICTURE), picture(&stdout))?;
    println!("wrote {PICTURE}");
    Ok(())
}

/// Returns the picture of a terminal in which the command printed `output`.
fn picture(output: &str) -> String {
    let screen =
        format!("\x1b[32m$\x1b[0m \x1b[1m{}\x1b[0m\n{}", command_line(), output.trim_end());
    let svg = Term::new().min_width_px(0).render_svg(&screen);
    // Without a view box a browser crops the picture on a narrow page instead of scaling it.
    let size = |name: &str| Some(svg.split_once(name)?.1.split_once("px")?.0);
    match (size("width=\""), size("height=\"")) {
        (Some(width), Some(height)) => {
            svg.replacen("<svg ", &format!("<svg viewBox=\"0 0 {width} {height}\" "), 1)
        }
        _ => svg,
    }
}

fn command_line() -> String {
    format!("roce {}", ARGUMENTS.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_picture_that_the_readme_shows_is_of_this_command() {
        let read = |path: &str| fs::read_to_string(workspace::root().join(path)).unwrap();
        assert!(read("README.md").contains(&format!("]({PICTURE})")));
        assert!(read(PICTURE).contains(&command_line()), "run `cargo xtask picture`");
    }

    #[test]
    fn a_picture_can_be_scaled() {
        let svg = picture("a line\nand another\n");
        assert!(svg.starts_with("<svg viewBox=\"0 0 "), "{svg}");
        assert!(svg.contains("and another") && svg.ends_with("</svg>\n"), "{svg}");
    }
}
