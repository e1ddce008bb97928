//! The receive ring: frames in memory shared with the kernel (TPACKET_V2).

use std::{
    io,
    mem::{offset_of, size_of},
    os::fd::BorrowedFd,
    ptr::NonNull,
    slice,
    sync::atomic::{AtomicU32, Ordering},
};

use super::{prefetch::prefetch, shared_memory::SharedMemory, socket};
use crate::vnet_hdr;

/// Bytes of a block, which the kernel allocates contiguously.
const BLOCK_LEN: usize = 1 << 20;
/// Bytes of a slot before the frame, at most: the kernel's headers, the virtio header, and padding.
const SLOT_HEADERS_LEN: usize = size_of::<libc::tpacket2_hdr>() + 96;

/// A socket's receive ring.
///
/// Invariants
/// 1. `_memory` is mapped until this value is dropped.
/// 2. `next < slots.len()`; every slot lies whole inside the mapping, aligned to 16 bytes, and has
///    `slot_len` bytes.
/// 3. A slot whose status has the user bit is ours until we give it back: the kernel does not
///    write to it. No other code in this process accesses the mapping.
/// 4. `slot` is that of number `next`. `taken` is one whose status has the user bit.
#[derive(Debug)]
pub(crate) struct Ring {
    _memory: SharedMemory,
    slot_len: usize,
    slots: Box<[NonNull<u8>]>,
    next: usize,
    slot: NonNull<u8>,
    /// The last slot taken, until it is given back.
    taken: Option<NonNull<u8>>,
}

// SAFETY: the mapping belongs to the process, not to a thread, and invariant 3 makes this value
// its only user.
unsafe impl Send for Ring {}

/// A frame in the ring.
#[derive(Debug)]
pub(crate) enum RingFrame<'a> {
    /// A whole frame, its virtio header, and the VLAN tag that the kernel took off.
    Whole { vnet_hdr: &'a [u8; vnet_hdr::HEADER_LEN], bytes: &'a [u8], vlan_tag: Option<[u8; 4]> },
    /// Longer than its slot, or described by lengths that do not fit the slot.
    Unusable,
}

impl Ring {
    /// Creates the ring of a packet socket that is not bound yet and has virtio headers enabled.
    /// `slots` is rounded up to whole blocks. Longer frames than `max_frame_len` may be unusable.
    pub(crate) fn new(fd: BorrowedFd<'_>, slots: usize, max_frame_len: usize) -> io::Result<Self> {
        let (slot_len, per_block) =
            slot_len_for(max_frame_len).ok_or(io::ErrorKind::InvalidInput)?;
        let blocks = slots.div_ceil(per_block).max(1);
        socket::set_int(
            fd,
            libc::SOL_PACKET,
            libc::PACKET_VERSION,
            libc::tpacket_versions::TPACKET_V2 as i32,
        )?;
        let request = libc::tpacket_req {
            tp_block_size: BLOCK_LEN as u32,
            tp_block_nr: blocks as u32,
            tp_frame_size: slot_len as u32,
            tp_frame_nr: (blocks * per_block) as u32,
        };
        socket::set_rx_ring(fd, &request)?;
        let memory = SharedMemory::map(blocks * BLOCK_LEN, 0, Some((fd, 0)))?;
        let base = memory.base();
        let slots = (0..blocks * per_block).map(|index| {
            let offset = index / per_block * BLOCK_LEN + index % per_block * slot_len;
            // SAFETY: the last slot of the last block ends within the mapping.
            unsafe { base.add(offset) }
        });
        let slots = slots.collect();
        Ok(Self { _memory: memory, slot_len, slots, next: 0, slot: base, taken: None })
    }

    /// Returns true if a frame waits, and prefetches its first bytes.
    #[inline]
    pub(crate) fn has_frame(&self) -> bool {
        // Acquire pairs with the kernel's barrier between writing the frame and the status.
        let waits = self.status(self.slot).load(Ordering::Acquire) & libc::TP_STATUS_USER != 0;
        if waits {
            // SAFETY: invariants 2 and 3: it lies inside the slot, which is ours.
            prefetch(unsafe { slice::from_raw_parts(self.slot.as_ptr().add(LINE), 2 * LINE) });
        }
        waits
    }

