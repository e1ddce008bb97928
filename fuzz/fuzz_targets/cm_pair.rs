//! Two connection managers, and a network between them that loses, repeats and delays.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| roce_cm::fuzzing::cm_pair(bytes));
