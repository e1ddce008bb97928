//! Any bytes as a command to the device of librdmacm: no panic, no lie.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| roce_abi::rdma_cm::fuzzing::ucma_commands(bytes));
