//! What queue pairs of all services share.
//!
//! | module | contents |
//! |---|---|
//! | `context` | identity, state and parameters |
//! | `modify` | the table of transitions |
//! | `validate` | checks of posted requests |
//! | `incoming_message` | places SENDs and WRITEs of the peer in memory |
//! | `local_operation` | executes requests that send no packet |
//! | `outgoing_message` | writes SENDs and WRITEs as packets |
//! | `segmentation` | how many packets a message is divided into |
//! | `send_queue`, `receive_queue`, `shared_receive_queue` | what is posted |
//! | `receives` | the receives of a queue pair: its own, or those of a shared queue |

pub(crate) mod context;
pub(crate) mod incoming_message;
pub(crate) mod local_operation;
pub(crate) mod modify;
pub(crate) mod outgoing_message;
pub(crate) mod receive_queue;
pub(crate) mod receives;
pub(crate) mod segmentation;
pub(crate) mod send_queue;
pub(crate) mod shared_receive_queue;
pub(crate) mod validate;
