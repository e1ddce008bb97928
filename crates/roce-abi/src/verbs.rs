//! The structures, values and functions of `<infiniband/verbs.h>`.

mod completion;
mod context;
mod device;
mod event;
mod memory;
mod path;
mod queue_pair;
mod rate;
mod shared_receive_queue;
mod work_request;

pub use completion::*;
pub use context::*;
pub use device::*;
pub use event::*;
pub use memory::*;
pub use path::*;
pub use queue_pair::*;
pub use rate::*;
pub use shared_receive_queue::*;
pub use work_request::*;
