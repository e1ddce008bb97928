//! `roce simulate allreduce`: large rings in virtual time.

use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::time::Instant;

use clap::Args;
use roce_lab::{Rate, Scale, ScaleResult, Span};
use serde_json::json;

use crate::error::{CliError, Result};
use crate::output::print;
use crate::parse_number;

/// Time a ring allreduce (sum of floats) on a simulated network, with the real engine
///
/// N ranks on N hosts around one switch, each with a link of the given rate and delay, full
/// duplex. Every packet is built, switched and checked; only time is simulated.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Options {
    /// Numbers of ranks
    #[arg(long, value_delimiter = ',', default_value = "8,16,32,64,128,256", value_parser = ranks)]
    ranks: Vec<usize>,
    /// Sizes of the vector in bytes
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "4K,16K,64K,256K,1M,4M,16M",
        value_parser = bytes
    )]
    bytes: Vec<u64>,
    /// Bits per second of each link
    #[arg(long, default_value = "100G")]
    rate: Rate,
    /// One-way delay of each link; a packet crosses two
    #[arg(long, default_value = "1us")]
    delay: Span,
    /// Staging slots of each rank
    #[arg(long, default_value_t = 16)]
    slots: u32,
    /// Bytes of each slot: the largest piece
    #[arg(long, default_value = "128K", value_parser = parse_number::parse_u32)]
    slot_bytes: u32,
    /// Memory for data; a larger ring moves its packets without data, and the column #wrong is n/a
    #[arg(long, value_name = "BYTES", default_value = "2G", value_parser = parse_number::parse)]
    memory: u64,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Also write the table as Markdown; in a file with the marks `<!-- table -->` and
    /// `<!-- end of table -->`, replace only the text between them
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
    /// Also write a plot
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

const EXAMPLES: &str = "\
  roce simulate allreduce --ranks 8,64 --bytes 64K,16M --rate 100G --delay 1us

Columns: time is the completion time in virtual time; model is 2(N-1)/N*S/B + 2(N-1)*alpha, where
alpha is the time of the smallest packet from one rank to the next (printed above the table); ratio
is time over model. The model makes one step after the other: pieces that overlap are faster.";

/// Runs the command.
pub(crate) fn run(options: &Options) -> Result {
    let mut results = Vec::new();
    let started = Instant::now();
    if !options.json {
        print(&head(options))?;
    }
    for ranks in &options.ranks {
        for bytes in &options.bytes {
            let scale = scale(options, *ranks, *bytes);
            if std::io::stderr().is_terminal() {
                eprint!("\r{ranks} ranks, {bytes} bytes ...\x1b[K\r");
                let _ = std::io::stderr().flush(); // ignore errors of a progress line
            }
            let result = scale.simulate()?;
            if !options.json {
                print(&row(&result))?;
            }
            results.push(result);
        }
    }
    if options.json {
        let rows: Vec<_> = results.iter().map(to_json).collect();
        print(&format!("{}\n", serde_json::to_string_pretty(&rows)?))?;
    } else {
        print(&format!("# simulated in {:.1} s\n", started.elapsed().as_secs_f64()))?;
    }
    if let Some(path) = &options.markdown {
        let page = std::fs::read_to_string(path).unwrap_or_default();
        write(path, &put_into(&page, &markdown(&results)))?;
    }
    if let Some(path) = &options.svg {
        write(path, &roce_lab::plot(&results)?)?;
    }
    Ok(())
}

fn scale(options: &Options, ranks: usize, bytes: u64) -> Scale {
    let mut scale = Scale {
        ranks,
        bytes,
        bits_per_sec: options.rate.bits_per_sec(),
        delay: options.delay.duration(),
        ..Scale::default()
    };
    scale.ring_config.slots = options.slots;
    scale.ring_config.slot_bytes = options.slot_bytes;
    scale.keep_data = scale.memory() <= options.memory;
    scale
}

fn write(path: &PathBuf, text: &str) -> Result {
    let failed = |why| CliError::context(format!("cannot write {}", path.display()), why);
    std::fs::write(path, text).map_err(failed)
}

fn head(options: &Options) -> String {
    let alpha = scale(options, 2, 4).alpha();
    format!(
        "# ring allreduce, float, sum; each link {} and {} one way; alpha {}\n\
         {:>6} {:>10} {:>12} {:>12} {:>6} {:>8} {:>10} {:>7} {:>7}\n",
        options.rate,
        options.delay,
        in_words(alpha),
        "ranks",
        "bytes",
        "time(us)",
        "model(us)",
        "ratio",
        "busbw",
        "packets",
        "resent",
        "#wrong"
    )
}

