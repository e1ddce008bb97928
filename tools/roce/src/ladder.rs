//! `roce ladder`: a capture as a page to look at.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::PathBuf;

use clap::Args;
use roce_lab::{CaptureLadderError, Ladder};

use crate::error::{CliError, Result};

/// Draw a capture as a ladder of packets between hosts: one page that needs nothing else
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Options {
    /// A pcap or pcapng file, or - for standard input
    capture: PathBuf,
    /// File for the page, or - for standard output
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// Packets drawn at most; the page says when there were more
    #[arg(long, value_name = "N", default_value_t = 100_000)]
    max_packets: usize,
}

const EXAMPLES: &str = "\
Examples:
  roce ladder capture.pcapng -o ladder.html
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
    crate::lab::write_page(&options.output, &page)
}
