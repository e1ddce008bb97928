//! Maintainers' chores: tests by tier, the rxe guest, the layer check.
fn main() {}
