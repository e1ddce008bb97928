//! RoCEv2 in user space: devices, pingpong, perf.
fn main() {}
