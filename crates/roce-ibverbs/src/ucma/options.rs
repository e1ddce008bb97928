//! Options of identifiers.

use std::ffi::c_int;

use libc::{EINVAL, ENOSYS};
use roce_abi::rdma_cm::{
    RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, RDMA_OPTION_ID_AFONLY, RDMA_OPTION_ID_REUSEADDR,
    RDMA_OPTION_ID_TOS,
};
use roce_verbs::cm::Id;

use super::memory;

/// Sets an option, whose value has `len` bytes at `address`.
///
/// # Errors
/// `ENOSYS` for an unknown option, `EINVAL` for a value of another size, and those of the option.
pub(super) fn set(id: &Id, level: u32, name: u32, address: u64, len: u32) -> Result<(), c_int> {
    if level != RDMA_OPTION_ID {
        return Err(ENOSYS);
    }
    let byte = || if len == 1 { memory::read::<u8>(address) } else { Err(EINVAL) };
    let flag = || match len {
        4 => memory::read::<u32>(address).map(|value| value != 0),
        _ => Err(EINVAL),
    };
    let result = match name {
        RDMA_OPTION_ID_TOS => {
            id.set_type_of_service(byte()?);
            Ok(())
        }
        RDMA_OPTION_ID_REUSEADDR => id.set_reuse_address(flag()?),
        RDMA_OPTION_ID_AFONLY => id.set_ipv6_only(flag()?),
        // The kernel takes any byte; the field of a queue pair has five bits.
        RDMA_OPTION_ID_ACK_TIMEOUT => id.set_ack_timeout(byte()? & 31),
        _ => return Err(ENOSYS),
    };
    result.map_err(|error| error.errno())
}
