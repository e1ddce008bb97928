//! The Python module `roce._roce`: groups of ranks on Python's buffers.
//!
//! `Group` is [`roce_collectives::Group`] behind the buffer protocol. The package
//! around it, in `python/roce`, has the exceptions, the paths of the libraries and the backend of
//! `torch.distributed`; `docs/python.md` describes all of it.
//!
//! - While a call waits, other threads of the interpreter run, and Ctrl-C ends the call.
//! - The memory of an argument is exported by its object for as long as a call uses it, so that the
//!   object can neither free nor move it.
//! - The module uses Python's stable ABI from 3.11 on, the first that has the buffer protocol: one file
//!   serves all later versions.

#![deny(unsafe_code)]

mod arguments;
mod elements;
mod failure;
mod group;
mod memory;
mod seat;
mod signals;

use pyo3::prelude::*;

/// Groups of ranks that run ring collectives over RDMA.
#[pymodule]
mod _roce {
    #[pymodule_export]
    use crate::group::PyGroup;
}
