//! What callgrind writes, as far as it is needed here: the instructions of each function itself.

use std::collections::{BTreeMap, HashMap};

/// Instructions by function, without those of the functions that it calls.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Profile {
    by_function: BTreeMap<String, u64>,
}

impl Profile {
    /// Reads a file in callgrind's format, with one event and one position.
    ///
    /// # Errors
    /// When it is something else, or its own total differs from what was read.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let mut names: HashMap<&str, &str> = HashMap::new();
        let mut profile = Self::default();
        let (mut function, mut is_call, mut total) = ("", false, None);
        for line in text.lines() {
            if let Some(name) = line.strip_prefix("fn=") {
                function = resolve(name, &mut names)?;
            } else if let Some(name) = line.strip_prefix("cfn=") {
                resolve(name, &mut names)?;
            } else if line.starts_with("calls=") {
                // The next line has the cost of what was called, which has its own.
                is_call = true;
            } else if let Some(sum) = line.strip_prefix("totals:").or(line.strip_prefix("summary:"))
            {
                total = Some(sum.trim().parse::<u64>().map_err(|_| no_number(line))?);
            } else if line.starts_with(|first: char| "0123456789+-*".contains(first))
                && !std::mem::take(&mut is_call)
            {
                let cost = line.split_whitespace().nth(1).unwrap_or_default();
                let cost: u64 = cost.parse().map_err(|_| no_number(line))?;
                *profile.by_function.entry(function.to_owned()).or_default() += cost;
            }
        }
        let sum = profile.sum_of(|_| true);
        match total {
            Some(total) if total == sum && sum > 0 => Ok(profile),
            Some(total) => Err(format!("its functions have {sum} instructions, it says {total}")),
            None => Err("it has no total".to_owned()),
        }
    }

    /// The instructions of all functions of which `wanted` says so by their names.
    pub(crate) fn sum_of(&self, wanted: impl Fn(&str) -> bool) -> u64 {
        self.by_function.iter().filter(|(name, _)| wanted(name)).map(|(_, cost)| cost).sum()
    }
}

/// `(7) name` names number 7, `(7)` is what was named so before.
fn resolve<'a>(name: &'a str, names: &mut HashMap<&'a str, &'a str>) -> Result<&'a str, String> {
    let Some((number, name)) = name.strip_prefix('(').and_then(|rest| rest.split_once(')')) else {
        return Ok(name);
    };
    match name.trim() {
        "" => names.get(number).copied().ok_or_else(|| format!("function {number} has no name")),
        name => {
            names.insert(number, name);
            Ok(name)
        }
    }
}

fn no_number(line: &str) -> String {
    format!("there is no number in {line:?}")
}

#[cfg(test)]
mod tests {
    use super::Profile;

    const EXAMPLE: &str = "\
version: 1
positions: line
events: Ir
fn=(1) engine::turn
0 10
cfn=(2) memcpy
calls=3 0
0 600
0 5

fn=(2)
0 600

fn=(1)
+3 1
totals: 616
";

    #[test]
    fn a_function_has_what_it_does_itself_and_not_what_it_calls() {
        let profile = Profile::parse(EXAMPLE).unwrap();
        assert_eq!(profile.sum_of(|name| name == "engine::turn"), 16);
        assert_eq!(profile.sum_of(|name| name.contains("memcpy")), 600);
        assert_eq!(profile.sum_of(|_| true), 616);
    }

    #[test]
    fn a_file_that_contradicts_itself_is_refused() {
        assert!(Profile::parse(&EXAMPLE.replace("616", "617")).is_err());
        assert!(Profile::parse(&EXAMPLE.replace("totals", "nothing")).is_err());
        assert!(Profile::parse(&EXAMPLE.replace("+3 1", "+3 x")).is_err());
        assert!(Profile::parse("").is_err());
    }
}
