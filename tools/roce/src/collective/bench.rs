//! The job, run by one rank: `docs/ring-protocol.md`, "The bench job".

use std::io::Write;
use std::time::{Duration, Instant};

use roce_collectives::{Buffer, BufferSlice, Group};
use roce_ring::Collective;

use super::case::Case;
use super::input_data::{self, InputData};
use super::job::{Blocking, BufferMode, Job};
use super::progress::Progress;
use super::report::{Report, Row};
use super::report_collector::{Average, ReportCollector};
use super::steps::StepTimes;
use crate::error::Result;

/// The measurement of a rank.
#[derive(Debug)]
pub(crate) struct Bench<'a> {
    group: &'a mut Group,
    job: &'a Job,
    input: Buffer,
    output: Buffer,
    progress: Progress,
    with_steps: bool,
    /// The number of the next operation.
    operations: u64,
    block: Vec<u8>,
}

/// Input and output of a size in one placement.
#[derive(Debug)]
struct Layout {
    case: Case,
    input: BufferSlice,
    output: BufferSlice,
}

/// A rank's own results.
struct Own {
    nanoseconds: u64,
    wrong: Option<u64>,
    first: Option<String>,
    steps: Vec<StepTimes>,
}

/// The reports and the output at rank 0.
#[derive(Debug)]
pub(crate) struct RankZeroOutput<'a, W> {
    pub(crate) collector: &'a mut ReportCollector,
    pub(crate) report: &'a mut Report<W>,
    pub(crate) average: Average,
}

impl<'a> Bench<'a> {
    /// Allocates the two buffers that all sizes share.
    ///
    /// # Errors
    /// If there is not enough memory.
    pub(crate) fn new(group: &'a mut Group, job: &'a Job, with_steps: bool) -> Result<Self> {
        let cases = job.cases(group.size());
        let longest = cases.iter().map(|case| case.size).max().unwrap_or(0);
        let (input, output) = (group.buffer(longest)?, group.buffer(longest)?);
        let progress = Progress::new(group.rank());
        let block = vec![0; BLOCK];
        Ok(Self { group, job, input, output, progress, with_steps, operations: 0, block })
    }

    /// Runs all sizes; prints each one at rank 0.
    ///
    /// # Errors
    /// If a rank fails, or the report cannot be written.
    pub(crate) fn run<W: Write>(mut self, mut office: Option<RankZeroOutput<'_, W>>) -> Result {
        let ranks = self.group.size();
        let mut introduced = false;
        if let Some(RankZeroOutput { collector, report, .. }) = &mut office
            && collector.has_all_members(self.group)?
        {
            report.introduce(collector.members(ranks))?;
            introduced = true;
        }
        for case in self.job.cases(ranks) {
            let mut halves = [None, None];
            for (placement, half) in [BufferMode::Out, BufferMode::In].into_iter().zip(&mut halves)
            {
                if !self.job.placements.all().contains(&placement) {
                    continue;
                }
                let own = self.measure(&case, placement)?;
                self.tell(&case, placement, &own)?;
                if let Some(RankZeroOutput { collector, average, .. }) = &mut office {
                    let mut measured =
                        collector.wait_for_times(self.group, &case, placement, *average)?;
                    if self.job.iterations == 0 {
                        measured.seconds = None;
                    }
                    *half = Some(measured);
                }
            }
            self.progress.end();
            if let Some(RankZeroOutput { collector, report, .. }) = &mut office {
                if !introduced {
                    report.introduce(collector.members(ranks))?;
                    introduced = true;
                }
                let [out, within] = halves;
                report.row(Row { case, out, within })?;
            }
        }
        self.barrier()
    }

