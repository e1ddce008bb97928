//! A view of all frames, for captures.

use std::fmt;

use roce_fabric::Instant;

/// A frame on the interface of a host, as it is sent or received.
#[derive(Clone, Copy, Debug)]
pub struct Tapped<'a> {
    /// Time.
    pub at: Instant,
    /// Index of the host.
    pub host: usize,
    /// Frame from the Ethernet header to the last ICRC.
    pub frame: &'a [u8],
    /// Length of the packets of a train, if the frame carries several.
    pub segment_len: Option<usize>,
}

/// A function that is called with each frame.
pub(crate) struct Tap(pub(crate) Box<dyn FnMut(Tapped<'_>) + Send>);

impl fmt::Debug for Tap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tap")
    }
}
