//! The class `Group`.

use std::time::Duration;

use pyo3::prelude::*;
use roce_collectives::{
    BootstrapServer, Collective, DataType, Error, Group, GroupConfig, LauncherEnv, Operation,
    ReduceOp, WaitNotice,
};

use crate::arguments::{Arguments, MAX_STAGED};
use crate::failure;
use crate::memory::ExportedMemory;
use crate::seat::{Joined, NotFree, Seat, Taken};
use crate::signals::Signals;

/// One rank of a group of processes that compute together over RDMA.
///
/// Every rank makes a group with its own number, and then calls the same methods in the same order.
/// Each returns when this rank's part is done. Without arguments, rank, size and the address of rank 0
/// are those that torchrun, mpirun, srun or `roce run --local N --torchrun` have set in the environment.
///
/// Arguments of the methods are objects with a buffer, such as NumPy arrays, `array.array` or
/// `bytearray`. An argument longer than 32 KiB is sent from, and received into, its own memory.
///
/// A group is a context manager: it leaves at the end of the block, and after an exception
/// tells the other ranks that this one failed.
///
/// Args:
///     rank: The number of this process, 0 to size - 1.
///     size: The number of processes.
///     root: The address on which rank 0 listens, "host:port".
///     interfaces: The network interfaces to use, one rail each; by default the first that is up.
///     gid_index: The row of the interfaces' GID tables.
///     timeout: How long to wait for the other ranks, in seconds. A rank that waits for a second prints for
///         which others, on the standard error.
///     operation_timeout: How long an operation, or leaving, may take, in seconds; by default as long as the
///         other ranks need. The error names the rank that was waited for.
///     on_listen: At rank 0, called with the address on which it listens, before the other ranks are
///         waited for; with port 0 in `root` it is a free one.
#[pyclass(frozen, name = "Group", module = "roce")]
pub(crate) struct PyGroup {
    rank: u32,
    size: u32,
    interfaces: Vec<String>,
    seat: Seat,
    signals: Signals,
}

