//! Carries messages between the engines of two devices under a profiler: see `cargo xtask cost`.

#![forbid(unsafe_code)]

mod engine_side;

use std::process::ExitCode;

use engine_side::EngineSide;
use roce_cost::program;

fn main() -> ExitCode {
    program::run::<EngineSide>()
}

#[cfg(test)]
mod tests {
    use roce_cost::{Run, Side, Tally, Workload};

    use super::*;

    fn carry<S: roce_cost::Drive>(workload: Workload, messages: u64) -> Tally {
        let mut run = Run::<S>::new(workload, messages);
        for _ in 0..10_000 {
            run.drive_requester();
            run.drive_responder();
            if run.is_done() {
                return run.finish();
            }
        }
        panic!("{}: no end", workload.name)
    }

    #[test]
    fn engines_exchange_the_same_packets_as_endpoints() {
        for workload in Workload::ALL {
            let messages = if workload.len == 8 { 1000 } else { 9 };
            let of_engines = carry::<EngineSide>(workload, messages);
            assert_eq!(of_engines, carry::<Side>(workload, messages), "{}", workload.name);
        }
    }
}
