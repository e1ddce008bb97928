//! The script that runs the steps of a job as a GitHub runner does.

use std::fmt::Write;

use super::file::{Action, Step, Values, Workflow};
use crate::Result;

/// Owner and name of the repository of the action, in the addresses of its releases.
pub(super) const REPOSITORY: &str = "owner/roce";

/// The line that runs a job in a root.
pub(super) const ENTRY: &str = "sh /check/job.sh";

/// Port of the server that has the release.
const PORT: u16 = 8080;

/// The user of a runner.
#[derive(Clone, Copy, Debug)]
pub(super) enum User {
    /// As in the container of a job.
    Root,
    /// As on a hosted runner.
    Sudo,
}

/// The steps of a job.
#[derive(Debug)]
pub(super) struct Job {
    user: User,
    /// Lines in front of the steps.
    setting: String,
    /// A script of each step.
    steps: Vec<String>,
    /// The folder that `actions/checkout` checks out.
    project: Option<String>,
}

impl Job {
    /// Creates a job without steps.
    pub(super) fn new(user: User) -> Self {
        Self { user, setting: String::new(), steps: Vec::new(), project: None }
    }

    /// Has the releases of a folder at the address where the action looks for them.
    pub(super) fn serves_release(&mut self, folder: &str) {
        let _always = write!(
            self.setting,
            "ip link set lo up 2>/dev/null || true
python3 -m http.server --bind 127.0.0.1 --directory {folder} {PORT} >/dev/null 2>&1 &
export GITHUB_SERVER_URL=http://127.0.0.1:{PORT}
until curl --silent --output /dev/null $GITHUB_SERVER_URL; do sleep 0.1; done
"
        );
    }

    /// Sets the project that a workflow checks out.
    pub(super) fn checks_out(&mut self, folder: &str) {
        self.project = Some(folder.to_owned());
    }

    /// Adds the steps of the action with these inputs.
    ///
    /// # Errors
    /// If the action has no such input, or has an expression that is unknown here.
    pub(super) fn uses(&mut self, action: &Action, with: &[(&str, &str)]) -> Result<()> {
        let mut inputs: Values = action
            .inputs
            .iter()
            .map(|(name, input)| (name.clone(), input.default.clone()))
            .collect();
        for (name, value) in with {
            let input = inputs.get_mut(*name).ok_or_else(|| format!("no input {name}"))?;
            (*value).clone_into(input);
        }
        action.runs.steps.iter().try_for_each(|step| self.add(step, &inputs))
    }

    /// Adds lines of the shell.
    pub(super) fn runs(&mut self, lines: &str) {
        self.steps.push(lines.to_owned());
    }

    /// Adds the steps of the only job of a workflow, whose steps of this action are those of `action`.
    ///
    /// # Errors
    /// If a step uses an action that is unknown here.
    pub(super) fn follows(&mut self, workflow: &Workflow, action: &Action) -> Result<()> {
        for step in workflow.jobs.values().flat_map(|job| &job.steps) {
            match step.uses.as_deref() {
                None => self.add(step, &Values::new())?,
                Some(it) if it.starts_with("actions/checkout@") => {
                    let project = self.project.as_deref().ok_or("no project")?;
                    self.steps.push(format!("cp -r {project}/. ."));
                }
                Some(it) if it.contains("/roce@v") => {
                    let with: Vec<_> = step
                        .with
                        .iter()
                        .map(|(name, value)| (name.as_str(), value.as_str()))
                        .collect();
                    self.uses(action, &with)?;
                }
                Some(other) => return Err(format!("{other} is unknown here").into()),
            }
        }
        Ok(())
    }

    fn add(&mut self, step: &Step, inputs: &Values) -> Result<()> {
        let mut script = String::new();
        for (name, value) in &step.env {
            let value = evaluate(value, inputs)?.replace('\'', r"'\''");
            writeln!(script, "export {name}='{value}'")?;
        }
        script += &evaluate(step.run.as_deref().ok_or("a step without run")?, inputs)?;
        self.steps.push(script);
        Ok(())
    }

    /// Returns the script.
    pub(super) fn script(&self) -> String {
        let mut script = format!("{}\n{}", include_str!("prelude.sh"), self.setting);
        let step_of = match self.user {
            User::Root => "step",
            User::Sudo => "step_of_runner",
        };
        for step in &self.steps {
            let _always = write!(script, "{step_of} <<'END OF STEP'\n{step}\nEND OF STEP\n");
        }
        script
    }
}

/// Replaces the expressions in a text.
fn evaluate(text: &str, inputs: &Values) -> Result<String> {
    let mut parts = text.split("${{");
    let mut whole = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (expression, rest) = part.split_once("}}").ok_or("an expression without an end")?;
        let value = match expression.trim() {
            "github.action_repository" => REPOSITORY,
            other => other
                .strip_prefix("inputs.")
                .and_then(|name| inputs.get(name))
                .ok_or_else(|| format!("the expression {other} is unknown here"))?,
        };
        whole += value;
        whole += rest;
    }
    Ok(whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_have_the_values_of_inputs() {
        let inputs = Values::from([("a".to_owned(), "1".to_owned())]);
        assert_eq!(evaluate("x${{ inputs.a }}y${{inputs.a}}", &inputs).unwrap(), "x1y1");
        assert!(evaluate("${{ inputs.b }}", &inputs).is_err());
        assert!(evaluate("${{ inputs.a", &inputs).is_err());
    }
}
