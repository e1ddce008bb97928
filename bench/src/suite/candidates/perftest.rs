//! perftest's unmodified programs on our libibverbs, as `roce run` starts them.

use super::roce::Size;
use crate::report::{Figure, Figures};
use crate::suite::candidate::{CLIENT_CPU, SERVER, SERVER_CPU};
use crate::suite::{Candidate, RunContext};

/// WRITEs posted one by one, 128 deep: `ib_write_bw` without options but size and time.
pub(crate) fn bandwidth(name: &'static str, size: Size) -> Candidate {
    Candidate::new(name, "ib_write_bw", &["roce", "ib_write_bw"], move |context| {
        let size = size.of(context).to_string();
        // perftest counts whole seconds.
        let seconds = context.config.seconds.ceil().max(1.0).to_string();
        let options = ["-F", "--report_gbits", "-s", &size, "-D", &seconds];
        let row = row(&run(context, "ib_write_bw", &options)?, 5)?;
        Ok([(Figure::Gbits, row[3]), (Figure::PerSecond, row[4] * 1e6)].into())
    })
}

/// One WRITE each way under way: `ib_write_lat`.
pub(crate) fn latency(name: &'static str, size: Size) -> Candidate {
    Candidate::new(name, "ib_write_lat", &["roce", "ib_write_lat"], move |context| {
        let size = size.of(context);
        let each = 10e-6 + size as f64 * 1e-9;
        let iterations = context.operations(each).clamp(1000.0, 1_000_000.0) as u64;
        let (size, iterations) = (size.to_string(), iterations.to_string());
        let options = ["-F", "-s", &size, "-n", &iterations];
        figures_of_times(&run(context, "ib_write_lat", &options)?)
    })
}

fn run(context: &RunContext<'_>, program: &str, options: &[&str]) -> Result<String, String> {
    let end = |cpu: usize| context.on_our_device(program).args(options).on_cpu(cpu);
    let client = end(CLIENT_CPU).arg(context.network.address(SERVER).to_string());
    Ok(context.pair(&end(SERVER_CPU), PORT, &client)?.client)
}

fn figures_of_times(text: &str) -> Result<Figures, String> {
    let row = row(text, 9)?;
    Ok([
        (Figure::MicrosMin, row[2]),
        (Figure::MicrosMedian, row[4]),
        (Figure::MicrosMean, row[5]),
        (Figure::Micros99, row[7]),
        (Figure::Micros999, row[8]),
    ]
    .into())
}

/// Returns the last line that is `columns` numbers.
fn row(text: &str, columns: usize) -> Result<Vec<f64>, String> {
    let numbers = |line: &str| -> Option<Vec<f64>> {
        line.split_whitespace().map(|word| word.parse().ok()).collect()
    };
    let mut rows = text.lines().rev().filter_map(numbers);
    rows.find(|row| row.len() == columns).ok_or_else(|| "perftest printed no result".to_owned())
}

const PORT: u16 = 18_515;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_columns_of_its_rows_are_read() {
        let text = " #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]\n \
                    65536      50000            31.21              30.97  \t\t   0.059073\n---\n";
        assert_eq!(row(text, 5).unwrap()[3..], [30.97, 0.059073]);
        let text = " 8       1000          2.51           14.06        2.58     \t       2.60        \
                    \t0.35   \t\t2.99    \t\t14.06 \n";
        let figures = figures_of_times(text).unwrap();
        assert_eq!((figures[&Figure::MicrosMedian], figures[&Figure::Micros99]), (2.58, 2.99));
    }

    #[test]
    fn output_without_numbers_is_no_result() {
        assert!(row("Couldn't connect to 10.0.0.1:18515\n", 5).is_err());
    }
}
