//! Two engines that mean well, and a way between them that does not.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| roce_transport::fuzzing::pair_script(bytes));
