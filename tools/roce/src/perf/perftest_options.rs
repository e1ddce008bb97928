//! Options of perftest that scripts give and that `roce perf` has not: some say nothing here, and for others
//! perftest itself is to be run.

use clap::{Args, ValueEnum};

use super::params::{Test, Verb};
use crate::error::{CliError, Result};

/// They are hidden from the help.
#[derive(Args, Clone, Debug, Default)]
pub(super) struct PerftestOptions {
    #[arg(short = 'F', long = "CPU-freq", hide = true)]
    _cpu_frequency: bool,
    #[arg(short = 'i', long = "ib-port", hide = true)]
    ib_port: Option<String>,
    #[arg(short = 'S', long = "sl", hide = true)]
    service_level: Option<String>,
    #[arg(short = 'N', long = "noPeak", hide = true)]
    no_peak: bool,
    #[arg(long = "perform_warm_up", hide = true)]
    warm_up: bool,
    #[arg(short = 'W', long = "report-counters", hide = true)]
    reported_counters: Option<String>,

    #[arg(short = 'b', long = "bidirectional", hide = true)]
    bidirectional: bool,
    #[arg(short = 'R', long = "rdma_cm", hide = true)]
    rdma_cm: bool,
    #[arg(long = "run_infinitely", hide = true)]
    run_infinitely: bool,
    #[arg(long = "rate_limit", hide = true)]
    rate_limit: Option<String>,
    #[arg(short = 'w', long = "limit_bw", hide = true)]
    limit_bandwidth: Option<String>,
}

impl PerftestOptions {
    /// Returns a line for each given option that has no effect.
    pub(super) fn warnings(&self) -> Vec<String> {
        let value = |name: &str, value: &Option<String>, usual: &str| {
            value.as_deref().filter(|value| *value != usual).map(|value| format!("{name} {value}"))
        };
        let flag = |name: &str, is_given: bool| is_given.then(|| name.to_owned());
        let all = [
            (value("-i", &self.ib_port, "1"), "an interface has the port 1 only"),
            (value("-S", &self.service_level, "0"), "set the priority on the VLAN interface"),
            (flag("-N", self.no_peak), "the peak costs nothing"),
            (flag("--perform_warm_up", self.warm_up), "the first messages are not left out"),
            (value("-W", &self.reported_counters, ""), "use --counters"),
        ];
        let given = all.into_iter().filter_map(|(given, why)| Some((given?, why)));
        given.map(|(given, why)| format!("{given} has no effect here: {why}")).collect()
    }

    /// Refuses the options of which a measurement without them would not be the one that is wanted.
    ///
    /// # Errors
    /// One of them is given.
    pub(super) fn check(&self, verb: Verb, test: Test) -> Result {
        let all = [
            ("-b", self.bidirectional),
            ("-R", self.rdma_cm),
            ("--run_infinitely", self.run_infinitely),
            ("--rate_limit", self.rate_limit.is_some()),
            ("-w", self.limit_bandwidth.is_some()),
        ];
        let Some((name, _)) = all.into_iter().find(|(_, is_given)| *is_given) else {
            return Ok(());
        };
        let program = format!("ib_{}_{}", word(verb), word(test));
        Err(CliError::new(format!(
            "roce perf has no {name}; perftest has it: `roce run --local 2 -- {program} {name} ...`"
        )))
    }
}

/// Returns the word of the command line, which is that of perftest's names.
fn word(value: impl ValueEnum) -> String {
    value.to_possible_value().map(|word| word.get_name().to_owned()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        options: PerftestOptions,
    }

    fn options(line: &str) -> PerftestOptions {
        let words = std::iter::once("roce").chain(line.split_whitespace());
        Line::try_parse_from(words).unwrap().options
    }

    #[test]
    fn what_says_nothing_here_is_told_in_a_line_and_refused_never() {
        let given = options("-F -i 2 -S 3 -N --perform_warm_up -W a,b");
        assert_eq!(given.warnings().len(), 5);
        assert!(given.warnings()[0].starts_with("-i 2 has no effect here: "));
        assert!(given.check(Verb::Send, Test::Bw).is_ok());
        assert_eq!(options("-i 1 -S 0 -F").warnings(), [""; 0]);
    }

    #[test]
    fn what_changes_the_measurement_names_the_program_that_has_it() {
        for line in ["-b", "-R", "--run_infinitely", "--rate_limit=5", "-w 3"] {
            let refused = options(line).check(Verb::Write, Test::Lat);
            let Err(CliError::Message(text)) = refused else { panic!("{line}") };
            assert!(text.contains("-- ib_write_lat -") && text.lines().count() == 1, "{text}");
        }
    }
}
