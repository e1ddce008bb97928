//! The job of a run: operations, sizes and iterations, the same on all ranks.

use roce_ring::{Collective, DataType, ReduceOp};

use super::case::Case;
use super::input_data::InputData;

/// The job of all ranks, which `docs/ring-protocol.md` specifies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Job {
    pub(crate) collective: Collective,
    /// One type, or every type.
    pub(crate) data_type: Option<DataType>,
    /// One operator, or every operator.
    pub(crate) op: Option<ReduceOp>,
    /// One root, or every rank in turn.
    pub(crate) root: Option<u32>,
    pub(crate) min: u64,
    pub(crate) max: u64,
    pub(crate) progression: Progression,
    pub(crate) iterations: u64,
    pub(crate) warmup: u64,
    pub(crate) check: u64,
    pub(crate) placements: BufferModes,
    pub(crate) blocking: Blocking,
    pub(crate) values: InputData,
}

/// The progression of sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progression {
    Factor(u64),
    Step(u64),
}

/// The position of outputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BufferMode {
    /// Out of place: beside the input.
    Out,
    /// In place: overlapping the input.
    In,
}

/// The placements to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum BufferModes {
    Both,
    Out,
    In,
}

/// The action of ranks between timed operations, numbered as in nccl-tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Blocking {
    /// 0 and 2: none.
    No,
    /// 1: a timed barrier.
    Barrier,
    /// 3: an untimed barrier.
    UntimedBarrier,
}

impl Job {
    /// Returns the keys and values that all ranks compare.
    pub(crate) fn fields(&self) -> Vec<(String, String)> {
        const ALL: &str = "all";
        let name = |name: Option<&str>| name.unwrap_or(ALL).to_owned();
        let progression = match self.progression {
            Progression::Factor(factor) => ("factor", factor.to_string()),
            Progression::Step(step) => ("step", step.to_string()),
        };
        let mut fields = vec![
            ("collective", self.collective.name().to_owned()),
            ("type", name(self.data_type.map(DataType::name))),
            ("op", name(self.op.map(ReduceOp::name))),
            ("root", self.root.map_or(ALL.to_owned(), |root| root.to_string())),
            ("min", self.min.to_string()),
            ("max", self.max.to_string()),
            progression,
            ("iterations", self.iterations.to_string()),
            ("warmup", self.warmup.to_string()),
            ("check", self.check.to_string()),
            ("placement", self.placements.name().to_owned()),
        ];
        // Other programs do not know these keys, so the defaults are not sent.
        if self.blocking != Blocking::No {
            fields.push(("blocking", self.blocking.number().to_string()));
        }
        if self.values != InputData::Pattern {
            fields.push(("values", self.values.name().to_owned()));
        }
        fields.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
    }

    /// Returns the sizes in bytes, in ascending order.
    pub(crate) fn sizes(&self) -> impl Iterator<Item = u64> {
        let Self { progression, max, .. } = *self;
        let next = move |bytes: &u64| {
            let next = match progression {
                Progression::Factor(factor) => bytes.checked_mul(factor)?,
                Progression::Step(step) => bytes.checked_add(step)?,
            };
            // A factor leaves 0 at 0.
            (next > *bytes && next <= max).then_some(next)
        };
        std::iter::successors((self.min <= max).then_some(self.min), next)
    }

    /// Returns all lines of the table for `ranks` ranks, in order.
    pub(crate) fn cases(&self, ranks: u32) -> Vec<Case> {
        let types = self.data_type.map_or(DataType::ALL.to_vec(), |one| vec![one]);
        let ops = self.op.map_or(ReduceOp::ALL.to_vec(), |one| vec![one]);
        let roots = self.root.map_or((0..ranks).collect(), |one| vec![one]);
        let mut cases = Vec::new();
        for data_type in types {
            for &op in &ops {
                for &root in &roots {
                    let case =
                        |bytes| Case::new(self.collective, data_type, op, root, bytes, ranks);
                    cases.extend(self.sizes().map(case));
                }
            }
        }
        cases
    }
}

/// Rewrites the difference between two ranks in a field of the job with the option that sets it.
pub(crate) fn name_option(reason: &str) -> Option<String> {
    let (rank, fields) = reason.split_once(" has job.")?;
    let (theirs, root) = fields.split_once(", but rank 0 has job.")?;
    let ((key, value), (_, of_root)) = (theirs.split_once('=')?, root.split_once('=')?);
    let option = match key {
        "type" => "-d",
        "op" => "-o",
        "root" => "-r",
        "min" => "-b",
        "max" => "-e",
        "step" => "-i",
        "factor" => "-f",
        "iterations" => "-n",
        "warmup" => "-w",
        "check" => "-c",
        "placement" => "--placement",
        _ => return None,
    };
    Some(format!("{option} ({key}) differs: {rank} has {value}, rank 0 has {of_root}"))
}

impl Blocking {
    /// Returns the number in nccl-tests.
    pub(crate) const fn number(self) -> u8 {
        match self {
            Self::No => 0,
            Self::Barrier => 1,
            Self::UntimedBarrier => 3,
        }
    }
}

impl BufferMode {
    /// Returns the name in reports.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Out => "out",
            Self::In => "in",
        }
    }
}

