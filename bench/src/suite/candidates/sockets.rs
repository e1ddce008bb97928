//! Sockets in their simplest form: our own small programs over TCP and UDP.

use super::raw::{ends, parse_times};
use super::{last_object, pick};
use crate::report::Figure;
use crate::suite::Candidate;

/// Eight bytes each way; `wait` is `spin` or `block`.
pub(crate) fn pingpong(name: &'static str, kind: &'static str, wait: &'static str) -> Candidate {
    let how = if wait == "spin" { "spinning" } else { "blocking" };
    let title = format!("{} sockets, {how}", kind.to_uppercase());
    Candidate::new(name, title, &["sockets_pingpong"], move |context| {
        let both = ["--kind", kind, "--wait", wait];
        parse_times(&ends(context, "sockets_pingpong", &both, |end| end)?)
    })
}

/// Messages of eight bytes, one `send` each; more options for the program, and what they mean.
pub(crate) fn rate(
    name: &'static str,
    kind: &'static str,
    (options, meaning): (&'static [&'static str], &'static str),
) -> Candidate {
    let title = format!("{} sockets{meaning}", kind.to_uppercase());
    Candidate::new(name, title, &["sockets_rate"], move |context| {
        let both = [&["--kind", kind], options].concat();
        let printed = ends(context, "sockets_rate", &both, |end| end)?;
        pick(&last_object(&printed)?, &[("per_second", Figure::PerSecond)])
    })
}
