//! What a device is opened for.

/// What a device is opened for. Either way it can be used for everything.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Purpose {
    /// Queue pairs.
    #[default]
    Traffic,
    /// To hear of requests for connections. It has no receive rings, each of 9 MiB, until its first queue pair
    /// is made, which takes some 50 ms longer.
    Listening,
}
