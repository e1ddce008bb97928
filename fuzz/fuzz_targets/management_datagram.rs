//! Any bytes as a management datagram: no panic, no lie.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| roce_wire::fuzzing::management_datagram(bytes));
