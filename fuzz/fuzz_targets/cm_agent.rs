//! A connection manager, and anything that its peers and its program do.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| roce_cm::fuzzing::cm_agent(bytes));
