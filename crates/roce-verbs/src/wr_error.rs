//! Why work requests are refused.

use roce_transport::PostError;

use crate::verb_faults::InjectedError;

/// Work that was refused, and where in the list it stood: what stands before it was posted.
#[derive(Debug, thiserror::Error)]
#[error("work request {index} of the list: {source}")]
pub struct BadWr {
    /// Position of the first request that was not posted.
    pub index: usize,
    /// Why.
    #[source]
    pub source: WrError,
}

/// Why work was refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WrError {
    /// The request itself.
    #[error(transparent)]
    Post(#[from] PostError),
    /// The address handle is of another protection domain.
    #[error(
        "the address handle and the queue pair are of different protection domains; make both from one"
    )]
    OtherDomain,
    /// The interface carries no path MTU, so that a datagram has no length.
    #[error("the interface's MTU is too small for any path MTU; raise it")]
    NoPathMtu,
    /// A scripted fault says so.
    #[error(transparent)]
    Injected(#[from] InjectedError),
    /// The whole queue; see [`Error::Forked`](crate::Error::Forked).
    #[error("this queue was made before fork; open the device again in the child process")]
    Forked,
}
