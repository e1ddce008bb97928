//! The arguments of an operation, and where its input and output lie.

use std::ops::Range;

use pyo3::prelude::*;
use roce_collectives::{Buffer, BufferError, DataType, Error, Operation};

use crate::memory::{ExportedMemory, RegisteredMemory};
use crate::seat::Joined;

/// The longest arguments that are copied through staging memory, in bytes. Registering costs about as
/// much as copying these.
pub(crate) const MAX_STAGED: u64 = 32 << 10;

/// Input and output of an operation.
pub(crate) struct Arguments {
    /// `None` for an operation in place.
    input: Option<ExportedMemory>,
    output: ExportedMemory,
}

/// Where input and output lie to each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Placement {
    /// They have no byte in common.
    Apart,
    /// The input begins so many bytes behind the beginning of the output, which has all of it.
    InputInOutput(u64),
    /// The reverse.
    OutputInInput(u64),
}

impl Arguments {
    pub(crate) fn new(input: Option<ExportedMemory>, output: ExportedMemory) -> Self {
        Self { input, output }
    }

    /// Returns the input, which is the output of an operation in place.
    pub(crate) fn input(&self) -> &ExportedMemory {
        self.input.as_ref().unwrap_or(&self.output)
    }

    /// Returns the output.
    pub(crate) fn output(&self) -> &ExportedMemory {
        &self.output
    }

    /// Performs an operation on the arguments. `needs` are the bytes of input and output that it uses at
    /// this rank: an argument that it does not use is not touched.
    ///
    /// # Errors
    /// As [`Group::perform`](roce_collectives::Group::perform).
    pub(crate) fn perform(
        &self,
        py: Python<'_>,
        joined: &mut Joined,
        operation: &Operation,
    ) -> Result<(), Error> {
        let (needs_input, needs_output) = operation.buffer_bytes(joined.group.geometry())?;
        let is_alone = joined.group.size() == 1;
        let longest = self.input().len().max(self.output.len());
        let placement = self.placement()?;
        if is_alone || longest <= MAX_STAGED {
            if longest > MAX_STAGED {
                joined.staging = [joined.group.buffer(longest)?, joined.group.buffer(longest)?];
            }
            return self.perform_staged(py, joined, operation, placement, needs_output > 0);
        }
        // An argument that is not used needs no rights, and may be read-only.
        let (reads, writes) = (needs_input > 0, needs_output > 0);
        py.detach(|| self.perform_registered(joined, operation, placement, (reads, writes)))
    }

    fn perform_staged(
        &self,
        py: Python<'_>,
        joined: &mut Joined,
        operation: &Operation,
        placement: Placement,
        writes: bool,
    ) -> Result<(), Error> {
        let Joined { group, staging: [first, second] } = joined;
        // Input and output that overlap do so in staging memory, too: the group judges it.
        let (input, output) = match placement {
            Placement::Apart => {
                (first.slice(..self.input().len())?, second.slice(..self.output.len())?)
            }
            Placement::InputInOutput(offset) => {
                let input = offset..offset + self.input().len();
                (first.slice(input)?, first.slice(..self.output.len())?)
            }
            Placement::OutputInInput(offset) => {
                let output = offset..offset + self.output.len();
                (first.slice(..self.input().len())?, first.slice(output)?)
            }
        };
        let outer = match placement {
            Placement::InputInOutput(_) => &self.output,
            Placement::Apart | Placement::OutputInInput(_) => self.input(),
        };
        outer.copy_to(py, first)?;
        py.detach(|| group.perform(operation, &input, &output))?;
        if writes { self.output.copy_from(py, &output) } else { Ok(()) }
    }

    fn perform_registered(
        &self,
        joined: &mut Joined,
        operation: &Operation,
        placement: Placement,
        (reads, writes): (bool, bool),
    ) -> Result<(), Error> {
        let group = &mut joined.group;
        let slice = |range: Range<u64>, whole: &Buffer| whole.slice(range);
        let (input_len, output_len) = (self.input().len(), self.output.len());
        match placement {
            Placement::Apart => {
                let input = reads.then(|| self.input().register(group, false)).transpose()?;
                let output = writes.then(|| self.output.register(group, true)).transpose()?;
                let whole = |memory: &Option<RegisteredMemory<'_>>, len| match memory {
                    Some(memory) => slice(0..len, memory.buffer()),
                    None => joined.staging[0].slice(..0),
                };
                group.perform(operation, whole(&input, input_len)?, whole(&output, output_len)?)
            }
            Placement::InputInOutput(offset) => {
                let both = self.output.register(group, writes)?;
                let input = slice(offset..offset + input_len, both.buffer())?;
                group.perform(operation, input, slice(0..output_len, both.buffer())?)
            }
            Placement::OutputInInput(offset) => {
                let both = self.input().register(group, writes)?;
                let output = slice(offset..offset + output_len, both.buffer())?;
                group.perform(operation, slice(0..input_len, both.buffer())?, output)
            }
        }
    }

    /// Gathers all ranks' inputs, and copies this rank's part of each into the output.
    ///
    /// # Errors
    /// As [`perform`](Self::perform).
    pub(crate) fn transpose(
        &self,
        py: Python<'_>,
        joined: &mut Joined,
        gather: &Operation,
    ) -> Result<(), Error> {
        let group = &mut joined.group;
        let (rank, size, whole) = (group.rank(), group.size(), self.input().len());
        let all = group.buffer(whole.saturating_mul(u64::from(size)))?;
        let own = group.buffer(whole)?;
        self.input().copy_to(py, &own)?;
        py.detach(|| {
            group.perform(gather, &own, &all)?;
            let part = whole / u64::from(size);
            let mut bytes = vec![0; part as usize];
            for peer in 0..u64::from(size) {
                all.read(peer * whole + u64::from(rank) * part, &mut bytes)?;
                own.write(peer * part, &bytes)?;
            }
            Ok::<(), Error>(())
        })?;
        self.output.copy_from(py, &(&own).into())
    }

    fn placement(&self) -> Result<Placement, Error> {
        let range = |memory: &ExportedMemory| memory.address()..memory.address() + memory.len();
        placement(range(self.input()), range(&self.output)).ok_or(BufferError::Overlap.into())
    }

    /// Returns the type of the elements: that of the name, or of both arguments.
    ///
    /// # Errors
    /// A sentence for the caller.
    pub(crate) fn data_type(&self, named: Option<&str>) -> Result<DataType, String> {
        if let Some(name) = named {
            return name.parse::<DataType>().map_err(|error| error.to_string());
        }
        let (input, output) = (self.input(), &self.output);
        if input.format() != output.format() {
            let (input, output) = (input.format(), output.format());
            return Err(format!("the input has elements of format {input}, the output {output}"));
        }
        output.data_type().ok_or_else(|| {
            format!(
                "elements of format {} cannot be reduced; name their type with dtype= (int8, uint8, int32, \
                 uint32, int64, uint64, float16, float32, float64, bfloat16)",
                output.format()
            )
        })
    }
}

/// Returns where two ranges lie to each other; `None` if they cross.
fn placement(input: Range<u64>, output: Range<u64>) -> Option<Placement> {
    if input.is_empty()
        || output.is_empty()
        || input.end <= output.start
        || output.end <= input.start
    {
        return Some(Placement::Apart);
    }
    if output.start <= input.start && input.end <= output.end {
        return Some(Placement::InputInOutput(input.start - output.start));
    }
    let is_within = input.start <= output.start && output.end <= input.end;
    is_within.then(|| Placement::OutputInInput(output.start - input.start))
}
