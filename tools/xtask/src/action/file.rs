//! `action.yml` and files of workflows, as far as they are used here.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::Result;

/// Values by name.
pub(super) type Values = BTreeMap<String, String>;

/// A composite action.
#[derive(Debug, Deserialize)]
pub(super) struct Action {
    pub(super) inputs: BTreeMap<String, Input>,
    pub(super) runs: Runs,
}

/// A setting of an action.
#[derive(Debug, Deserialize)]
pub(super) struct Input {
    #[serde(default)]
    pub(super) default: String,
}

/// What an action does.
#[derive(Debug, Deserialize)]
pub(super) struct Runs {
    using: String,
    pub(super) steps: Vec<Step>,
}

/// A step of an action or a job.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Step {
    /// The action that it runs.
    pub(super) uses: Option<String>,
    /// The inputs of that action.
    pub(super) with: Values,
    /// Lines of the shell.
    pub(super) run: Option<String>,
    pub(super) env: Values,
}

/// A workflow.
#[derive(Debug, Deserialize)]
pub(super) struct Workflow {
    pub(super) jobs: BTreeMap<String, WorkflowJob>,
}

/// A job of a workflow.
#[derive(Debug, Deserialize)]
pub(super) struct WorkflowJob {
    pub(super) steps: Vec<Step>,
}

impl Action {
    /// Reads a file.
    ///
    /// # Errors
    /// If it is no composite action.
    pub(super) fn read(file: &Path) -> Result<Self> {
        let action: Self = read(file)?;
        match action.runs.using.as_str() {
            "composite" => Ok(action),
            other => Err(format!("{}: an action of {other}", file.display()).into()),
        }
    }
}

impl Workflow {
    /// Reads a file.
    ///
    /// # Errors
    /// If it is no workflow.
    pub(super) fn read(file: &Path) -> Result<Self> {
        read(file)
    }
}

fn read<T: DeserializeOwned>(file: &Path) -> Result<T> {
    let text = fs::read_to_string(file)?;
    serde_saphyr::from_str(&text).map_err(|error| format!("{}: {error}", file.display()).into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace;

    #[test]
    fn each_input_of_the_action_reaches_its_script() {
        let action = Action::read(&workspace::root().join("action.yml")).unwrap();
        let script = workspace::root().join("action/setup.sh");
        let script = fs::read_to_string(script).unwrap();
        let step = &action.runs.steps[0];
        for input in action.inputs.keys() {
            let variable = format!("ROCE_SETUP_{}", input.replace('-', "_").to_uppercase());
            let value = format!("${{{{ inputs.{input} }}}}");
            assert_eq!(step.env.get(&variable), Some(&value), "{input}");
            assert!(script.contains(&format!("${{{variable}:-")), "{variable}");
        }
    }

    #[test]
    fn the_workflows_that_users_copy_use_inputs_that_the_action_has() {
        let action = Action::read(&workspace::root().join("action.yml")).unwrap();
        let files = fs::read_dir(workspace::root().join("docs/ci")).unwrap();
        let files = files.map(|file| file.unwrap().path());
        let workflows: Vec<_> =
            files.filter(|file| file.extension().is_some_and(|it| it == "yml")).collect();
        assert!(workflows.len() >= 3, "{workflows:?}");
        for file in workflows {
            let workflow = Workflow::read(&file).unwrap();
            let steps = workflow.jobs.values().flat_map(|job| &job.steps);
            let ours: Vec<_> = steps
                .filter(|step| step.uses.as_deref().is_some_and(|it| it.contains("/roce@v")))
                .collect();
            assert!(!ours.is_empty(), "{} does not use the action", file.display());
            for input in ours.iter().flat_map(|step| step.with.keys()) {
                assert!(action.inputs.contains_key(input), "{}: {input}", file.display());
            }
        }
    }
}
