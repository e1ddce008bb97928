//! The steps of a command or of a script.

use roce_generator::{Script, SendStep, Step, Variables};

use super::options::Options;
use crate::error::{CliError, Result};

/// Steps, and the values of their variables.
#[derive(Debug)]
pub(super) enum Steps {
    Command(Vec<(String, Step)>),
    Script { name: String, script: Script, variables: Variables },
}

impl Steps {
    /// Returns the steps of the command line: the packet, unless a capture is replayed, and what has to
    /// come back.
    pub(super) fn of_command(options: &Options) -> Result<Self> {
        let (packet, responses) = (&options.packet, &options.responses);
        let mut steps = Vec::new();
        if let Some(source) = packet.opcode.as_ref().or(packet.from.as_ref()) {
            let step = SendStep {
                changes: packet.set.clone(),
                payload: packet.payload.as_ref().map(|it| it.0.clone()).unwrap_or_default(),
                count: packet.count.unwrap_or(1),
                rate: packet.rate,
                has_wrong_icrc: packet.wrong_icrc,
                ..SendStep::new(source.clone())
            };
            steps.push(("send".to_owned(), Step::Send(Box::new(step))));
        } else if options.replay.replay.is_none() {
            let text = "nothing to send: give an opcode (-o rc_send_only), a frame of a capture (--from), a \
                        capture (--replay) or a script (--script)";
            return Err(CliError::new(text));
        }
        if options.output.dry_run {
            return Ok(Self::Command(steps));
        }
        let within = responses.wait;
        for filter in &responses.expect {
            let step = Step::Expect { filter: filter.clone(), within };
            steps.push((format!("expect {filter}"), step));
        }
        for filter in &responses.forbid {
            let step = Step::Forbid { filter: filter.clone(), during: within };
            steps.push((format!("forbid {filter}"), step));
        }
        if responses.expect.is_empty() && responses.forbid.is_empty() {
            steps.push(("wait".to_owned(), Step::Wait(within)));
        }
        Ok(Self::Command(steps))
    }

    /// Parses a script.
    pub(super) fn of_script(name: String, text: &str, values: &[(String, String)]) -> Result<Self> {
        let mut variables = Variables::default();
        for (variable, value) in values {
            let wrong = |why| CliError::new(format!("--let {variable}={value}: {why}"));
            variables.fix(variable, value).map_err(wrong)?;
        }
        let script = Script::parse(text, &variables)
            .map_err(|error| CliError::new(format!("{name}, {error}")))?;
        if script.is_empty() {
            return Err(CliError::new(format!("{name} has no statement")));
        }
        Ok(Self::Script { name, script, variables })
    }

    /// Returns the number of steps.
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Command(steps) => steps.len(),
            Self::Script { script, .. } => script.len(),
        }
    }

    /// Returns the text of a step of a script, with its line.
    pub(super) fn title(&self, index: usize) -> Option<String> {
        match self {
            Self::Command(_) => None,
            Self::Script { script, .. } => {
                let (line, text) = script.text(index);
                Some(format!("line {line}: {text}"))
            }
        }
    }

    /// Returns the text of a step for a message.
    pub(super) fn text(&self, index: usize) -> String {
        match self {
            Self::Command(steps) => steps[index].0.clone(),
            Self::Script { .. } => self.title(index).unwrap_or_default(),
        }
    }

    /// Returns a step with the values of its variables.
    pub(super) fn step(&mut self, index: usize) -> Result<Step> {
        match self {
            Self::Command(steps) => Ok(steps[index].1.clone()),
            Self::Script { name, script, variables } => script
                .step(index, variables)
                .map_err(|error| CliError::new(format!("{name}, {error}"))),
        }
    }

    /// Returns the variables of a script.
    pub(super) fn variables(&mut self) -> Option<&mut Variables> {
        match self {
            Self::Command(_) => None,
            Self::Script { variables, .. } => Some(variables),
        }
    }
}
