//! Everything there is to say of a packet, with its own memory.

use crate::{Finding, Layer, Packet};

/// A packet with summary, layers and findings, as `roce dissect -v` prints it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dissection {
    /// One-line summary.
    pub summary: String,
    /// Layers, outermost first.
    pub layers: Vec<Layer>,
    /// Findings, in the order of the checks.
    pub findings: Vec<Finding>,
}

impl Packet<'_> {
    /// Returns summary, layers and findings with their own memory.
    pub fn dissection(&self) -> Dissection {
        Dissection {
            summary: self.summary_line(),
            layers: self.layers(),
            findings: self.findings.to_vec(),
        }
    }
}
