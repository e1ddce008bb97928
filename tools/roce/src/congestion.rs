//! Congestion control as an option, and its parameters as a table.

use clap::Args;
use roce_verbs::{CongestionConfig, CongestionParameter, environment};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::as_text;
use crate::error::{CliError, Result};

/// Congestion control of the devices of a command.
#[derive(Args, Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct CongestionOptions {
    /// What limits senders where the path is congested, beside losses: loss (nothing), ecn, dcqcn or
    /// swift, and parameters, such as dcqcn,rp_ai_rate=10 (see `roce devices --cc`)
    #[arg(long, value_name = "SPEC", env = environment::CC, default_value = "ecn")]
    #[arg(hide_env_values = true)]
    #[serde(with = "as_text")]
    pub(crate) cc: CongestionConfig,
}

/// Returns what `ROCE_CC` says, or the default without it.
pub(crate) fn of_environment() -> Result<CongestionConfig> {
    let text = std::env::var(environment::CC).unwrap_or_default();
    text.parse().map_err(|why| CliError::context(environment::CC, why))
}

/// Returns the algorithm and the parameters as a table, and how programs get them.
pub(crate) fn table(config: &CongestionConfig) -> String {
    let default = CongestionConfig::default();
    let mut text = format!(
        "Congestion control: {}\n\n{:29}  {:>10}  {:>10}  {:8}  {}\n",
        config.algorithm.name(),
        "PARAMETER",
        "VALUE",
        "DEFAULT",
        "UNIT",
        "MEANING"
    );
    for parameter in CongestionParameter::all() {
        let [value, usual] = [parameter.get(config), parameter.get(&default)];
        // A changed value is found without a comparison of two columns.
        let mark = if value == usual { ' ' } else { '*' };
        text += &format!(
            "{:29} {mark}{value:>10}  {usual:>10}  {:8}  {}\n",
            parameter.name(),
            parameter.unit(),
            parameter.meaning()
        );
    }
    text += &format!(
        "\nThe parameters with rp_ are those of dcqcn; those with np_ make the receiver answer marks,\n\
         whatever limits the sender. Words beside them: loss, ecn, dcqcn, swift for the algorithm,\n\
         paper and connectx for dcqcn's parameters. A process has its own:\n\
         \x20 roce perf write bw --cc {config} ...\n\
         \x20 roce run --cc {config} -- PROGRAM\n\
         \x20 export {}={config}\n",
        environment::CC
    );
    text
}

/// Returns the same as JSON.
pub(crate) fn to_json(config: &CongestionConfig) -> Value {
    let default = CongestionConfig::default();
    let parameter = |parameter: &CongestionParameter| {
        json!({
            "name": parameter.name(),
            "value": parameter.get(config),
            "default": parameter.get(&default),
            "range": [parameter.range().start(), parameter.range().end()],
            "unit": parameter.unit(),
            "meaning": parameter.meaning(),
        })
    };
    json!({
        "algorithm": config.algorithm.name(),
        "spec": config.to_string(),
        "parameters": CongestionParameter::all().iter().map(parameter).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_marks_what_differs_from_the_default() {
        let config: CongestionConfig = "dcqcn,rp_ai_rate=10,np_cnp_dscp=46".parse().unwrap();
        let text = table(&config);
        insta::assert_snapshot!("congestion", text);
        assert_eq!(text.matches('*').count(), 2);
    }

    #[test]
    fn json_holds_every_parameter_with_its_value() {
        let config: CongestionConfig = "swift,swift_base_target=2000".parse().unwrap();
        let json = to_json(&config);
        assert_eq!(json["algorithm"], "swift");
        assert_eq!(json["spec"], "swift,swift_base_target=2000");
        let parameters = json["parameters"].as_array().unwrap();
        assert_eq!(parameters.len(), CongestionParameter::all().len());
        assert_eq!(parameters.last().unwrap()["value"], 2000);
    }
}
