//! Two agents in virtual time, and one that receives anything.

mod attributes;
mod bounds;
mod bursts;
mod corpora;
mod damaged_datagrams;
mod pair_scripts;
mod records;
mod rxe_bytes;
mod shared_addresses;
mod single_messages;
mod stages;