    /// Measures one size in one placement.
    fn measure(&mut self, case: &Case, placement: BufferMode) -> Result<Own> {
        let layout = self.lay_out(case, placement)?;
        let Job { iterations, warmup, check, .. } = *self.job;
        let title = format!("{} bytes, {} of place", case.size, placement.name());
        self.progress.begin(title.replace("in of", "in"), warmup + iterations + check);
        self.prepare(&layout)?;
        for _ in 0..warmup {
            self.perform(&layout)?;
        }
        self.barrier()?;
        // Drop the steps of the warm-up.
        drop(self.group.steps());
        let first = self.operations;
        let took = self.time(&layout, iterations)?;
        let steps = self.take_steps(first);
        let (mut wrong, mut value) = (0_u64, None);
        for _ in 0..check {
            self.prepare(&layout)?;
            self.perform(&layout)?;
            wrong = wrong.saturating_add(self.count_wrong(&layout)?);
        }
        if self.job.values == InputData::Rank {
            value = self.first_element(&layout)?;
        }
        let nanoseconds = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX) / iterations.max(1);
        Ok(Own { nanoseconds, wrong: (check > 0).then_some(wrong), first: value, steps })
    }

    /// Runs the timed operations and returns their time.
    fn time(&mut self, layout: &Layout, iterations: u64) -> Result<Duration> {
        let begun = Instant::now();
        let mut between = Duration::ZERO;
        for _ in 0..iterations {
            self.perform(layout)?;
            match self.job.blocking {
                Blocking::No => {}
                Blocking::Barrier => self.barrier()?,
                Blocking::UntimedBarrier => {
                    let paused = Instant::now();
                    self.barrier()?;
                    between += paused.elapsed();
                }
            }
        }
        Ok(begun.elapsed().saturating_sub(between))
    }

    /// Takes the steps of the timed operations without those of the barriers.
    fn take_steps(&mut self, first: u64) -> Vec<StepTimes> {
        if !self.with_steps {
            return Vec::new();
        }
        let every = if self.job.blocking == Blocking::No { 1 } else { 2 };
        let is_timed =
            |operation: u64| operation.checked_sub(first).is_some_and(|since| since % every == 0);
        let records = self.group.steps().into_iter();
        StepTimes::of(records.filter(|record| is_timed(record.operation)))
    }

    fn perform(&mut self, layout: &Layout) -> Result {
        self.operations += 1;
        self.group.perform(&layout.case.operation, &layout.input, &layout.output)?;
        self.progress.step();
        Ok(())
    }

    fn barrier(&mut self) -> Result {
        self.operations += 1;
        Ok(self.group.barrier()?)
    }

    fn lay_out(&self, case: &Case, placement: BufferMode) -> Result<Layout> {
        let (input_len, output_len) = (case.input_len(), case.output_len());
        let rank = u64::from(self.group.rank());
        let (input, output) = match (placement, case.operation.collective) {
            (BufferMode::Out, _) => {
                (self.input.slice(..input_len)?, self.output.slice(..output_len)?)
            }
            (BufferMode::In, Collective::AllGather) => {
                let own = rank * input_len;
                (self.output.slice(own..own + input_len)?, self.output.slice(..output_len)?)
            }
            (BufferMode::In, Collective::ReduceScatter) => {
                let own = rank * output_len;
                (self.output.slice(..input_len)?, self.output.slice(own..own + output_len)?)
            }
            (BufferMode::In, _) => {
                (self.output.slice(..input_len)?, self.output.slice(..output_len)?)
            }
        };
        Ok(Layout { case: *case, input, output })
    }

    /// Clears the output, then fills the input, which may overlap it.
    fn prepare(&mut self, layout: &Layout) -> Result {
        let values = self.job.values;
        let operation = layout.case.operation;
        let rank = self.group.rank();
        each_block(&mut self.block, &layout.output, |slice, offset, block| {
            block.fill(0);
            Ok(slice.buffer().write(offset, block)?)
        })?;
        let (start, element) = (layout.input.offset(), operation.data_type.size() as u64);
        each_block(&mut self.block, &layout.input, |slice, offset, block| {
            values.fill(&operation, rank, (offset - start) / element, block);
            Ok(slice.buffer().write(offset, block)?)
        })
    }

    fn count_wrong(&mut self, layout: &Layout) -> Result<u64> {
        let values = self.job.values;
        let (rank, ranks) = (self.group.rank(), self.group.size());
        let element = layout.case.operation.data_type.size() as u64;
        let start = layout.output.offset();
        let mut wrong = 0;
        each_block(&mut self.block, &layout.output, |slice, offset, block| {
            slice.buffer().read(offset, block)?;
            let first = (offset - start) / element;
            wrong += values.wrong_elements(&layout.case, rank, ranks, first, block);
            Ok(())
        })?;
        Ok(wrong)
    }

    /// Returns the text of the first output element, if this rank has one.
    fn first_element(&self, layout: &Layout) -> Result<Option<String>> {
        let operation = layout.case.operation;
        let ends_with_it =
            operation.collective != Collective::Reduce || operation.root == self.group.rank();
        let mut element = [0; 8];
        let element = &mut element[..operation.data_type.size()];
        if !ends_with_it || layout.output.len() < element.len() as u64 {
            return Ok(None);
        }
        layout.output.buffer().read(layout.output.offset(), element)?;
        Ok(Some(input_data::format_element(operation.data_type, element)))
    }

    /// Reports the results to rank 0.
    fn tell(&mut self, case: &Case, placement: BufferMode, own: &Own) -> Result {
        // Send steps before the time, which completes the size.
        for times in &own.steps {
            self.group.report("step", &times.fields(case.size, placement))?;
        }
        let mut fields = vec![
            ("size", case.size.to_string()),
            ("placement", placement.name().to_owned()),
            ("nanoseconds", own.nanoseconds.to_string()),
        ];
        fields.extend(own.wrong.map(|wrong| ("wrong", wrong.to_string())));
        fields.extend(own.first.clone().map(|first| ("first", first)));
        Ok(self.group.report("time", &fields)?)
    }
}

/// Visits a slice block by block, with offsets in the slice's buffer.
fn each_block(
    block: &mut [u8],
    slice: &BufferSlice,
    mut work: impl FnMut(&BufferSlice, u64, &mut [u8]) -> Result,
) -> Result {
    let mut done = 0;
    while done < slice.len() {
        let len = (slice.len() - done).min(block.len() as u64);
        work(slice, slice.offset() + done, &mut block[..len as usize])?;
        done += len;
    }
    Ok(())
}

/// Bytes of a block: whole elements of every type, and small enough for the cache.
const BLOCK: usize = 64 << 10;
