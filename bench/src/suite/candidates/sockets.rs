//! Sockets in their simplest form: our own small programs over TCP and UDP.

use super::raw::{ends, parse_times};
use super::{last_object, pick};
use crate::report::{Figure, Figures};
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

/// Whole round trips of eight bytes over TCP to a peer in a blocking read, each message `pause` µs behind the
/// answer to the one before; the client spins for the answer.
pub(crate) fn wake_up(name: &'static str, pause: u32) -> Candidate {
    let program = "sockets_pingpong";
    Candidate::new(name, "TCP socket, blocking read", &[program], move |context| {
        let pause = pause.to_string();
        let both = ["--kind", "tcp", "--wait", "block-server", "--pause", &pause];
        let half = parse_times(&ends(context, program, &both, |end| end)?)?;
        Ok(half.into_iter().map(|(figure, time)| (figure, 2.0 * time)).collect::<Figures>())
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
