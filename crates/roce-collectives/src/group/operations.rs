//! The operations of a group.

use roce_ring::{Collective, DataType, Operation, ReduceOp};

use super::Group;
use crate::buffer::BufferSlice;
use crate::error::{BufferError, Error};

impl Group {
    /// Every rank's `output` becomes the reduction of all `input`s of `count` elements.
    /// In place: `input` and `output` are the same.
    ///
    /// # Errors
    /// As [`perform`](Self::perform).
    pub fn all_reduce(
        &mut self,
        input: impl Into<BufferSlice>,
        output: impl Into<BufferSlice>,
        count: u64,
        data_type: DataType,
        op: ReduceOp,
    ) -> Result<(), Error> {
        self.perform(&Operation::all_reduce(data_type, op, count), input, output)
    }

    /// As [`all_reduce`](Self::all_reduce), in place.
    ///
    /// # Errors
    /// As [`perform`](Self::perform).
    pub fn all_reduce_in_place(
        &mut self,
        buffer: impl Into<BufferSlice>,
        count: u64,
        data_type: DataType,
        op: ReduceOp,
    ) -> Result<(), Error> {
        let buffer = buffer.into();
        self.all_reduce(&buffer, &buffer, count, data_type, op)
    }

    /// Rank r's `output` of `count` elements becomes chunk r of the reduction of all `input`s,
    /// which are `size` times as long. In place: `output` is chunk r of `input`.
    ///
    /// # Errors
    /// As [`perform`](Self::perform).
    pub fn reduce_scatter(
        &mut self,
        input: impl Into<BufferSlice>,
        output: impl Into<BufferSlice>,
        count: u64,
        data_type: DataType,
        op: ReduceOp,
    ) -> Result<(), Error> {
        self.perform(&Operation::reduce_scatter(data_type, op, count), input, output)
    }

    /// Every rank's `output` becomes all `input`s of `count` elements, concatenated.
    /// In place: `input` is block r of `output`.
    ///
    /// # Errors
    /// As [`perform`](Self::perform).
    pub fn all_gather(
        &mut self,
        input: impl Into<BufferSlice>,
        output: impl Into<BufferSlice>,
        count: u64,
        data_type: DataType,
    ) -> Result<(), Error> {
        self.perform(&Operation::all_gather(data_type, count), input, output)
    }

    /// Every rank's `output` becomes the root's `input` of `count` elements; the others'
    /// `input` is ignored. In place: `input` and `output` are the same.
    ///
    /// # Errors
    /// As [`perform`](Self::perform).
    pub fn broadcast(
        &mut self,
        input: impl Into<BufferSlice>,
        output: impl Into<BufferSlice>,
        count: u64,
        data_type: DataType,
        root: u32,
    ) -> Result<(), Error> {
        self.perform(&Operation::broadcast(data_type, root, count), input, output)
    }

    /// The root's `output` becomes the reduction of all `input`s of `count` elements; the
    /// others' `output` is unchanged. In place: `input` and `output` are the same.
    ///
    /// # Errors
    /// As [`perform`](Self::perform).
    pub fn reduce(
        &mut self,
        input: impl Into<BufferSlice>,
        output: impl Into<BufferSlice>,
        count: u64,
        data_type: DataType,
        op: ReduceOp,
        root: u32,
    ) -> Result<(), Error> {
        self.perform(&Operation::reduce(data_type, op, root, count), input, output)
    }

    /// Returns when all ranks have called it.
    ///
    /// # Errors
    /// As [`perform`](Self::perform).
    pub fn barrier(&mut self) -> Result<(), Error> {
        let nothing = self.driver.scratch.slice(..0)?;
        self.perform(&Operation::barrier(), &nothing, &nothing)
    }

    /// Performs any operation; returns when this rank's part is done.
    ///
    /// An idle rank spins for [`GroupConfig::spin`](crate::GroupConfig::spin), then sleeps.
    ///
    /// # Errors
    /// [`Error::Operation`] and [`Error::Buffer`] for invalid arguments, which leave the group
    /// usable. [`Error::RankFailed`], [`Error::Neighbour`], [`Error::Mismatch`] and
    /// [`Error::InterfaceDown`] name the rank that failed, [`Error::Left`] one that has left before the
    /// operation; [`Error::RankFailed`] is one that did not call it within
    /// [`GroupConfig::operation_timeout`](crate::GroupConfig::operation_timeout), too. The group has ended then.
    pub fn perform(
        &mut self,
        operation: &Operation,
        input: impl Into<BufferSlice>,
        output: impl Into<BufferSlice>,
    ) -> Result<(), Error> {
        let (input, output) = (input.into(), output.into());
        if let Some(why) = &self.ended {
            return Err(Error::Ended(why.clone()));
        }
        let in_place = self.check(operation, &input, &output)?;
        let number = self.driver.machine.start(operation, in_place)?;
        let begun = if self.driver.steps.is_on() { self.driver.clock.now() } else { 0 };
        self.driver.steps.begin(number, begun);
        self.driver.timeline.begin(&self.driver.clock, number, operation);
        let done = self.driver.run(&input, &output, &mut self.bootstrap);
        self.driver.steps.finish();
        self.driver.timeline.end(&self.driver.clock, number);
        done.map_err(|error| self.fail(error))
    }