    /// Lends the next waiting frame; returns `None` if none waits.
    ///
    /// Its slot goes back to the kernel with the next call or with [`give_back`](Self::give_back):
    /// the store misses the cache, as the sender's processor has read the word, and a lock taken
    /// next would wait for it.
    #[inline]
    pub(crate) fn take(&mut self) -> Option<RingFrame<'_>> {
        if !self.has_frame() {
            return None;
        }
        self.give_back();
        let slot = self.slot;
        self.taken = Some(slot);
        self.next = if self.next + 1 == self.slots.len() { 0 } else { self.next + 1 };
        self.slot = self.slots[self.next];
        // Its status is read soon, and is on a page of its own.
        // SAFETY: invariant 2: the line lies inside the slot. Prefetching reads nothing.
        prefetch(unsafe { slice::from_raw_parts(self.slot.as_ptr(), 1) });
        // SAFETY: invariants 1 to 3: the slot is ours until given back, which takes `&mut self`,
        // so that no reference to the frame is left.
        Some(unsafe { frame_in(slot, self.slot_len) })
    }

    /// Gives the slot of the last frame back to the kernel. Call it before waiting for the socket,
    /// which is readable until then.
    #[inline]
    pub(crate) fn give_back(&mut self) {
        if let Some(slot) = self.taken.take() {
            // Release: orders our reads of the frame before the kernel's next write to the slot.
            self.status(slot).store(libc::TP_STATUS_KERNEL, Ordering::Release);
        }
    }

    fn status(&self, slot: NonNull<u8>) -> &AtomicU32 {
        // SAFETY: invariants 1, 2 and 4: the status is the first word of a slot, aligned to 16.
        unsafe { slot.cast::<AtomicU32>().as_ref() }
    }
}

/// Bytes of a cache line. The kernel's headers fill the first of a slot, a short frame the next
/// two.
const LINE: usize = 64;

/// Returns the bytes of a slot for frames of this length, and the number of slots of a block; `None`
/// if a block is too short.
fn slot_len_for(max_frame_len: usize) -> Option<(usize, usize)> {
    let needed = max_frame_len.checked_add(SLOT_HEADERS_LEN)?;
    let per_block = BLOCK_LEN / needed.checked_next_multiple_of(libc::TPACKET_ALIGNMENT)?;
    let slot_len = BLOCK_LEN.checked_div(per_block)? / libc::TPACKET_ALIGNMENT;
    Some((slot_len * libc::TPACKET_ALIGNMENT, per_block))
}

/// # Safety
/// `slot` points to `slot_len` readable bytes, a header at least, aligned to 16, without writes
/// during 'a.
unsafe fn frame_in<'a>(slot: NonNull<u8>, slot_len: usize) -> RingFrame<'a> {
    // SAFETY: the caller's promise; bytes of any value make integers.
    let (slot, header) = unsafe {
        (slice::from_raw_parts(slot.as_ptr(), slot_len), slot.cast::<libc::tpacket2_hdr>().as_ref())
    };
    // The kernel's lengths are checked, too.
    let (start, len) = (usize::from(header.tp_mac), header.tp_snaplen as usize);
    let vnet_hdr = start.checked_sub(vnet_hdr::HEADER_LEN).and_then(|at| slot.get(at..start));
    let bytes = start.checked_add(len).and_then(|end| slot.get(start..end));
    match (vnet_hdr.and_then(|bytes| bytes.try_into().ok()), bytes) {
        (Some(vnet_hdr), Some(bytes)) if header.tp_len == header.tp_snaplen => {
            RingFrame::Whole { vnet_hdr, bytes, vlan_tag: vlan_tag(header) }
        }
        _ => RingFrame::Unusable,
    }
}

/// Returns the VLAN tag that the kernel took off, as it stood in the frame.
fn vlan_tag(header: &libc::tpacket2_hdr) -> Option<[u8; 4]> {
    if header.tp_status & libc::TP_STATUS_VLAN_VALID == 0 {
        return None;
    }
    let ether_type = match header.tp_status & libc::TP_STATUS_VLAN_TPID_VALID {
        0 => VLAN_ETHER_TYPE,
        _ => header.tp_vlan_tpid,
    };
    let ([a, b], [c, d]) = (ether_type.to_be_bytes(), header.tp_vlan_tci.to_be_bytes());
    Some([a, b, c, d])
}

