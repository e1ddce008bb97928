//! A receive ring (TPACKET_V2) with slots of 64 KiB.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::{self, NonNull};
use std::slice;
use std::sync::atomic::{AtomicU32, Ordering};

use super::{VIRTIO_LEN, socket};

/// Bytes of a slot: a frame, its virtio header and the kernel's own headers.
const SLOT_LEN: usize = 1 << 16;
/// Slots in a block, which the kernel allocates in one piece.
const SLOTS_PER_BLOCK: usize = 16;
const BLOCK_LEN: usize = SLOT_LEN * SLOTS_PER_BLOCK;

/// A socket's receive ring.
///
/// Invariants
/// 1. `base` is the start of a readable and writable mapping of `slots * SLOT_LEN` bytes that
///    lives until this value is dropped.
/// 2. `next < slots`.
/// 3. The kernel does not write to a slot whose status has the user bit.
#[derive(Debug)]
pub(crate) struct Ring {
    base: NonNull<u8>,
    slots: usize,
    next: usize,
}

// SAFETY: the mapping belongs to the process, and this value is its only user.
unsafe impl Send for Ring {}

/// A frame in the ring.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Frame<'a> {
    /// UDP payload bytes of each packet of a train but the last; `None`: a single packet.
    pub(crate) segment_len: Option<usize>,
    /// From the Ethernet header on.
    pub(crate) bytes: &'a [u8],
}

impl Ring {
    /// Makes the ring of a packet socket that has its virtio header switched on and is not bound.
    /// `slots` is rounded up to whole blocks.
    pub(crate) fn new(fd: BorrowedFd<'_>, slots: usize) -> io::Result<Self> {
        let blocks = slots.div_ceil(SLOTS_PER_BLOCK).max(1);
        let slots = blocks * SLOTS_PER_BLOCK;
        let version = libc::tpacket_versions::TPACKET_V2 as i32;
        socket::set(fd, libc::SOL_PACKET, libc::PACKET_VERSION, &version)?;
        let request = libc::tpacket_req {
            tp_block_size: BLOCK_LEN as u32,
            tp_block_nr: blocks as u32,
            tp_frame_size: SLOT_LEN as u32,
            tp_frame_nr: slots as u32,
        };
        socket::set(fd, libc::SOL_PACKET, libc::PACKET_RX_RING, &request)?;
        // SAFETY: a new mapping at an address of the kernel's choice disturbs nothing.
        let base = unsafe {
            libc::mmap(
                ptr::null_mut(),
                slots * SLOT_LEN,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                fd.as_raw_fd(),
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::InvalidData)?;
        Ok(Self { base, slots, next: 0 })
    }

    /// Lends the next waiting frame to `on_frame`, then gives its slot back. False: none waits.
    #[inline]
    pub(crate) fn take(&mut self, on_frame: impl FnOnce(Frame<'_>)) -> bool {
        // SAFETY: invariants 1 and 2: the slot lies inside the mapping.
        let slot = unsafe { self.base.add(self.next * SLOT_LEN) };
        // SAFETY: the status is the first word of a slot, and slots are aligned to 64 KiB.
        let status = unsafe { slot.cast::<AtomicU32>().as_ref() };
        // Acquire pairs with the kernel's barrier between writing the frame and the status.
        if status.load(Ordering::Acquire) & libc::TP_STATUS_USER == 0 {
            return false;
        }
        self.next += 1;
        if self.next == self.slots {
            self.next = 0;
        }
        let _back = GiveBack(status);
        // SAFETY: invariant 3: the slot is ours until `_back` is dropped, after the frame's last
        // use.
        let (slot, header) = unsafe {
            (
                slice::from_raw_parts(slot.as_ptr(), SLOT_LEN),
                slot.cast::<libc::tpacket2_hdr>().as_ref(),
            )
        };
        let (start, len) = (usize::from(header.tp_mac), header.tp_snaplen as usize);
        let virtio = start.checked_sub(VIRTIO_LEN).and_then(|at| slot.get(at..start));
        let bytes = slot.get(start..start + len);
        if let (Some(&[_, kind, _, _, low, high, ..]), Some(bytes)) = (virtio, bytes)
            && header.tp_len == header.tp_snaplen
        {
            let size = usize::from(u16::from_ne_bytes([low, high]));
            on_frame(Frame { segment_len: (kind != 0 && size > 0).then_some(size), bytes });
        }
        true
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: invariant 1: this is the whole mapping, and nothing borrows from it.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.slots * SLOT_LEN) };
    }
}

struct GiveBack<'a>(&'a AtomicU32);

impl Drop for GiveBack<'_> {
    fn drop(&mut self) {
        // Release: our reads of the frame come before the kernel's next write to the slot.
        self.0.store(libc::TP_STATUS_KERNEL, Ordering::Release);
    }
}
