//! The binary interface of `/dev/infiniband/rdma_cm`: what librdmacm writes to that device, and what the
//! device puts into memory of the program.
//!
//! A `write` is a command: a header, and behind it the structure of the command.
//! [`Command::decode`] reads one of any length. Where a command has a response, the structure names
//! the address, and the header its length; [`Plain`] makes the bytes.
//!
//! Names, fields and values are those of `<rdma/rdma_user_cm.h>`. The structures have only grown at their
//! ends between rdma-core 39 and 65.
//!
//! ```
//! use roce_abi::rdma_cm::{Command, Plain, RDMA_USER_CM_CMD_LISTEN, rdma_ucm_cmd_hdr, rdma_ucm_listen};
//!
//! let header = rdma_ucm_cmd_hdr { cmd: RDMA_USER_CM_CMD_LISTEN, r#in: 8, out: 0 };
//! let listen = rdma_ucm_listen { id: 3, backlog: 16 };
//! let written = [header.to_vec(), listen.to_vec()].concat();
//! assert_eq!(Command::decode(&written), Ok(Command::Listen { id: 3, backlog: 16 }));
//! assert_eq!(Command::decode(&written[..12]), Err(libc::EINVAL));
//! ```

mod command;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
mod path_record;
mod plain;
#[cfg(test)]
mod released_versions;
mod socket_address;
mod structures;
#[cfg(test)]
mod tests;
mod values;

pub use command::{Command, Ece, Query, ResponseSpace};
pub use path_record::PathRecord;
pub use plain::Plain;
pub use socket_address::SocketAddress;
pub use structures::*;
pub use values::*;
