//! Any bytes as a frame, as a train and as bare transport headers: no panic, no lie.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| roce_wire::fuzzing::parse_frame(bytes));