fn row(result: &ScaleResult) -> String {
    format!(
        "{:>6} {:>10} {:>12.2} {:>12.2} {:>6.3} {:>8.2} {:>10} {:>7} {:>7}\n",
        result.scale.ranks,
        result.scale.bytes,
        micros(result.time),
        micros(result.scale.model_time()),
        result.ratio(),
        result.bus_bandwidth() / 1e9,
        result.packets,
        result.resent,
        wrong(result)
    )
}

fn markdown(results: &[ScaleResult]) -> String {
    let mut text = "| ranks | bytes | time (µs) | model (µs) | ratio | bus bandwidth (GB/s) \
                    | packets | wrong |\n|--:|--:|--:|--:|--:|--:|--:|--:|\n"
        .to_owned();
    for result in results {
        text += &format!(
            "| {} | {} | {:.2} | {:.2} | {:.3} | {:.2} | {} | {} |\n",
            result.scale.ranks,
            result.scale.bytes,
            micros(result.time),
            micros(result.scale.model_time()),
            result.ratio(),
            result.bus_bandwidth() / 1e9,
            result.packets,
            wrong(result)
        );
    }
    text
}

/// Returns the page with the table between its marks; without marks, the table alone.
fn put_into(page: &str, table: &str) -> String {
    let parts = page.split_once(BEGIN).and_then(|(before, rest)| {
        let (_, after) = rest.split_once(END)?;
        Some((before, after))
    });
    match parts {
        Some((before, after)) => format!("{before}{BEGIN}\n\n{table}\n{END}{after}"),
        None => table.to_owned(),
    }
}

const BEGIN: &str = "<!-- table -->";
const END: &str = "<!-- end of table -->";

fn to_json(result: &ScaleResult) -> serde_json::Value {
    json!({
        "ranks": result.scale.ranks,
        "bytes": result.scale.bytes,
        "seconds": result.time.as_secs_f64(),
        "model_seconds": result.scale.model_time().as_secs_f64(),
        "alpha_seconds": result.scale.alpha().as_secs_f64(),
        "ratio": result.ratio(),
        "bus_bandwidth_bytes_per_second": result.bus_bandwidth(),
        "packets": result.packets,
        "resent": result.resent,
        "wrong": result.wrong,
    })
}

fn wrong(result: &ScaleResult) -> String {
    result.wrong.map_or_else(|| "n/a".to_owned(), |wrong| wrong.to_string())
}

fn micros(span: std::time::Duration) -> f64 {
    span.as_secs_f64() * 1e6
}

fn in_words(span: std::time::Duration) -> String {
    format!("{span:?}")
}

fn ranks(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(ranks @ 2..=1024) => Ok(ranks),
        _ => Err("a number of ranks lies between 2 and 1024".to_owned()),
    }
}

fn bytes(text: &str) -> Result<u64, String> {
    match parse_number::parse(text)? {
        bytes if bytes < 4 => Err("less than one float of 4 bytes".to_owned()),
        bytes if bytes <= 1 << 30 => Ok(bytes),
        _ => Err("no more than 1G is simulated".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_vector_of_less_than_one_element_is_refused() {
        for text in ["0", "3"] {
            assert!(bytes(text).unwrap_err().contains("less than one float"), "{text}");
        }
        assert_eq!(bytes("4"), Ok(4));
    }

    #[test]
    fn a_table_goes_between_its_marks_and_touches_nothing_else() {
        let page = format!("head\n{BEGIN}\nold\n{END}\nfoot\n");
        let new = put_into(&page, "| new |\n");
        assert_eq!(new, format!("head\n{BEGIN}\n\n| new |\n\n{END}\nfoot\n"));
        assert_eq!(put_into(&new, "| new |\n"), new);
        assert_eq!(put_into("no marks", "| new |\n"), "| new |\n");
    }

    #[test]
    fn a_simulated_ring_prints_what_it_found() {
        let scale = Scale { ranks: 4, bytes: 16 << 10, ..Scale::default() };
        let result = scale.simulate().unwrap();
        let text = format!("{}{}", row(&result), markdown(&[result]));
        insta::assert_snapshot!("simulate", text);
    }
}
