//! Programs in a host: started, read, waited for with a limit, and ended.
//!
//! A [`Launch`] describes a program, its streams and its end. [`Launch::start_in`] starts it in a
//! [`Host`](crate::Host), [`Launch::start`] in the namespace of this process. A [`Running`] is read line by
//! line, waited for or signalled; dropping it ends the program. An [`Outcome`] has the exit status and the
//! output.
//!
//! ```
//! use std::time::Duration;
//! use roce_netns::process::Launch;
//!
//! let greeter = Launch::new("sh").args(["-c", "echo ready; read name; echo hello $name"]);
//! let mut greeter = greeter.with_stdin().start()?;
//! let limit = Duration::from_secs(10);
//! assert_eq!(greeter.read_line(limit)?.as_deref(), Some("ready"));
//! greeter.write_line("world")?;
//! let outcome = greeter.wait(limit)?.check()?;
//! assert_eq!(outcome.stdout, "hello world\n");
//!
//! let failure = Launch::new("sh").args(["-c", "echo no such device >&2; exit 3"]).start()?;
//! let error = failure.wait(limit)?.check().unwrap_err();
//! assert_eq!(error.to_string(), "sh: no such device (exit status: 3)");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod error;
mod launch;
mod outcome;
mod readiness;
mod running;
mod streams;
mod table;
#[cfg(test)]
mod tests;

pub use error::ProcessError;
pub use launch::{Launch, Output};
pub use nix::sys::signal::Signal;
pub use outcome::Outcome;
pub use readiness::Readiness;
pub use running::Running;
pub use table::{children_of, descendants_of, is_running, parent_of};
