//! Packets with wrong fields, drafts and rewritten captures.

mod drafts;
mod rewriting;
