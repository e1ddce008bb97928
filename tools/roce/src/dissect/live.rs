//! What an interface carries now.

use super::{Report, Stop};
use crate::failure::Failure;

/// Shows what comes and goes on an interface until interrupted.
pub(super) fn run(interface: &str, report: &mut Report<'_>) -> Result<(), Stop> {
    report.is_live = true;
    Err(Stop::Told(Failure::new(format!("{interface}: not yet"))))
}
