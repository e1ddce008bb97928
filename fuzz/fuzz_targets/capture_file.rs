//! Any bytes as a capture file, and what is in it dissected.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| roce_dissect::fuzzing::capture_file(bytes));
