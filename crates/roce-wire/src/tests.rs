//! Properties of several headers: whole packets, trains, hostile bytes, corpora.

mod corpus;
mod display;
mod hostile;
mod known_answers;
mod packet_view;
mod processor_crc;
mod samples;
mod trains;
mod v1;