impl BufferModes {
    /// Returns the name among the job's fields.
    const fn name(self) -> &'static str {
        match self {
            Self::Both => "both",
            Self::Out => "out",
            Self::In => "in",
        }
    }

    /// Returns the placements in the order of measurement.
    pub(crate) const fn all(self) -> &'static [BufferMode] {
        match self {
            Self::Both => &[BufferMode::Out, BufferMode::In],
            Self::Out => &[BufferMode::Out],
            Self::In => &[BufferMode::In],
        }
    }
}

#[cfg(test)]
pub(crate) fn example() -> Job {
    Job {
        collective: Collective::AllReduce,
        data_type: Some(DataType::F32),
        op: Some(ReduceOp::Sum),
        root: Some(0),
        min: 8,
        max: 64,
        progression: Progression::Factor(2),
        iterations: 20,
        warmup: 1,
        check: 1,
        placements: BufferModes::Both,
        blocking: Blocking::No,
        values: InputData::Pattern,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sizes(min: u64, max: u64, progression: Progression) -> Vec<u64> {
        Job { min, max, progression, ..example() }.sizes().collect()
    }

    #[test]
    fn sizes_grow_up_to_the_largest() {
        assert_eq!(sizes(8, 64, Progression::Factor(2)), [8, 16, 32, 64]);
        assert_eq!(sizes(8, 63, Progression::Factor(2)), [8, 16, 32]);
        assert_eq!(sizes(8, 20, Progression::Step(5)), [8, 13, 18]);
        assert_eq!(sizes(0, 64, Progression::Factor(2)), [0]);
        assert_eq!(sizes(0, 2, Progression::Step(1)), [0, 1, 2]);
        assert_eq!(sizes(u64::MAX / 2, u64::MAX, Progression::Factor(3)), [u64::MAX / 2]);
        assert_eq!(sizes(9, 8, Progression::Step(1)), [0; 0]);
    }

    #[test]
    fn the_fields_of_a_job_are_those_of_the_protocol() {
        let text: Vec<String> =
            example().fields().iter().map(|(key, value)| format!("{key}={value}")).collect();
        let expected = "collective=allreduce type=float op=sum root=0 min=8 max=64 factor=2 \
                        iterations=20 warmup=1 check=1 placement=both";
        assert_eq!(text.join(" "), expected);
        let more = Job { blocking: Blocking::Barrier, values: InputData::Rank, ..example() };
        let fields = more.fields();
        assert_eq!(fields[fields.len() - 2..][0], ("blocking".into(), "1".into()));
        assert_eq!(fields[fields.len() - 1], ("values".into(), "rank".into()));
    }

    #[test]
    fn a_difference_in_the_job_names_the_option() {
        let reason = "rank 1 has job.max=16, but rank 0 has job.max=8";
        let named = name_option(reason).unwrap();
        assert_eq!(named, "-e (max) differs: rank 1 has 16, rank 0 has 8");
        assert_eq!(name_option("rank 1 has job.step=8, but rank 0 has no job.step"), None);
        assert_eq!(name_option("rank 2 did not arrive within 1 s"), None);
    }

    #[test]
    fn counts_are_those_of_nccl_tests() {
        let case = |collective, data_type, bytes| {
            Case::new(collective, data_type, ReduceOp::Sum, 0, bytes, 3)
        };
        let whole = case(Collective::AllReduce, DataType::F32, 11);
        assert_eq!((whole.operation.count, whole.size), (2, 8));
        assert_eq!((whole.input_len(), whole.output_len()), (8, 8));
        // 1000 / 4 / 3 = 83, rounded down to whole 16 bytes: 80.
        let gathered = case(Collective::AllGather, DataType::F32, 1000);
        assert_eq!((gathered.operation.count, gathered.size), (80, 960));
        assert_eq!((gathered.input_len(), gathered.output_len()), (320, 960));
        let scattered = case(Collective::ReduceScatter, DataType::I8, 40);
        assert_eq!((scattered.operation.count, scattered.size), (0, 0));
        let scattered = case(Collective::ReduceScatter, DataType::F64, 1000);
        assert_eq!((scattered.input_len(), scattered.output_len()), (960, 320));
    }

    #[test]
    fn bandwidths_are_those_of_nccl_tests() {
        let of = |collective| {
            let case = Case::new(collective, DataType::F32, ReduceOp::Sum, 0, 48_000, 4);
            case.bandwidths(48e-6, 4)
        };
        assert_eq!(of(Collective::AllReduce), (1.0, 1.5));
        assert_eq!(of(Collective::AllGather), (1.0, 0.75));
        assert_eq!(of(Collective::Broadcast), (1.0, 1.0));
        let case = Case::new(Collective::Reduce, DataType::F32, ReduceOp::Sum, 0, 8, 4);
        assert_eq!(case.bandwidths(0.0, 4), (0.0, 0.0));
    }

    #[test]
    fn all_types_operators_and_roots_are_measured() {
        let job = Job { data_type: None, op: None, collective: Collective::Reduce, ..example() };
        assert_eq!(job.cases(3).len(), 10 * 5 * 4);
        let job = Job { root: None, collective: Collective::Reduce, ..example() };
        let roots: Vec<_> = job.cases(3).iter().map(Case::root_shown).collect();
        assert_eq!(roots, [0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2]);
    }
}
