//! Programs below a profiler that interrupts them: the library of gperftools takes a thousand samples a second,
//! by SIGPROF of the time in which the process runs, or by SIGALRM of all time. Neither ends a wait for an
//! event, since both handlers are installed with SA_RESTART.

use super::program::Program;

/// Puts the profiler behind the libraries of `roce run`; `o` has the arguments of rping.
const SAMPLED: &str = "o=-s; p={peer?}; if [ $p ]; then o=\"-c -a $p\"; fi; \
     export CPUPROFILE=/dev/null CPUPROFILE_FREQUENCY=1000 \
     LD_PRELOAD=\"$LD_PRELOAD libprofiler.so.0\";";

/// The same, for samples of all time.
const SAMPLED_ASLEEP: &str = "o=-s; p={peer?}; if [ $p ]; then o=\"-c -a $p\"; fi; \
     export CPUPROFILE=/dev/null CPUPROFILE_FREQUENCY=1000 CPUPROFILE_REALTIME=1 \
     LD_PRELOAD=\"$LD_PRELOAD libprofiler.so.0\";";

/// What the profiler prints at both ends.
const MEASURED: &[&str] = &["[0] PROFILE: interrupts", "[1] PROFILE: interrupts"];

/// The same with the last message of rping.
const PINGED: &[&str] =
    &["ping data: rdma-ping-199: ", "[0] PROFILE: interrupts", "[1] PROFILE: interrupts"];

/// All lines.
pub(super) const PROGRAMS: &[Program] = &[
    Program::pair("ib_send_lat -e -n 1000 $p", MEASURED).behind(SAMPLED),
    Program::pair("ib_send_bw -R -e -n 500 $p", MEASURED).behind(SAMPLED_ASLEEP).quick(),
    Program::pair("rping $o -v -V -C 200", PINGED).behind(SAMPLED_ASLEEP).quick(),
];
