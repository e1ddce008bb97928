//! A scenario with all that it has shown.

use serde_json::{Value, json};

use super::{Outcome, Scenario};

/// A scenario with its outcomes, with real packets and in virtual time.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// The scenario.
    pub scenario: Scenario,
    /// Its outcomes with real packets, one for each round.
    pub rounds: Vec<Outcome>,
    /// Its outcome in virtual time, if it was simulated.
    pub simulated: Option<Outcome>,
}

impl Row {
    /// Returns the median of each figure over the rounds.
    pub fn median(&self) -> Outcome {
        Outcome::median(&self.rounds)
    }

    /// Returns the row as JSON: parameters, `median` and `rounds` of the real packets, and
    /// `simulated`. `median` is null without rounds, `simulated` if it was not simulated.
    ///
    /// ```
    /// use roce_bench::congestion::{Control, Fabric, Outcome, Row, Scenario};
    ///
    /// let scenario = Scenario::new(4, Control::named("ecn").unwrap(), Fabric::Lossy);
    /// let simulated = Some(Outcome { goodput: 184.5, ..Outcome::default() });
    /// let row = Row { scenario, rounds: Vec::new(), simulated }.to_json();
    /// assert_eq!(row["simulated"]["goodput"], 184.5);
    /// assert!(row["median"].is_null());
    /// ```
    pub fn to_json(&self) -> Value {
        let scenario = &self.scenario;
        json!({
            "senders": scenario.senders,
            "fabric": scenario.fabric.name(),
            "control": scenario.control.name,
            "spec": scenario.control.spec,
            "bits_per_second": scenario.rate,
            "buffer_bytes": scenario.buffer_bytes(),
            "median": (!self.rounds.is_empty()).then(|| self.median()),
            "rounds": self.rounds,
            "simulated": self.simulated,
        })
    }
}
