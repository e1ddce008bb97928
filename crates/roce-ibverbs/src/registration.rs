//! Registration of memory by attributes, which may name a buffer of the library or a DMA buffer.

use std::ffi::c_void;
use std::ptr;

use libc::{EINVAL, EOPNOTSUPP};
use roce_abi::{
    IBV_REG_MR_MASK_ADDR, IBV_REG_MR_MASK_BUF, IBV_REG_MR_MASK_FD, IBV_REG_MR_MASK_FD_OFFSET,
    IBV_REG_MR_MASK_IOVA, ibv_buf, ibv_mr, ibv_mr_init_attr,
};

use crate::cancellation::Uncancellable;
use crate::protection_domain::ProtectionDomain;
use crate::{buffer, dma_buffer, errno, memory_region};

/// `ibv_reg_mr_ex`: memory by its address, a part of a buffer, or of a DMA buffer by its descriptor.
pub(crate) unsafe extern "C" fn by_attributes(
    pd: &ProtectionDomain,
    attributes: &ibv_mr_init_attr,
) -> *mut ibv_mr {
    let _uncancellable = Uncancellable::begin();
    let mask = attributes.comp_mask;
    // A DMA buffer, with all that `ibv_reg_dmabuf_mr` has, and nothing else.
    const BUFFER: u64 = IBV_REG_MR_MASK_FD | IBV_REG_MR_MASK_FD_OFFSET | IBV_REG_MR_MASK_IOVA;
    if mask == BUFFER {
        let &ibv_mr_init_attr { length, access, iova, fd, fd_offset, .. } = attributes;
        return dma_buffer::register_dma_buffer(pd, fd_offset, length, iova, fd, access);
    }
    if mask & (IBV_REG_MR_MASK_FD | IBV_REG_MR_MASK_FD_OFFSET) != 0 {
        return errno::null(EINVAL);
    }
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
