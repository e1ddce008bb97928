//! Cases, running them, and how they ended.

use std::time::{Duration, Instant};

use roce_guest::GuestError;

use crate::{Fault, Testbed};

/// One thing to show, in a world of some kind.
pub struct Case<W> {
    /// Which table it is in.
    pub group: &'static str,
    /// Its row there.
    pub row: String,
    /// Its column there.
    pub column: String,
    /// What the link must carry.
    pub(crate) path_mtu: usize,
    /// What the guests' outgoing packets suffer, in netem's words.
    pub(crate) netem: &'static str,
    pub(crate) run: Run<W>,
}

impl<W> std::fmt::Debug for Case<W> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Case({})", self.name())
    }
}

impl<W> Case<W> {
    /// Returns a case in which nothing happens to the guests' packets.
    pub(crate) fn new(
        group: &'static str,
        row: impl Into<String>,
        column: impl Into<String>,
        path_mtu: usize,
        run: impl Fn(&W) -> Result<(), Fault> + 'static,
    ) -> Self {
        let (row, column) = (row.into(), column.into());
        Self { group, row, column, path_mtu, netem: "", run: Box::new(run) }
    }

    /// Group, row and column: what `--only` looks into.
    pub fn name(&self) -> String {
        format!("{} / {} / {}", self.group, self.row, self.column)
    }

    /// Whether the name contains all these words of `--only`.
    pub fn matches(&self, only: &[String]) -> bool {
        let name = self.name();
        only.iter().all(|word| name.contains(word.as_str()))
    }
}

/// How a case is run.
pub(crate) type Run<W> = Box<dyn Fn(&W) -> Result<(), Fault>>;

/// How a case ended.
#[derive(Clone, Debug)]
pub struct Verdict {
    /// Of [`Case`].
    pub group: &'static str,
    /// Of [`Case`].
    pub row: String,
    /// Of [`Case`].
    pub column: String,
    /// How long it took.
    pub took: Duration,
    /// What was wrong, if it is red.
    pub fault: Option<String>,
    /// What the guest lacks, if the case was skipped.
    pub lacking: Option<String>,
}

impl Verdict {
    /// As [`Case::name`].
    pub fn name(&self) -> String {
        format!("{} / {} / {}", self.group, self.row, self.column)
    }
}

/// Runs cases one after the other; `progress` is told of each.
///
/// # Errors
/// When the guest is gone, or link or guest can no longer be set up. What goes wrong in a case
/// otherwise is in its verdict.
pub fn run<W: Testbed>(
    world: &W,
    cases: &[Case<W>],
    mut progress: impl FnMut(&Verdict),
) -> Result<Vec<Verdict>, Fault> {
    let mut verdicts = Vec::new();
    let (mut path_mtu, mut netem) = (0, "");
    for case in cases {
        if case.path_mtu != path_mtu {
            world.set_path_mtu(case.path_mtu)?;
            path_mtu = case.path_mtu;
        }
        if case.netem != netem {
            world.set_netem(case.netem)?;
            netem = case.netem;
        }
        let started = Instant::now();
        let fault = match (case.run)(world) {
            // Its last words are worth more than a red mark on every case to come.
            Err(fault @ Fault::Guest(GuestError::Gone { .. })) => {
                return Err(Fault::Wrong(format!("{}: {fault}", case.name())));
            }
            ended => ended.err(),
        };
        let (fault, lacking) = match fault {
            Some(Fault::Lacking(what)) => (None, Some(what)),
            fault => (fault.map(|fault| fault.to_string()), None),
        };
        let (row, column) = (case.row.clone(), case.column.clone());
        let took = started.elapsed();
        let verdict = Verdict { group: case.group, row, column, took, fault, lacking };
        progress(&verdict);
        verdicts.push(verdict);
    }
    world.set_netem("")?;
    Ok(verdicts)
}