#[pymethods]
impl PyGroup {
    #[new]
    #[pyo3(signature = (
        rank = None, size = None, root = None, *, interfaces = None, gid_index = None, timeout = 60.0,
        operation_timeout = None, on_listen = None,
    ))]
    #[allow(clippy::too_many_arguments, reason = "keywords of Python")]
    fn new(
        py: Python<'_>,
        rank: Option<u32>,
        size: Option<u32>,
        root: Option<String>,
        interfaces: Option<Vec<String>>,
        gid_index: Option<u8>,
        timeout: f64,
        operation_timeout: Option<f64>,
        on_listen: Option<Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        let (rank, size, root) =
            place(rank, size, root).map_err(|text| failure::usage(py, text))?;
        let duration = |seconds| {
            Duration::try_from_secs_f64(seconds).map_err(|_| {
                failure::usage(py, format!("a timeout of {seconds} s is not possible"))
            })
        };
        let timeout = duration(timeout)?;
        let operation_timeout = operation_timeout.map(duration).transpose()?;
        let signals = Signals::default();
        let config = GroupConfig {
            interfaces: interfaces.unwrap_or_default(),
            gid_index,
            timeout,
            interrupt: signals.interrupt(),
            wait_notice: WaitNotice::new(print),
            operation_timeout,
            ..GroupConfig::new(rank, size, root)
        };
        let fail = |error: Error| failure::exception(py, &error, signals.take_raised());
        // Refused before anything listens.
        config.geometry().map_err(|error| fail(error.into()))?;
        let server = match rank {
            0 => Some(BootstrapServer::start(&config.root, size, timeout).map_err(fail)?),
            _ => None,
        };
        if let (Some(server), Some(on_listen)) = (&server, on_listen) {
            on_listen.call1((server.address().to_string(),))?;
        }
        let join = || -> Result<Joined, Error> {
            let group = Group::join_with(config, server)?;
            let staging = [group.buffer(MAX_STAGED)?, group.buffer(MAX_STAGED)?];
            Ok(Joined { group, staging })
        };
        let joined = py.detach(join).map_err(fail)?;
        let interfaces = joined.group.interfaces().to_vec();
        Ok(Self { rank, size, interfaces, seat: Seat::new(joined, signals.clone()), signals })
    }

    /// The number of this process.
    #[getter]
    fn rank(&self) -> u32 {
        self.rank
    }

    /// The number of processes.
    #[getter]
    fn size(&self) -> u32 {
        self.size
    }

    /// The network interfaces in use; none in a group of one.
    #[getter]
    fn interfaces(&self) -> Vec<String> {
        self.interfaces.clone()
    }

    /// Makes `output` the reduction of all ranks' `input`; without `output`, in place.
    ///
    /// Args:
    ///     op: "sum", "prod", "max", "min" or "avg".
    ///     dtype: The type of the elements where the buffer does not tell it, such as "bfloat16".
    ///
    /// Returns the output.
    #[pyo3(signature = (input, output = None, *, op = "sum", dtype = None))]
    fn all_reduce<'py>(
        &self,
        input: Bound<'py, PyAny>,
        output: Option<Bound<'py, PyAny>>,
        op: &str,
        dtype: Option<&str>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let reduction = Reduction { collective: Collective::AllReduce, op, dtype, root: 0 };
        self.reduce_with(input, output, &reduction)
    }

    /// Makes `output` of rank `root` the reduction of all ranks' `input`; without `output`, in place.
    /// The output of the other ranks stays as it is.
    ///
    /// Returns the output.
    #[pyo3(signature = (input, output = None, *, root = 0, op = "sum", dtype = None))]
    fn reduce<'py>(
        &self,
        input: Bound<'py, PyAny>,
        output: Option<Bound<'py, PyAny>>,
        root: u32,
        op: &str,
        dtype: Option<&str>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let reduction = Reduction { collective: Collective::Reduce, op, dtype, root };
        self.reduce_with(input, output, &reduction)
    }

    /// Makes `output` this rank's part of the reduction of all ranks' `input`, which is `size` times
    /// as long.
    ///
    /// Returns the output.
    #[pyo3(signature = (input, output, *, op = "sum", dtype = None))]
    fn reduce_scatter<'py>(
        &self,
        input: Bound<'py, PyAny>,
        output: Bound<'py, PyAny>,
        op: &str,
        dtype: Option<&str>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let reduction = Reduction { collective: Collective::ReduceScatter, op, dtype, root: 0 };
        self.reduce_with(input, Some(output), &reduction)
    }

    /// Makes `output` all ranks' `input`, one behind the other. All inputs have the same length.
    ///
    /// Returns the output.
    fn all_gather<'py>(
        &self,
        input: Bound<'py, PyAny>,
        output: Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = output.py();
        let arguments = arguments(Some(&input), &output)?;
        let (have, each) = (arguments.output().len(), arguments.input().len());
        if each.checked_mul(u64::from(self.size)) != Some(have) {
            let text = format!(
                "the output has {have} bytes, but {} inputs of {each} bytes need {}",
                self.size,
                u128::from(self.size) * u128::from(each)
            );
            return Err(failure::usage(py, text));
        }
        self.perform(py, &arguments, &Operation::all_gather(DataType::U8, each))?;
        Ok(output)
    }

    /// Makes the array of every rank that of rank `root`.
    ///
    /// Returns the array.
    #[pyo3(signature = (array, *, root = 0))]
    fn broadcast<'py>(&self, array: Bound<'py, PyAny>, root: u32) -> PyResult<Bound<'py, PyAny>> {
        let py = array.py();
        let memory = ExportedMemory::of(&array, "array")?;
        if self.rank != root && !memory.is_writable() {
            return Err(read_only(py, "array"));
        }
        let operation = Operation::broadcast(DataType::U8, root, memory.len());
        if self.rank == root && !memory.is_writable() {
            // The output of the root is its input: a copy of it is written instead.
            let copy = pyo3::types::PyByteArray::new(py, &vec![0; memory.len() as usize]);
            let output = ExportedMemory::of(&copy, "array")?;
            self.perform(py, &Arguments::new(Some(memory), output), &operation)?;
        } else {
            self.perform(py, &Arguments::new(None, memory), &operation)?;
        }
        Ok(array)
    }

    /// Makes part r of `output` this rank's part of rank r's `input`: a transposition. Every rank
    /// gathers all inputs, so it is for short ones.
    ///
    /// Returns the output.
    fn all_to_all<'py>(
        &self,
        input: Bound<'py, PyAny>,
        output: Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = output.py();
        let target = arguments(Some(&input), &output)?;
        let (have, whole) = (target.output().len(), target.input().len());
        if have != whole || !whole.is_multiple_of(u64::from(self.size)) {
            let text = format!(
                "input and output have {whole} and {have} bytes; both need the same number, a multiple of \
                 {}",
                self.size
            );
            return Err(failure::usage(py, text));
        }
        let operation = Operation::all_gather(DataType::U8, whole);
        let mut taken = self.take(py)?;
        self.finish(py, target.transpose(py, &mut taken, &operation))?;
        Ok(output)
    }

    /// Returns when all ranks have called it.
    fn barrier(&self, py: Python<'_>) -> PyResult<()> {
        let mut taken = self.take(py)?;
        self.finish(py, py.detach(|| taken.group.barrier()))
    }

    /// Leaves the group; returns when all ranks have called it. A group that has been left stays so.
    fn leave(&self, py: Python<'_>) -> PyResult<()> {
        match py.detach(|| self.seat.take()) {
            Ok(taken) => self.finish(py, py.detach(|| taken.leave())),
            Err(NotFree::Left) => Ok(()),
            Err(NotFree::Interrupted) => self.finish(py, Err(Error::Interrupted)),
        }
    }

    /// Ends calls of other threads that wait, with `GroupEndedError`, and the group. The other ranks
    /// get an error that names this one.
    fn abort(&self, py: Python<'_>) {
        self.signals.abort();
        // Where a call has the group, that call ends it.
        py.detach(|| self.seat.try_take().map(Taken::discard));
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    #[pyo3(signature = (kind, _value, _traceback))]
    fn __exit__(
        &self,
        kind: Bound<'_, PyAny>,
        _value: Bound<'_, PyAny>,
        _traceback: Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let py = kind.py();
        if kind.is_none() {
            return self.leave(py);
        }
        self.abort(py);
        Ok(())
    }

    fn __repr__(&self) -> String {
        let interfaces = self.interfaces.join(", ");
        format!("<roce.Group rank {} of {} on {interfaces}>", self.rank, self.size)
    }
}

