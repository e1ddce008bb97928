//! Colours of the output.

use std::env;

/// Colours on or off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Coloring {
    On,
    Off,
}

/// The meaning of a colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Color {
    /// Numbers and times.
    Dim,
    /// Requests.
    Request,
    /// Responses.
    Response,
    /// Other packets.
    Special,
    Problem,
    Notice,
    Heading,
}

impl Coloring {
    /// Returns colours for a terminal, unless `NO_COLOR` is set: <https://no-color.org>.
    pub(crate) fn for_terminal(is_terminal: bool) -> Self {
        let unwanted = env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        if is_terminal && !unwanted { Self::On } else { Self::Off }
    }

    pub(crate) fn start(self, color: Color, text: &mut Vec<u8>) {
        if self == Self::Off {
            return;
        }
        text.extend_from_slice(match color {
            Color::Dim => b"\x1b[2m",
            Color::Request => b"\x1b[36m",
            Color::Response => b"\x1b[32m",
            Color::Special => b"\x1b[35m",
            Color::Problem => b"\x1b[1;31m",
            Color::Notice => b"\x1b[33m",
            Color::Heading => b"\x1b[1m",
        });
    }

    pub(crate) fn end(self, text: &mut Vec<u8>) {
        if self == Self::On {
            text.extend_from_slice(b"\x1b[0m");
        }
    }
}
