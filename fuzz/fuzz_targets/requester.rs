//! One engine that asks, and anything that strangers answer.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| roce_transport::fuzzing::requester(bytes));
