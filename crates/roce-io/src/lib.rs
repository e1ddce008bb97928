//! Ethernet frames to and from an interface.
