//! Values and responses in memory of the program.
//!
//! The kernel answers an address that is none with `EFAULT`. Here the program ends by SIGSEGV, as
//! if it had used the address itself.

use std::ffi::c_int;

use libc::EFAULT;
use roce_abi::rdma_cm::{Plain, ResponseSpace};

/// Writes a response; what the program has no space for is left out.
///
/// # Errors
/// `EFAULT` for a null pointer.
pub(super) fn respond(space: ResponseSpace, response: &[u8]) -> Result<(), c_int> {
    let len = response.len().min(usize::from(space.len));
    let out: *mut u8 = std::ptr::with_exposed_provenance_mut(space.address as usize);
    if out.is_null() {
        return Err(EFAULT);
    }
    // SAFETY: the program has said in its command that the response may be written there.
    unsafe { std::ptr::copy_nonoverlapping(response.as_ptr(), out, len) };
    Ok(())
}

/// Reads a value of the program.
///
/// # Errors
/// `EFAULT` for a null pointer.
pub(super) fn read<T: Plain>(address: u64) -> Result<T, c_int> {
    let from: *const u8 = std::ptr::with_exposed_provenance(address as usize);
    if from.is_null() {
        return Err(EFAULT);
    }
    // SAFETY: the program has said in its command that a value of this size is there.
    Ok(T::read(unsafe { std::slice::from_raw_parts(from, size_of::<T>()) }))
}
