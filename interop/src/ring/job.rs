//! What a ring of ranks is to do, in the words of both programs.

/// A run of `roce allreduce` and of `ring_allreduce`: sizes, types, how often.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Job {
    /// The elements, by nccl-tests' name: `float`, `bfloat16`, ...
    pub data_type: &'static str,
    /// The operator: `sum`, `avg`, ...
    pub operator: &'static str,
    /// The smallest message, in bytes.
    pub min: u64,
    /// The largest, in bytes.
    pub max: u64,
    /// From one size to the next; at least 2.
    pub factor: u64,
    /// Operations that are timed, for each size.
    pub iterations: u64,
    /// Queue pairs between neighbours.
    pub lanes: u32,
    /// Whether pieces are cut so that each message uses all of them.
    pub split: bool,
    /// 4.096 µs · 2^n until rxe sends again.
    pub rxe_timeout: u8,
    /// How often rxe sends again; it takes 7 as for ever.
    pub rxe_retry: u8,
}

impl Job {
    /// A sum of floats: small, around the limit between the two ways, and large.
    pub const fn new() -> Self {
        Self {
            data_type: "float",
            operator: "sum",
            min: 8,
            max: 1 << 20,
            factor: 8,
            iterations: 3,
            lanes: 1,
            split: false,
            rxe_timeout: 14,
            rxe_retry: 7,
        }
    }

    /// How many sizes it goes through.
    pub fn sizes(&self) -> usize {
        let following = |size: &u64| Some(size * self.factor);
        std::iter::successors(Some(self.min), following)
            .take_while(|size| *size <= self.max)
            .count()
    }

    /// The command line of `roce allreduce` behind its name.
    pub(crate) fn ours(&self) -> Vec<String> {
        [
            ("-b", self.min.to_string()),
            ("-e", self.max.to_string()),
            ("-f", self.factor.to_string()),
            ("-n", self.iterations.to_string()),
            ("-w", WARMUP.to_string()),
            ("-d", self.data_type.to_owned()),
            ("-o", self.operator.to_owned()),
            ("-c", CHECKS.to_string()),
        ]
        .into_iter()
        .flat_map(|(option, value)| [option.to_owned(), value])
        .collect()
    }

    /// What `roce allreduce` takes from its environment.
    pub(crate) fn environment(&self) -> [(&'static str, String); 2] {
        [
            ("NCCL_IB_QPS_PER_CONNECTION", self.lanes.to_string()),
            ("NCCL_IB_SPLIT_DATA_ON_QPS", u8::from(self.split).to_string()),
        ]
    }

    /// The command line of `ring_allreduce` behind its name.
    pub(crate) fn theirs(&self) -> String {
        let Self { data_type, operator, min, max, factor, iterations, lanes, .. } = self;
        let Self { split, rxe_timeout, rxe_retry, .. } = self;
        format!(
            "--type {data_type} --op {operator} --min {min} --max {max} --factor {factor} \
             --iterations {iterations} --warmup {WARMUP} --check {CHECKS} --lanes {lanes} \
             --split {} --timeout {rxe_timeout} --retry {rxe_retry}",
            u8::from(*split)
        )
    }
}

impl Default for Job {
    fn default() -> Self {
        Self::new()
    }
}

/// Operations before those that are timed.
const WARMUP: u32 = 1;
/// Operations whose results are compared, for each size and placement.
const CHECKS: u32 = 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_counted_up_to_the_last_that_fits() {
        assert_eq!(Job { min: 8, max: 64, factor: 8, ..Job::new() }.sizes(), 2);
        assert_eq!(Job { min: 8, max: 511, factor: 8, ..Job::new() }.sizes(), 2);
        assert_eq!(Job { min: 8, max: 7, ..Job::new() }.sizes(), 0);
    }
}
