//! Any bytes as text: the messages by which ranks find each other, the line of the pingpong programs,
//! and scripts of packets.

#![no_main]

// Files of `roce-verbs` and `roce-collectives`: the whole crates need an operating system.
#[allow(dead_code)]
#[path = "../../crates/roce-verbs/src/exchange.rs"]
mod exchange;
#[path = "../../crates/roce-verbs/src/fuzzing.rs"]
mod fuzzing;
#[allow(dead_code)]
#[path = "../../crates/roce-collectives/src/message.rs"]
mod message;
#[path = "../../crates/roce-collectives/src/bootstrap/fuzzing.rs"]
mod message_fuzzing;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    message_fuzzing::messages(bytes);
    roce_ring::fuzzing::records(bytes);
    fuzzing::dest(bytes);
    roce_generator::fuzzing::texts(bytes);
});
