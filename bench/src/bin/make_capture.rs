//! Writes the capture that `dissect_vs_tshark` measures with.
#![forbid(unsafe_code)]

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::PathBuf;

use clap::Parser;

/// Write a capture of many packets: half data packets of 1 KiB, half of 100 bytes or less
#[derive(Debug, Parser)]
struct Arguments {
    /// Where to
    file: PathBuf,
    /// At least so many packets
    #[arg(long, default_value_t = 1_000_000)]
    packets: u64,
}

fn main() -> io::Result<()> {
    let arguments = Arguments::parse();
    let mut file = BufWriter::with_capacity(1 << 20, File::create(&arguments.file)?);
    let packets = roce_bench::traffic::write_capture(&mut file, arguments.packets)?;
    file.flush()?;
    println!("{packets} packets");
    Ok(())
}
