//! The process that is killed: one pair.

use std::time::Duration;

use roce_verbs::{Device, DeviceConfig};

use super::Result;
use super::card::{Card, Line};
use super::options::{INTERFACE, Place, derived_seed, faults};
use super::traffic::{Step, Traffic};
use crate::fixtures::device_config;

/// Connects to the survivor and carries requests until it is killed, or the survivor ends.
///
/// # Errors
/// A violation, as text.
pub fn run(place: &Place) -> Result<()> {
    let pair = *place.pairs.first().ok_or("no pair was named")?;
    let config = DeviceConfig { faults: Some(faults(place.seed)), ..device_config() };
    let device = Device::open(INTERFACE, config)?;
    let mut traffic = Traffic::new(&device, pair, derived_seed(place.seed, u64::from(pair)))?;
    let mut line = Line::connect(place.address)?;
    line.send(&traffic.prepare()?)?;
    let survivor: Card = line.receive()?;
    traffic.connect(survivor)?;
    line.send(&true)?;
    loop {
        match traffic.step() {
            Ok(Step::Working) => {}
            // The survivor ends before its peers do only when all is over.
            _ if line.is_closed_within(SURVIVOR_ENDS) => return Ok(()),
            Ok(Step::Failed(failure)) => {
                // The survivor then tells how the connection ended there.
                line.complain();
                let (state, counters) = (traffic.state(), traffic.counters()?);
                return Err(format!(
                    "the connection to the survivor failed: {failure:?}; {state:?}; {counters:?}"
                )
                .into());
            }
            Err(error) => {
                line.complain();
                return Err(error);
            }
        }
    }
}

const SURVIVOR_ENDS: Duration = Duration::from_secs(2);
