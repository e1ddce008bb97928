//! A rank of a ring, and anything that its neighbours send.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| roce_ring::fuzzing::ring_machine(bytes));
