//! RoCE captures explained: packets, verdicts, connections.

#![forbid(unsafe_code)]
