//! Connection management in engines, in virtual time.

mod damaged_frames;
mod exchanges;
mod floods;
mod forged;
mod host;
