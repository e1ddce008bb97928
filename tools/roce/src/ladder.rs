//! `roce ladder`: a capture as a page to look at.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};

use clap::Args;
use roce_lab::{CaptureLadderError, Ladder};

use crate::error::{CliError, Result};

/// Draw a capture as a ladder of packets between hosts: one page that needs nothing else
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Options {
    /// A pcap or pcapng file, or - for standard input
    capture: PathBuf,
    /// File for the page, or - for standard output [default: that of the capture with the ending
    /// .html, in this folder; standard output if the capture is standard input]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Packets drawn at most; the page says when there were more
    #[arg(long, value_name = "N", default_value_t = 100_000)]
    max_packets: usize,
}

const EXAMPLES: &str = "\
Examples:
  roce ladder capture.pcapng
  tcpdump -i eth0 -c 1000 -w - udp port 4791 | roce ladder - -o ladder.html";

/// Runs the command.
pub(crate) fn run(options: &Options) -> Result {
    let name = options.capture.display().to_string();
    let input: Box<dyn Read> = if name == "-" {
        Box::new(io::stdin().lock())
    } else {
        let file = File::open(&options.capture);
        Box::new(file.map_err(|why| CliError::context(format!("cannot open {name}"), why))?)
    };
    let ladder = match Ladder::of_capture(BufReader::new(input), &name, options.max_packets) {
        Err(CaptureLadderError::NotACapture(why)) => {
            eprintln!("roce: {name}: {why}");
            return Err(CliError::Reported(2));
        }
        other => other?,
    };
    if ladder.is_empty() {
        return crate::output::print(&format!("{name}: no RoCE packet in it, so no ladder\n"));
    }
    let page = ladder.to_html()?;
    if let Some(output) = &options.output {
        return crate::lab::write_page(output, &page);
    }
    let output = default_output(&options.capture);
    crate::lab::write_page(&output, &page)?;
    if output != Path::new("-") {
        eprintln!("roce: wrote {}", output.display());
    }
    Ok(())
}

/// Returns the file for the page of a capture: `out/a.pcapng.gz` has `a.html`, and standard input standard
/// output.
fn default_output(capture: &Path) -> PathBuf {
    match capture.file_name() {
        Some(name) if name != "-" => {
            let name = Path::new(name);
            let name = if name.extension().is_some_and(|it| it == "gz") {
                name.with_extension("")
            } else {
                name.to_owned()
            };
            name.with_extension("html")
        }
        _ => PathBuf::from("-"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_named_after_its_capture_and_stays_in_this_folder() {
        for (capture, output) in [
            ("a.pcapng", "a.html"),
            ("out/a.b.pcap", "a.b.html"),
            ("a.pcapng.gz", "a.html"),
            ("a", "a.html"),
            ("-", "-"),
        ] {
            assert_eq!(default_output(Path::new(capture)), Path::new(output), "{capture}");
        }
    }
}
