//! One engine and anything that strangers ask of it.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| roce_transport::fuzzing::responder(bytes));
