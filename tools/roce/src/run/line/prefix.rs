//! What stands before the output of ranks.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// What stands before the lines of a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
pub(crate) enum Prefix {
    /// The number of the rank in brackets
    Rank,
    /// Nothing: the ranks write to this command's output themselves, byte by byte
    None,
}

impl Prefix {
    /// Returns what stands before the lines of a rank, coloured for a terminal.
    pub(crate) fn of(rank: usize, is_coloured: bool) -> String {
        const COLOURS: [u8; 6] = [36, 33, 35, 32, 34, 31];
        match COLOURS.get(rank % COLOURS.len()).filter(|_| is_coloured) {
            Some(code) => format!("\x1b[{code}m[{rank}]\x1b[0m "),
            None => format!("[{rank}] "),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_have_colours_on_a_terminal() {
        assert_eq!(Prefix::of(0, true), "\x1b[36m[0]\x1b[0m ");
        assert_eq!(Prefix::of(7, false), "[7] ");
    }
}
