//! Scripts: packets to send, and what has to come back.
//!
//! A statement has a line of its own. `#` begins a comment.
//!
//! | statement | meaning |
//! |---|---|
//! | `let NAME = VALUE` | gives a variable its value, unless the caller has given it one |
//! | `send OPCODE NAME=VALUE …` | sends a packet of an opcode, or of a capture: `send FILE:N …` |
//! | `expect within TIME: FILTER` | waits for a packet that passes |
//! | `forbid for TIME: FILTER` | fails if such a packet is there or comes within the time |
//! | `take NAME = FIELD` | takes the value of a variable from the packet that was expected last |
//! | `wait TIME` | waits |

mod error;
mod limits;
mod send_step;
mod statement;
mod step;
mod variables;

pub use self::error::ScriptError;
pub use self::limits::{MAX_COUNT, MAX_RATE, MAX_TIME, parse_count, parse_rate, parse_time};
pub use self::send_step::{PacketSource, SendStep};
use self::statement::Statement;
pub use self::step::Step;
pub use self::variables::Variables;

/// A text of statements, checked.
///
/// ```
/// use roce_generator::{Script, Step, Variables};
///
/// let mut variables = Variables::default();
/// variables.fix("qp", "0x11")?;
/// let text = "let psn = 0x000000\n\
///             send rc_send_only qp=$qp psn=$psn-1 ack_request=1 payload=4\n\
///             expect within 1s: aeth.kind == ack and psn == $psn-1\n";
/// let script = Script::parse(text, &variables)?;
/// let steps: Vec<_> = (0..script.len()).map(|at| script.step(at, &mut variables)).collect();
/// assert!(matches!(&steps[2], Ok(Step::Expect { filter, .. }) if filter.to_string().contains("0xffffff")));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Script {
    statements: Vec<Statement>,
}

impl Script {
    /// Parses a script. A statement is checked with the values of its variables, unless one of them is
    /// taken from a packet; such a statement is checked by [`step`](Self::step).
    ///
    /// # Errors
    /// [`ScriptError`] with the line of the first mistake.
    pub fn parse(text: &str, variables: &Variables) -> Result<Self, ScriptError> {
        if text.len() > MAX_LEN {
            return Err(ScriptError::new(1, format!("a script has at most {MAX_LEN} bytes")));
        }
        let mut statements = Vec::new();
        for (index, line) in text.lines().enumerate() {
            let statement = Statement::parse(index + 1, line)?;
            statements.extend(statement);
            if statements.len() > MAX_STATEMENTS {
                let text = format!("a script has at most {MAX_STATEMENTS} statements");
                return Err(ScriptError::new(index + 1, text));
            }
        }
        let script = Self { statements };
        script.check(variables.clone())?;
        Ok(script)
    }

    /// Returns the number of statements.
    pub fn len(&self) -> usize {
        self.statements.len()
    }

    /// Returns true without statements.
    pub fn is_empty(&self) -> bool {
        self.statements.is_empty()
    }

    /// Returns the line of a statement, from 1, and its text. `index` is below [`len`](Self::len).
    ///
    /// # Panics
    /// With another index.
    pub fn text(&self, index: usize) -> (usize, &str) {
        let statement = &self.statements[index];
        (statement.line, &statement.text)
    }

    /// Returns a statement with the values of its variables; `let` gives one its value.
    ///
    /// # Errors
    /// [`ScriptError`] if a value does not fit.
    ///
    /// # Panics
    /// As [`text`](Self::text).
    pub fn step(&self, index: usize, variables: &mut Variables) -> Result<Step, ScriptError> {
        self.statements[index].resolve(variables)
    }

    fn check(&self, mut variables: Variables) -> Result<(), ScriptError> {
        let mut taken: Vec<String> = Vec::new();
        for (index, statement) in self.statements.iter().enumerate() {
            if taken.iter().any(|name| variables::names(&statement.text).any(|it| it == name)) {
                continue;
            }
            if let Step::Take { name, .. } = self.step(index, &mut variables)? {
                taken.push(name);
            }
        }
        Ok(())
    }
}

const MAX_LEN: usize = 256 << 10;
const MAX_STATEMENTS: usize = 2000;

#[cfg(test)]
mod tests;
