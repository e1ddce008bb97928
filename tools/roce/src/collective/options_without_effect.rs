//! Options of nccl-tests that scripts give and that say nothing here: how CUDA or NCCL are to work.

use clap::Args;

/// Accepted with any value; one that is not nccl-tests' default is warned of.
///
/// They are hidden from the help, but for the sentence that [`HELP`] is.
#[derive(Args, Clone, Debug, Default)]
pub(super) struct OptionsWithoutEffect {
    #[arg(short = 't', long = "nthreads", hide = true)]
    threads: Option<String>,
    #[arg(short = 'g', long = "ngpus", hide = true)]
    gpus: Option<String>,
    #[arg(short = 'm', long = "agg_iters", hide = true)]
    aggregate: Option<String>,
    #[arg(short = 'N', long = "run_cycles", hide = true)]
    cycles: Option<String>,
    #[arg(short = 'p', long = "parallel_init", hide = true)]
    parallel_init: Option<String>,
    #[arg(short = 'y', long = "stream_null", hide = true)]
    null_stream: Option<String>,
    // Its long name is our time for ranks to arrive.
    #[arg(short = 'T', hide = true)]
    operation_timeout: Option<String>,
    #[arg(short = 'G', long = "cudagraph", hide = true)]
    graph: Option<String>,
    #[arg(short = 'C', long = "report_cputime", hide = true)]
    cpu_time: Option<String>,
    #[arg(short = 'S', long = "report_timestamps", hide = true)]
    timestamps: Option<String>,
    #[arg(short = 'R', long = "local_register", hide = true)]
    register: Option<String>,
    #[arg(short = 'x', long = "cta_policy", hide = true)]
    cta_policy: Option<String>,
    #[arg(short = 'D', long = "device_implementation", hide = true)]
    device_implementation: Option<String>,
    #[arg(short = 'V', long = "device_cta_count", hide = true)]
    cta_count: Option<String>,
    #[arg(short = 'M', long = "memory_report", alias = "memory", hide = true)]
    memory_report: Option<String>,
    #[arg(short = 'u', long = "unalign", hide = true)]
    unalign: Option<String>,
}

/// What the help says of them.
pub(super) const HELP: &str = "Accepted without effect, for scripts of nccl-tests: -t -g -m -N -p -y -T -G -C -S -R -x -D -V -M -u.";

impl OptionsWithoutEffect {
    /// Returns one line for each given option whose value asks for something.
    pub(super) fn warnings(&self) -> Vec<String> {
        let all = [
            (
                "-t",
                &self.threads,
                "1",
                "a process is one rank; use --local N or a launcher for more",
            ),
            ("-g", &self.gpus, "1", "a process is one rank; use --local N or a launcher for more"),
            ("-m", &self.aggregate, "1", "each operation is started by itself"),
            ("-N", &self.cycles, "1", "the sizes are measured once; use a loop of the shell"),
            ("-p", &self.parallel_init, "0", "each rank connects by itself"),
            ("-y", &self.null_stream, "0", "there are no CUDA streams"),
            (
                "-T",
                &self.operation_timeout,
                "0",
                "use timeout(1); --timeout limits the wait for ranks",
            ),
            ("-G", &self.graph, "0", "there are no CUDA graphs"),
            ("-C", &self.cpu_time, "0", "times are those of the clock"),
            ("-S", &self.timestamps, "0", "lines have no time"),
            ("-R", &self.register, "0", "the memory that the network uses is always registered"),
            ("-x", &self.cta_policy, "0", "there is no GPU"),
            ("-D", &self.device_implementation, "0", "there is no GPU"),
            ("-V", &self.cta_count, "16", "there is no GPU"),
            ("-M", &self.memory_report, "0", "memory is not reported"),
            ("-u", &self.unalign, "0", "buffers are aligned"),
        ];
        let given = all.into_iter().filter_map(|(name, value, default, why)| {
            let value = value.as_deref()?;
            (value != default).then(|| format!("{name} {value} has no effect here: {why}"))
        });
        given.collect()
    }
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, Parser};

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        options: OptionsWithoutEffect,
    }

    fn warnings(line: &str) -> Vec<String> {
        let words = std::iter::once("roce").chain(line.split_whitespace());
        Line::try_parse_from(words).unwrap().options.warnings()
    }

    #[test]
    fn each_option_is_named_in_the_help_and_warned_of_once() {
        let command = Line::command();
        let names: Vec<_> = command.get_opts().filter_map(clap::Arg::get_short).collect();
        assert!(names.len() > 10);
        let line: String = names.iter().map(|name| format!(" -{name} 7")).collect();
        let warned = warnings(&line);
        assert_eq!(warned.len(), names.len());
        for (name, warning) in names.iter().zip(warned) {
            assert!(warning.starts_with(&format!("-{name} 7 has no effect here: ")), "{warning}");
            assert!(HELP.contains(&format!(" -{name}")), "{name}");
        }
    }

    #[test]
    fn the_defaults_of_nccl_tests_need_no_warning() {
        let usual =
            "-t 1 -g 1 -m 1 -N 1 -p 0 -y 0 -T 0 -G 0 -C 0 -S 0 -R 0 -x 0 -D 0 -V 16 -M 0 -u 0";
        assert_eq!(warnings(usual), [""; 0]);
        assert_eq!(warnings(""), [""; 0]);
        assert_eq!(warnings("--nthreads 2 --cudagraph=3").len(), 2);
    }
}