impl Drop for PyGroup {
    fn drop(&mut self) {
        if let Some(taken) = self.seat.try_take() {
            taken.discard();
        }
    }
}

/// Prints a line on Python's standard error, which a notebook shows.
fn print(text: &str) {
    let printed = Python::try_attach(|py| {
        let line = format!("roce: {text}\n");
        py.import("sys")?.getattr("stderr")?.call_method1("write", (line,)).map(drop)
    });
    // A program without a standard error is told nothing.
    let _printed: Option<PyResult<()>> = printed;
}

/// What an operation that reduces does.
struct Reduction<'a> {
    collective: Collective,
    op: &'a str,
    dtype: Option<&'a str>,
    root: u32,
}

impl PyGroup {
    fn reduce_with<'py>(
        &self,
        input: Bound<'py, PyAny>,
        output: Option<Bound<'py, PyAny>>,
        reduction: &Reduction<'_>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = input.py();
        let arguments = match &output {
            Some(output) => arguments(Some(&input), output)?,
            None => arguments(None, &input)?,
        };
        let operation =
            self.operation(&arguments, reduction).map_err(|text| failure::usage(py, text))?;
        let is_written = reduction.collective != Collective::Reduce || self.rank == reduction.root;
        if is_written && !arguments.output().is_writable() {
            return Err(read_only(py, "output"));
        }
        self.perform(py, &arguments, &operation)?;
        Ok(output.unwrap_or(input))
    }

    /// Returns the operation, or a sentence for the caller.
    fn operation(
        &self,
        arguments: &Arguments,
        reduction: &Reduction<'_>,
    ) -> Result<Operation, String> {
        let op = reduction.op.parse::<ReduceOp>().map_err(|error| error.to_string())?;
        let data_type = arguments.data_type(reduction.dtype)?;
        let (input, output) = (arguments.input().len(), arguments.output().len());
        let parts = match reduction.collective {
            Collective::ReduceScatter => u64::from(self.size),
            _ => 1,
        };
        if output.checked_mul(parts) != Some(input) {
            let need =
                if parts == 1 { "the same number" } else { "size times as many in the input" };
            return Err(format!(
                "the input has {input} bytes and the output {output}; {need} is needed"
            ));
        }
        let element = data_type.size() as u64;
        if !output.is_multiple_of(element) {
            return Err(format!("{output} bytes are no whole number of elements of {data_type}"));
        }
        let Reduction { collective, root, .. } = *reduction;
        Ok(Operation { collective, data_type, op, root, count: output / element })
    }

    fn perform(
        &self,
        py: Python<'_>,
        arguments: &Arguments,
        operation: &Operation,
    ) -> PyResult<()> {
        let mut taken = self.take(py)?;
        let done = arguments.perform(py, &mut taken, operation);
        self.finish(py, done)
    }

    fn take(&self, py: Python<'_>) -> PyResult<Taken<'_>> {
        match py.detach(|| self.seat.take()) {
            Ok(taken) => Ok(taken),
            Err(NotFree::Left) => Err(failure::ended(py)),
            Err(NotFree::Interrupted) => {
                Err(failure::exception(py, &Error::Interrupted, self.signals.take_raised()))
            }
        }
    }

    fn finish(&self, py: Python<'_>, done: Result<(), Error>) -> PyResult<()> {
        done.map_err(|error| failure::exception(py, &error, self.signals.take_raised()))
    }
}

