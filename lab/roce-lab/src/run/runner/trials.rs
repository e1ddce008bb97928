//! Trials of a section: runs, plots, figures and statements.

use roce_transport::AckTimeout;
use roce_wire::PfcFrame;

use super::Runner;
use crate::lesson::{FabricData, Lesson, LessonError, Section};
use crate::run::record::Inspection;
use crate::trial::{self, Figure, TrialPlot, TrialRun, Unit};

/// Rates of Ethernet in Gbit/s.
const RATES: [u64; 7] = [1, 10, 25, 40, 100, 400, 800];

impl Runner {
    /// Runs the trials of a section.
    pub(super) fn run_trials(&mut self, section: &Section) -> Result<(), LessonError> {
        self.section_trials.clear();
        self.section_fabric = self.fabric.clone();
        self.section_fabric.extend(section.fabric.clone());
        for trial in &section.trial {
            let mut keys = self.section_fabric.clone();
            keys.extend(trial.with.clone());
            let data: FabricData = keys.try_into()?;
            let run = trial::run(self.section, &trial.name, &data)?;
            self.trials.insert(trial.name.clone(), run);
            self.section_trials.push(trial.name.clone());
        }
        Ok(())
    }

    fn trial(&self, name: &str) -> Result<&TrialRun, LessonError> {
        self.trials.get(name).ok_or_else(|| self.unknown("trial", name))
    }

    pub(super) fn plots(&self, section: &Section) -> Result<Vec<TrialPlot>, LessonError> {
        let plot = |data: &crate::lesson::PlotData| {
            let names = match &data.trials[..] {
                [] => &self.section_trials,
                _ => &data.trials,
            };
            let trials =
                names.iter().map(|name| self.trial(name)).collect::<Result<Vec<_>, _>>()?;
            trial::plot(self.section, data, &trials)
        };
        section.plot.iter().map(plot).collect()
    }

    /// Checks the statements of a section.
    pub(super) fn check(&self, section: &Section) -> Result<(), LessonError> {
        section.check.iter().try_for_each(|it| trial::check(self.section, it, &self.trials))
    }

    /// Writes figures into the texts of a lesson.
    pub(super) fn fill(&self, lesson: &mut Lesson) -> Result<(), LessonError> {
        if lesson.fabric.is_empty() {
            return Ok(());
        }
        for (number, section) in (1..).zip(&mut lesson.section) {
            for text in [&mut section.say, &mut section.then] {
                *text = trial::fill(number, text, &self.trials)?;
            }
        }
        for text in [&mut lesson.question.ask, &mut lesson.question.answer] {
            *text = trial::fill(0, text, &self.trials)?;
        }
        Ok(())
    }

    /// Returns a table with a row for each trial of the section.
    pub(super) fn figures(&self, names: &[String]) -> Result<Inspection, LessonError> {
        let mut rows = vec![vec![String::new()]];
        rows[0].extend(names.iter().cloned());
        for trial in &self.section_trials {
            let mut row = vec![trial.clone()];
            for name in names {
                let figure = self.trial(trial)?.figures.get(name);
                let figure = figure.ok_or_else(|| self.unknown("figure", name))?;
                row.push(figure.to_string());
            }
            rows.push(row);
        }
        Ok(Inspection { title: "figures of the trials".to_owned(), lines: table(&rows) })
    }

    /// Returns the changes of a flow's rate.
    pub(super) fn rates(
        &self,
        trial: &str,
        flow: &str,
        count: usize,
    ) -> Result<Inspection, LessonError> {
        let run = self.trial(trial)?;
        let place = run.flows.iter().position(|name| name == flow);
        let changes = &run.rate_changes[place.ok_or_else(|| self.unknown("flow", flow))?];
        let mut rows = Vec::new();
        let mut before = run.line_rate;
        for (at, rate) in changes.iter().take(count) {
            let rate = rate.map_or(run.line_rate, |rate| rate as f64);
            let at = Figure { value: at.as_nanos() as f64, unit: Unit::Nanos }.to_string();
            let change = format!("{:+.0} %", (rate / before - 1.0) * 100.0);
            let rate_now = Figure { value: rate, unit: Unit::BitsPerSec }.to_string();
            rows.push(vec![String::new(), at, rate_now, change]);
            before = rate;
        }
        let more = changes.len().saturating_sub(count);
        let mut lines = table(&rows);
        if more > 0 {
            lines.push(format!("  and {more} further changes"));
        }
        let title = format!("changes of the rate that {flow} may send at ({trial})");
        Ok(Inspection { title, lines })
    }

    /// Returns ACK timeouts, and what all tries take.
    pub(super) fn ack_timeouts(&self, exponents: &[u8]) -> Result<Inspection, LessonError> {
        let row = |exponent: &u8| {
            let timeout = AckTimeout::new(*exponent).and_then(AckTimeout::duration);
            let timeout = timeout.ok_or_else(|| super::out_of_range("ack-timeouts", exponent))?;
            let tries = u32::from(crate::default_options().retry_count) + 1;
            let [one, all] = [timeout, timeout * tries]
                .map(|it| Figure { value: it.as_nanos() as f64, unit: Unit::Nanos }.to_string());
            Ok(vec![exponent.to_string(), one, all])
        };
        let head = ["exponent", "ACK timeout", "error after 7 retries"];
        let mut rows = vec![head.map(str::to_owned).to_vec()];
        rows.extend(exponents.iter().map(row).collect::<Result<Vec<_>, LessonError>>()?);
        Ok(Inspection { title: "4.096 µs times a power of two".to_owned(), lines: table(&rows) })
    }

    pub(super) fn drawing(&self) -> Result<Inspection, LessonError> {
        let data: FabricData = self.section_fabric.clone().try_into()?;
        let lines = data.drawing.trim_end().lines().map(str::to_owned).collect();
        let title = format!("links of {} and {}", data.rate, data.delay);
        Ok(Inspection { title, lines })
    }
}

/// Returns how long the longest PFC pause lasts.
pub(super) fn longest_pauses() -> Inspection {
    let row = |rate: &u64| {
        let pause = PfcFrame::duration(u16::MAX, rate * 1_000_000_000);
        let pause = Figure { value: pause.as_nanos() as f64, unit: Unit::Nanos };
        vec![String::new(), format!("{rate} Gbit/s"), pause.to_string()]
    };
    let title = "65535 times 512 bit times".to_owned();
    Inspection { title, lines: table(&RATES.iter().map(row).collect::<Vec<_>>()) }
}

/// Returns rows with aligned columns: the first to the left, the others to the right.
fn table(rows: &[Vec<String>]) -> Vec<String> {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        let lengths = rows.iter().filter_map(|row| row.get(column));
        lengths.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<_> = (0..columns).map(width).collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths).enumerate().map(|(column, (cell, width))| {
            if column == 0 { format!("{cell:width$}") } else { format!("  {cell:>width$}") }
        });
        cells.collect::<String>()
    };
    rows.iter().map(line).collect()
}
