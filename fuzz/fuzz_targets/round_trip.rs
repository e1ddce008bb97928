//! Any headers around any payload, sealed as a train, are read as they were made.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| roce_wire::fuzzing::round_trip(bytes));