/// Returns rank, size and the address of rank 0, or a sentence for the caller.
fn place(
    rank: Option<u32>,
    size: Option<u32>,
    root: Option<String>,
) -> Result<(u32, u32, String), String> {
    if let (Some(rank), Some(size)) = (rank, size) {
        return match root {
            Some(root) => Ok((rank, size, root)),
            None if size == 1 => Ok((rank, size, "127.0.0.1:0".to_owned())),
            None => Err("give the address of rank 0 as root=\"host:port\"".to_owned()),
        };
    }
    if rank.is_some() || size.is_some() {
        return Err("give both rank and size, or none of them".to_owned());
    }
    let launched = LauncherEnv::from_environment().map_err(|error| error.to_string())?;
    let launched = launched.ok_or(
        "no launcher has set this process's rank; start it with torchrun, mpirun, srun or `roce run --local \
         N --torchrun`, or give rank, size and root",
    )?;
    let root = match root {
        Some(root) => root,
        None => launched.root().map_err(|error| error.to_string())?.to_owned(),
    };
    Ok((launched.rank, launched.size, root))
}

fn arguments(input: Option<&Bound<'_, PyAny>>, output: &Bound<'_, PyAny>) -> PyResult<Arguments> {
    let input = input.map(|input| ExportedMemory::of(input, "input")).transpose()?;
    Ok(Arguments::new(input, ExportedMemory::of(output, "output")?))
}

fn read_only(py: Python<'_>, which: &str) -> PyErr {
    failure::usage(py, format!("the {which} is read-only; give one that may be written"))
}
