//! Frames of every kind, one after the other, to one dissector.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| roce_dissect::fuzzing::dissect(bytes));