    /// Checks the buffers; returns true if the operation is in place.
    fn check(
        &self,
        operation: &Operation,
        input: &BufferSlice,
        output: &BufferSlice,
    ) -> Result<bool, Error> {
        let (needs_in, needs_out) = operation.buffer_bytes(&self.geometry)?;
        for (which, slice, need) in [("input", input, needs_in), ("output", output, needs_out)] {
            if !slice.belongs_to(&self.registered) {
                return Err(BufferError::Foreign(which).into());
            }
            if slice.len() < need {
                return Err(BufferError::TooShort { which, need, have: slice.len() }.into());
            }
        }
        if !input.is_of(output) {
            return Ok(false);
        }
        let own = u64::from(self.rank()) * operation.count * operation.data_type.size() as u64;
        let (ahead_in, ahead_out) = match operation.collective {
            Collective::AllGather => (0, own),
            Collective::ReduceScatter => (own, 0),
            _ => (0, 0),
        };
        if input.offset() + ahead_in == output.offset() + ahead_out {
            return Ok(true);
        }
        let apart = input.offset() + needs_in <= output.offset()
            || output.offset() + needs_out <= input.offset();
        let unused = needs_in == 0 || needs_out == 0;
        if apart || unused { Ok(false) } else { Err(BufferError::Overlap.into()) }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::alone;
    use super::*;

    #[test]
    fn unsuitable_buffers_are_refused_and_leave_the_group_usable() {
        let (mut group, other) = (alone(), alone());
        let (buffer, foreign) = (group.buffer(100).unwrap(), other.buffer(100).unwrap());
        let sum = Operation::all_reduce(DataType::F32, ReduceOp::Sum, 10);
        let slice = |range: std::ops::Range<u64>| buffer.slice(range).unwrap();
        let mut refusal = |input: BufferSlice, output: BufferSlice| match group
            .perform(&sum, input, output)
            .unwrap_err()
        {
            Error::Buffer(error) => error,
            other => panic!("{other}"),
        };
        let short = refusal(slice(0..39), slice(50..90));
        assert_eq!(short, BufferError::TooShort { which: "input", need: 40, have: 39 });
        let short = refusal(slice(0..40), slice(61..100));
        assert_eq!(short, BufferError::TooShort { which: "output", need: 40, have: 39 });
        assert_eq!(refusal(slice(0..40), slice(39..79)), BufferError::Overlap);
        assert_eq!(refusal(slice(1..41), slice(0..40)), BufferError::Overlap);
        let strange = refusal(slice(0..40), (&foreign).into());
        assert_eq!(strange, BufferError::Foreign("output"));
        group.perform(&sum, slice(0..40), slice(40..80)).unwrap();
        group.perform(&sum, slice(0..40), slice(0..40)).unwrap();
        group.leave().unwrap();
    }

    #[test]
    fn a_group_of_one_performs_every_collective() {
        let mut group = alone();
        let (input, output) = (group.buffer(80).unwrap(), group.buffer(80).unwrap());
        for collective in [
            Collective::AllReduce,
            Collective::ReduceScatter,
            Collective::AllGather,
            Collective::Broadcast,
            Collective::Reduce,
            Collective::Barrier,
        ] {
            let (data_type, op) = (DataType::I64, ReduceOp::Avg);
            let operation = Operation { collective, data_type, op, root: 0, count: 10 };
            input.write(0, &[7; 80]).unwrap();
            output.write(0, &[0; 80]).unwrap();
            group.perform(&operation, &input, &output).unwrap();
            let mut seen = [1; 80];
            output.read(0, &mut seen).unwrap();
            let expected = if collective == Collective::Barrier { [0; 80] } else { [7; 80] };
            assert_eq!(seen, expected, "{collective:?}");
        }
        assert!(group.interfaces().is_empty());
        group.leave().unwrap();
    }
}
