//! Captures in, findings out, by what they hold.

mod checks;
mod common;
mod congestion;
mod counting;
mod following;
mod kept;
mod testdata;
mod tshark;
mod wrapping;
