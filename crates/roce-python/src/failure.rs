//! Errors as Python's exceptions.

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::PyType;
use roce_collectives::{Error, Fault};

/// Returns the exception of an error, by whose fault it is. `raised` is what a handler of a signal
/// raised meanwhile, such as `KeyboardInterrupt`: the reason why the program gave up.
pub(crate) fn exception(py: Python<'_>, error: &Error, raised: Option<PyErr>) -> PyErr {
    let (fault, text) = (error.fault(), error.to_string());
    if let (Fault::Interrupt, Some(raised)) = (fault, raised) {
        return raised;
    }
    let name = match fault {
        Fault::Caller => "UsageError",
        Fault::Host => "HostError",
        Fault::Peer => "PeerError",
        Fault::Earlier | Fault::Interrupt => "GroupEndedError",
        _ => "InternalError",
    };
    make(py, name, text, error.failed_rank())
}

/// Returns the exception for an argument that does not fit.
pub(crate) fn usage(py: Python<'_>, text: impl Into<String>) -> PyErr {
    make(py, "UsageError", text.into(), None)
}

/// Returns the exception for a group that was left or has failed.
pub(crate) fn ended(py: Python<'_>) -> PyErr {
    let text =
        "the group has ended: it was left, or an earlier call failed; make another".to_owned();
    make(py, "GroupEndedError", text, None)
}

fn make(py: Python<'_>, name: &str, text: String, rank: Option<u32>) -> PyErr {
    let made = || -> PyResult<PyErr> {
        let class = py.import("roce._errors")?.getattr(name)?.cast_into::<PyType>()?;
        let value = class.call1((&text,))?;
        if let Some(rank) = rank {
            value.setattr("rank", rank)?;
        }
        Ok(PyErr::from_value(value))
    };
    made().unwrap_or_else(|_| PyRuntimeError::new_err(text))
}
