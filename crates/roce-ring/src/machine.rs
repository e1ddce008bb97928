//! A rank's part in the ring, without any I/O.

use crate::{Action, Fault, Geometry, Misuse, Operation, Violation, WindowRecord};

/// A rank of a ring: it is told what arrived, and tells what to do.
#[derive(Debug)]
pub struct Machine {
    geometry: Geometry,
}

impl Machine {
    /// A rank that has sent and received nothing yet.
    pub fn new(geometry: Geometry) -> Self {
        Self { geometry }
    }

    /// Where the rank is.
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// Starts the next operation; returns its number.
    ///
    /// # Errors
    /// [`Misuse`].
    pub fn start(&mut self, operation: &Operation, _in_place: bool) -> Result<u64, Misuse> {
        operation.check(self.geometry.size())?;
        Ok(0)
    }

    /// A receive on the queue pair to the previous rank has completed.
    ///
    /// # Errors
    /// [`Fault`].
    pub fn handle_data(&mut self, _lane: u32, _immediate: u32, _len: u32) -> Result<(), Fault> {
        Ok(())
    }

    /// A receive on the queue pair to the next rank has completed. `record` reads the lane's
    /// window record; it is called when the immediate says that it was written.
    ///
    /// # Errors
    /// [`Fault`].
    pub fn handle_answer(
        &mut self,
        _lane: u32,
        _immediate: u32,
        _len: u32,
        _record: impl FnOnce() -> WindowRecord,
    ) -> Result<(), Fault> {
        Ok(())
    }

    /// What was posted under `id`, and everything before it on the same queue pair, has
    /// completed.
    ///
    /// # Errors
    /// [`Misuse`].
    pub fn handle_sent(&mut self, _id: u64) -> Result<(), Misuse> {
        Ok(())
    }

    /// What to do next; `None` when there is nothing to do until something is handed in.
    ///
    /// # Errors
    /// [`Violation`] when a neighbour broke the protocol.
    pub fn poll_action(&mut self) -> Result<Option<Action>, Violation> {
        Ok(None)
    }

    /// Whether no operation is under way.
    pub fn is_done(&self) -> bool {
        true
    }
}
