//! The memory of Python objects: the only place of this crate that touches memory through pointers.
//!
//! # Why this is sound
//!
//! 1. An [`ExportedMemory`] holds an export of the object's buffer. Until it is released, the object
//!    may neither free nor move the memory: this is the contract of Python's buffer protocol.
//! 2. A registration borrows the export, so it ends before the export is released. When it has ended,
//!    no queue pair touches the memory.
//! 3. Copies are made while the thread is attached to the interpreter, as those of other extension
//!    modules. Programs that write to an argument from another thread during a call see old and new
//!    bytes mixed, as they do with NumPy.

#![allow(unsafe_code)]

use std::marker::PhantomData;
use std::slice;

use pyo3::buffer::PyUntypedBuffer;
use pyo3::exceptions::PyBufferError;
use pyo3::prelude::*;
use roce_collectives::{Buffer, BufferSlice, DataType, Error, Group};
use roce_verbs::{AccessFlags, MemoryRegion, RegisterOptions};

use crate::elements;
use crate::failure;

/// The memory of an argument, which its object lends for as long as this lives.
pub(crate) struct ExportedMemory {
    buffer: PyUntypedBuffer,
    address: usize,
    len: usize,
    is_writable: bool,
}

/// Memory of arguments that is registered with the interfaces of a group.
pub(crate) struct RegisteredMemory<'a> {
    buffer: Buffer,
    _memory: PhantomData<&'a ExportedMemory>,
}

impl ExportedMemory {
    /// Asks an object for its memory. `which` names the argument.
    ///
    /// # Errors
    /// `TypeError` if it has no buffer; `UsageError` if its elements are not one behind the other.
    pub(crate) fn of(object: &Bound<'_, PyAny>, which: &str) -> PyResult<Self> {
        let py = object.py();
        let buffer = PyUntypedBuffer::get(object).map_err(|error| {
            // An array of no dimensions has no shape, which PyO3 takes for a mistake of the object.
            let is_scalar = || object.getattr("ndim").and_then(|count| count.extract::<usize>());
            match error.is_instance_of::<PyBufferError>(py)
                && is_scalar().is_ok_and(|count| count == 0)
            {
                true => failure::usage(
                    py,
                    format!("the {which} has no dimension; use {which}.reshape(1)"),
                ),
                false => error,
            }
        })?;
        if !buffer.is_c_contiguous() && !buffer.is_fortran_contiguous() {
            let text = format!(
                "the elements of the {which} are not one behind the other in memory; copy it \
                 (numpy.ascontiguousarray)"
            );
            return Err(failure::usage(py, text));
        }
        let (address, len) = (buffer.buf_ptr().addr(), buffer.len_bytes());
        let is_writable = !buffer.readonly();
        Ok(Self { buffer, address, len, is_writable })
    }

    /// Returns the address of the first byte.
    pub(crate) fn address(&self) -> u64 {
        self.address as u64
    }

    /// Returns the length in bytes.
    pub(crate) fn len(&self) -> u64 {
        self.len as u64
    }

    /// Returns true unless the object is read-only.
    pub(crate) fn is_writable(&self) -> bool {
        self.is_writable
    }

    /// Returns the type of the elements, if collectives have it.
    pub(crate) fn data_type(&self) -> Option<DataType> {
        elements::data_type(self.buffer.format().to_bytes(), self.buffer.item_size())
    }

    /// Returns the format of the elements, for messages.
    pub(crate) fn format(&self) -> String {
        self.buffer.format().to_string_lossy().into_owned()
    }

    /// Copies the memory into a buffer.
    ///
    /// # Errors
    /// If the buffer is shorter.
    pub(crate) fn copy_to(&self, _py: Python<'_>, to: &Buffer) -> Result<(), Error> {
        if self.len == 0 {
            return Ok(());
        }
        // SAFETY: rules 1 and 3; the buffer protocol gives `len` readable bytes, which no other thread
        // of the interpreter frees, and nothing here calls back into it.
        let bytes = unsafe { slice::from_raw_parts(self.buffer.buf_ptr().cast::<u8>(), self.len) };
        to.write(0, bytes)
    }

    /// Fills the memory from the beginning of a buffer.
    ///
    /// # Errors
    /// If the buffer is shorter, or the memory read-only.
    pub(crate) fn copy_from(&self, _py: Python<'_>, from: &BufferSlice) -> Result<(), Error> {
        if !self.is_writable {
            return Err(Error::Config("the output is read-only".into()));
        }
        if self.len == 0 {
            return Ok(());
        }
        // SAFETY: as in `copy_to`; the object says that its memory may be written.
        let bytes =
            unsafe { slice::from_raw_parts_mut(self.buffer.buf_ptr().cast::<u8>(), self.len) };
        from.buffer().read(from.offset(), bytes)
    }

    /// Registers the memory with all interfaces of a group, with the rights of an output if it
    /// `is_output`.
    ///
    /// # Errors
    /// If the memory is read-only and must not be, or the kernel refuses it.
    pub(crate) fn register(
        &self,
        group: &Group,
        is_output: bool,
    ) -> Result<RegisteredMemory<'_>, Error> {
        let access = match is_output {
            true if !self.is_writable => {
                return Err(Error::Config("the output is read-only".into()));
            }
            true => AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_WRITE,
            false => AccessFlags::empty(),
        };
        let regions: Result<Vec<MemoryRegion>, _> = group
            .protection_domains()
            .into_iter()
            .map(|domain| {
                let (start, options) =
                    (self.buffer.buf_ptr().cast::<u8>(), RegisterOptions::default());
                // SAFETY: rules 1 and 2: the memory stays mapped and is used for nothing else than the
                // object's elements; this crate holds no reference into it meanwhile, and rule 3 is
                // for the program's own accesses.
                unsafe { domain.register_memory(start, self.len, access, options) }
            })
            .collect();
        Ok(RegisteredMemory { buffer: group.buffer_over(regions?)?, _memory: PhantomData })
    }
}

impl RegisteredMemory<'_> {
    /// Returns the buffer, which must not outlive this value: it is for the arguments of one call.
    pub(crate) fn buffer(&self) -> &Buffer {
        &self.buffer
    }
}
