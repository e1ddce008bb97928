//! Any bytes as what comes out of band: the lines by which ranks find each other, and the line
//! of the pingpong programs.

#![no_main]

// Files of `roce-verbs`, which as a whole would bring half an operating system with it.
#[allow(dead_code)]
#[path = "../../crates/roce-verbs/src/exchange.rs"]
mod exchange;
#[path = "../../crates/roce-verbs/src/fuzzing.rs"]
mod fuzzing;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    roce_ring::fuzzing::bootstrap(bytes);
    fuzzing::dest(bytes);
});
