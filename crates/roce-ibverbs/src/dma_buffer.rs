//! Memory behind a descriptor: DMA buffers, which this library maps to copy from and to them.
//!
//! No access is bracketed by `DMA_BUF_IOCTL_SYNC`: that is a call of the kernel for each packet, and does nothing where
//! the buffer is memory that the processor's caches keep coherent, as that of udmabuf and of the system heap is.

use std::ffi::{c_int, c_uint, c_void};
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::Arc;

use libc::{EBADF, EINVAL, EOPNOTSUPP};
use roce_abi::{
    IBV_ACCESS_LOCAL_WRITE, IBV_ACCESS_OPTIONAL_RANGE, IBV_ACCESS_REMOTE_ATOMIC,
    IBV_ACCESS_REMOTE_READ, IBV_ACCESS_REMOTE_WRITE, ibv_mr,
};
use roce_verbs::environment;

use crate::cancellation::Uncancellable;
use crate::errno;
use crate::memory_region::{self, Owned};
use crate::protection_domain::ProtectionDomain;

/// Magic number of the file system of DMA buffers, "DMAB".
const DMA_BUF_MAGIC: u64 = 0x444d_4142;

/// Rights that a region on a DMA buffer may have, as the kernel has it.
const KNOWN_FLAGS: c_uint = IBV_ACCESS_LOCAL_WRITE
    | IBV_ACCESS_REMOTE_WRITE
    | IBV_ACCESS_REMOTE_READ
    | IBV_ACCESS_REMOTE_ATOMIC
    | IBV_ACCESS_OPTIONAL_RANGE;

/// A file in memory, until its `Drop`. A child after `fork` has a mapping of its own, as of all memory that
/// the program maps and shares.
struct Mapping {
    first: *mut c_void,
    len: usize,
}

// SAFETY: an address and a length; what is there is touched by the copies of regions alone.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped with this length, and the region on it is gone.
        unsafe { libc::munmap(self.first, self.len) };
    }
}

/// What a descriptor says of its file.
struct File {
    len: u64,
    /// A mapping ends on a multiple of it.
    page: u64,
    is_dma_buffer: bool,
    /// A memfd, or a file of a file system in memory, which are of the same kind.
    is_memory: bool,
}

impl File {
    /// # Errors
    /// `EBADF` where the descriptor is none, `EINVAL` where its file system says nothing of itself.
    fn of(descriptor: c_int) -> Result<Self, c_int> {
        let (mut file, mut system) = (MaybeUninit::uninit(), MaybeUninit::uninit());
        // SAFETY: both calls fill the whole structure, or fail; the third has no memory.
        let (file, system, seals): (libc::stat, libc::statfs, c_int) = unsafe {
            if libc::fstat(descriptor, file.as_mut_ptr()) != 0 {
                return Err(EBADF);
            }
            if libc::fstatfs(descriptor, system.as_mut_ptr()) != 0 {
                return Err(EINVAL);
            }
            let seals = libc::fcntl(descriptor, libc::F_GET_SEALS);
            (file.assume_init(), system.assume_init(), seals)
        };
        let own_page = match u64::try_from(system.f_type) {
            // Its blocks are its pages, and a mapping has whole ones.
            Ok(kind) if kind == libc::HUGETLBFS_MAGIC as u64 => u64::try_from(system.f_bsize).ok(),
            _ => None,
        };
        // SAFETY: has no memory.
        let page = u64::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096);
        Ok(Self {
            len: u64::try_from(file.st_size).unwrap_or(0),
            page: own_page.filter(|it| it.is_power_of_two()).unwrap_or(page),
            is_dma_buffer: u64::try_from(system.f_type) == Ok(DMA_BUF_MAGIC),
            is_memory: seals >= 0,
        })
    }
}

/// Maps a file up to its byte `end`, to write it too if `writes` says so. A mapping begins with the first byte, wherever
/// the region does: the drivers of some graphics cards have that byte there whatever offset `mmap` is given.
///
/// # Errors
/// An `errno` value.
fn map(descriptor: c_int, file: &File, end: u64, writes: bool) -> Result<Mapping, c_int> {
    let len = end.checked_next_multiple_of(file.page).and_then(|len| usize::try_from(len).ok());
    let len = len.ok_or(EINVAL)?;
    let rights = if writes { libc::PROT_READ | libc::PROT_WRITE } else { libc::PROT_READ };
    // SAFETY: a fresh mapping touches nothing that exists.
    let first =
        unsafe { libc::mmap(ptr::null_mut(), len, rights, libc::MAP_SHARED, descriptor, 0) };
    if first == libc::MAP_FAILED {
        return Err(std::io::Error::last_os_error().raw_os_error().unwrap_or(EINVAL));
    }
    Ok(Mapping { first, len })
}

/// Registers memory behind a descriptor, which the program may close afterwards.
///
/// # Errors
/// `EOPNOTSUPP` for the descriptor -1: programs such as NCCL learn by it whether memory of any graphics card could be
/// registered, which it could not, since the processor cannot map it. `EINVAL` for a file that is no DMA buffer, for one
/// that is too short, and for an address whose offset in its page is another. What mapping it fails with.
fn register(
    pd: &ProtectionDomain,
    (offset, length): (u64, usize),
    iova: u64,
    descriptor: c_int,
    access: c_uint,
) -> Result<*mut ibv_mr, c_int> {
    if descriptor == -1 {
        return Err(EOPNOTSUPP);
    }
    let file = File::of(descriptor)?;
    let may_be_memory = environment::registers_memfd().unwrap_or(false);
    let is_buffer = file.is_dma_buffer || (file.is_memory && may_be_memory);
    let end = offset.checked_add(length as u64).filter(|end| *end <= file.len).ok_or(EINVAL)?;
    let offset_differs = !(offset ^ iova).is_multiple_of(memory_region::PAGE_LEN);
    if !is_buffer
        || length == 0
        || offset_differs
        || access & !KNOWN_FLAGS != 0
        || iova.checked_add(length as u64).is_none()
    {
        return Err(EINVAL);
    }
    let writes = access & IBV_ACCESS_LOCAL_WRITE != 0;
    let mapping = map(descriptor, &file, end, writes)?;
    let first = mapping.first.cast::<u8>().wrapping_add(offset as usize); // less than its length
    let memory = Owned {
        first,
        length,
        iova,
        // As rdma-core has it.
        shown: ptr::without_provenance_mut(offset as usize),
        // The mappings of most DMA buffers have no pages that `madvise` could make present (VM_PFNMAP).
        on_demand: true,
        owner: Arc::new(mapping),
    };
    // SAFETY: the region keeps the mapping, whose address this library alone knows.
    unsafe { memory_region::register_owned(pd, memory, access) }
}

/// `ibv_reg_dmabuf_mr`
pub(crate) extern "C" fn register_dma_buffer(
    pd: &ProtectionDomain,
    offset: u64,
    length: usize,
    iova: u64,
    descriptor: c_int,
    access: c_int,
) -> *mut ibv_mr {
    let _uncancellable = Uncancellable::begin();
    register(pd, (offset, length), iova, descriptor, access.cast_unsigned())
        .unwrap_or_else(errno::null)
}
