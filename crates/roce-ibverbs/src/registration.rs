//! Registration of memory by attributes, which may name a buffer of the library.

use std::ffi::c_void;
use std::ptr;

use libc::{EINVAL, EOPNOTSUPP};
use roce_abi::{
    IBV_REG_MR_MASK_ADDR, IBV_REG_MR_MASK_BUF, IBV_REG_MR_MASK_IOVA, ibv_buf, ibv_mr,
    ibv_mr_init_attr,
};

use crate::cancellation::Uncancellable;
use crate::protection_domain::ProtectionDomain;
use crate::{buffer, errno, memory_region};

/// `ibv_reg_mr_ex`: memory by its address, or a part of a buffer.
pub(crate) unsafe extern "C" fn by_attributes(
    pd: &ProtectionDomain,
    attributes: &ibv_mr_init_attr,
) -> *mut ibv_mr {
    let _uncancellable = Uncancellable::begin();
    let mask = attributes.comp_mask;
    if mask & !(IBV_REG_MR_MASK_IOVA | IBV_REG_MR_MASK_ADDR | IBV_REG_MR_MASK_BUF) != 0 {
        return errno::null(EOPNOTSUPP);
    }
    if mask & IBV_REG_MR_MASK_ADDR == 0 {
        return errno::null(EINVAL);
    }
    let (address, length) = (attributes.addr, attributes.length);
    if mask & IBV_REG_MR_MASK_BUF != 0 {
        // SAFETY: the mask says that the program has set it, to a buffer of `ibv_alloc_buf`.
        let buffer = unsafe { buffer::lend(attributes.buf) };
        if !buffer.belongs_to(pd) || !buffer.holds(address as usize, length) {
            return errno::null(EINVAL);
        }
    }
    let iova = if mask & IBV_REG_MR_MASK_IOVA != 0 { attributes.iova } else { address as u64 };
    // SAFETY: as there.
    unsafe {
        memory_region::reg_iova2(pd, address, length, iova, attributes.access.cast_unsigned())
    }
}

/// `ibv_reg_buf_mr`
pub(crate) unsafe extern "C" fn of_buffer(
    pd: &ProtectionDomain,
    buffer: *mut ibv_buf,
    address: *mut c_void,
    length: usize,
    access: i32,
) -> *mut ibv_mr {
    let attributes = ibv_mr_init_attr {
        length,
        access,
        comp_mask: IBV_REG_MR_MASK_BUF | IBV_REG_MR_MASK_ADDR,
        iova: 0,
        addr: address,
        fd: -1,
        fd_offset: 0,
        dmah: ptr::null_mut(),
        buf: buffer,
    };
    // SAFETY: as there; the buffer is the program's.
    unsafe { by_attributes(pd, &attributes) }
}
