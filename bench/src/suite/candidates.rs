//! The candidates: how each is started, and how what it prints is read.

pub(crate) mod gloo;
pub(crate) mod idle;
pub(crate) mod iperf3;
pub(crate) mod openmpi;
pub(crate) mod perftest;
pub(crate) mod raw;
pub(crate) mod roce;
pub(crate) mod rsockets;
pub(crate) mod sockets;
pub(crate) mod sockperf;
pub(crate) mod ucx;

use serde_json::Value;

use crate::report::{Figure, Figures};

/// The last line that is a JSON object: what our small programs print at their end.
fn last_object(text: &str) -> Result<Value, String> {
    let object = |line: &str| serde_json::from_str(line).ok().filter(Value::is_object);
    text.lines().rev().find_map(object).ok_or_else(|| "it printed no figures".to_owned())
}

/// Figures out of an object, by name; all of them must be there.
fn pick(object: &Value, names: &[(&str, Figure)]) -> Result<Figures, String> {
    let pick_one = |(name, figure): &(&str, Figure)| {
        let value = object[*name].as_f64().ok_or_else(|| format!("it printed no {name}"))?;
        Ok((*figure, value))
    };
    names.iter().map(pick_one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_line_of_json_counts() {
        let object = last_object("warming up\n{\"gbits\":1}\n{\"gbits\":57.5}\n\n").unwrap();
        let figures = pick(&object, &[("gbits", Figure::Gbits)]).unwrap();
        assert_eq!(figures[&Figure::Gbits], 57.5);
        assert!(last_object("no figures\n12\n").is_err());
    }

    #[test]
    fn a_figure_that_is_not_there_is_named() {
        let object = serde_json::json!({ "p50": "fast" });
        let why = pick(&object, &[("p50", Figure::MicrosMedian)]).unwrap_err();
        assert_eq!(why, "it printed no p50");
    }
}