/// EtherType of a tag of IEEE 802.1Q.
const VLAN_ETHER_TYPE: u16 = 0x8100;

// The status is read as the first word of a slot.
const _: () = assert!(offset_of!(libc::tpacket2_hdr, tp_status) == 0);

#[cfg(test)]
mod tests {
    use super::*;

    const SLOT_LEN: usize = 69904;

    #[test]
    fn a_block_is_divided_into_as_many_slots_as_hold_the_longest_frame() {
        assert_eq!(slot_len_for(crate::vnet_hdr::MAX_RECEIVED_LEN), Some((SLOT_LEN, 15)));
        for len in [1, 1514, 4214, 9018, BLOCK_LEN - SLOT_HEADERS_LEN] {
            let (slot_len, per_block) = slot_len_for(len).unwrap();
            assert!(slot_len >= SLOT_HEADERS_LEN + len && slot_len % 16 == 0, "{len}");
            assert!((1..=BLOCK_LEN).contains(&(slot_len * per_block)), "{len}");
        }
        assert_eq!(slot_len_for(BLOCK_LEN), None);
        assert_eq!(slot_len_for(usize::MAX), None);
    }

    /// A slot as the kernel would write it.
    #[repr(C, align(16))]
    struct Slot([u8; SLOT_LEN]);

    impl Slot {
        fn new(header: libc::tpacket2_hdr) -> Box<Self> {
            let mut slot = Box::new(Self([0x5a; SLOT_LEN]));
            // SAFETY: the slot is aligned to 16 and longer than a header.
            unsafe { slot.0.as_mut_ptr().cast::<libc::tpacket2_hdr>().write(header) };
            slot
        }

        fn frame(&self) -> RingFrame<'_> {
            // SAFETY: the slot has its length and alignment and is borrowed for as long.
            unsafe { frame_in(NonNull::from(&self.0).cast(), SLOT_LEN) }
        }
    }

    fn header(mac: u16, len: u32, snaplen: u32) -> libc::tpacket2_hdr {
        // SAFETY: plain data, for which all zeros is a value.
        let mut header: libc::tpacket2_hdr = unsafe { std::mem::zeroed() };
        (header.tp_mac, header.tp_len, header.tp_snaplen) = (mac, len, snaplen);
        header
    }

    #[test]
    fn a_frame_is_found_where_the_kernel_says() {
        let slot = Slot::new(header(80, 1000, 1000));
        let RingFrame::Whole { bytes, .. } = slot.frame() else { panic!("unusable") };
        assert_eq!(bytes, &slot.0[80..1080]);
    }

    #[test]
    fn a_tag_that_the_kernel_took_off_is_returned_if_there_was_one() {
        let (valid, with_type) = (libc::TP_STATUS_VLAN_VALID, libc::TP_STATUS_VLAN_TPID_VALID);
        let cases = [
            (0, None),
            (valid, Some([0x81, 0x00, 0x60, 0x05])),
            (valid | with_type, Some([0x88, 0xa8, 0x60, 0x05])),
        ];
        for (status, expected) in cases {
            let mut header = header(80, 1000, 1000);
            header.tp_status = libc::TP_STATUS_USER | status;
            (header.tp_vlan_tci, header.tp_vlan_tpid) = (0x6005, 0x88a8);
            let slot = Slot::new(header);
            let RingFrame::Whole { vlan_tag, .. } = slot.frame() else { panic!("unusable") };
            assert_eq!(vlan_tag, expected, "{status:#x}");
        }
    }

    #[test]
    fn a_truncated_frame_is_unusable() {
        assert!(matches!(Slot::new(header(80, 1001, 1000)).frame(), RingFrame::Unusable));
    }

    #[test]
    fn a_frame_never_reaches_beyond_its_slot() {
        for (mac, len) in [(80, SLOT_LEN as u32), (u16::MAX, u32::MAX), (9, 60), (80, u32::MAX)] {
            let frame = Slot::new(header(mac, len, len));
            assert!(matches!(frame.frame(), RingFrame::Unusable), "{mac} {len}");
        }
    }
}
