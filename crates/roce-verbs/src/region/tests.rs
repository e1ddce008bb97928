//! Tests of registered memory.

mod units;

use super::*;

#[test]
fn bytes_written_at_any_offset_and_length_are_read_back_and_no_others_change() {
    let mapping = Mapping::allocate(4096, false).unwrap();
    let pattern: Vec<u8> = (0..1024u32).map(|i| (i * 7 + 1) as u8).collect();
    for offset in [0, 1, 7, 8, 13, 500] {
        for len in [0, 1, 7, 8, 9, 63, 64, 255, 256, 257, 384, 1000, 1024] {
            mapping.write(0, &[0xee; 2048]).unwrap();
            mapping.write(offset, &pattern[..len]).unwrap();
            let mut seen = vec![0; 2048];
            mapping.read(0, &mut seen).unwrap();
            assert_eq!(&seen[offset..offset + len], &pattern[..len]);
            assert!(seen[..offset].iter().chain(&seen[offset + len..]).all(|b| *b == 0xee));
        }
    }
}

#[test]
fn read_summed_returns_the_bytes_of_read_and_their_crc() {
    let mapping = Mapping::allocate(3 * 4096, false).unwrap();
    let pattern: Vec<u8> = (0..3 * 4096u32).map(|i| (i * i + 7 * i + 1) as u8).collect();
    mapping.write(0, &pattern).unwrap();
    let mut served = 0;
    for offset in [0, 1, 16, 63, 64, 4095] {
        for len in [0, 1, 255, 256, 257, 512, 768, 1024, 2048, 4096, 8192] {
            let mut seen = vec![0xee; len + 16];
            let crc = mapping.read_summed(offset, &mut seen[8..8 + len]).unwrap();
            let expected = &pattern[offset..offset + len];
            assert_eq!(&seen[8..8 + len], expected);
            assert!(seen[..8].iter().chain(&seen[8 + len..]).all(|byte| *byte == 0xee));
            assert!(crc.is_none() || crc == PayloadCrc::of(expected), "{len} bytes");
            served += usize::from(crc.is_some());
        }
    }
    // Each path MTU at each offset that is aligned to a word, or none at all.
    assert_eq!(served, if copy_crc::is_supported() { 5 * 3 } else { 0 });
}

#[test]
fn the_sum_is_that_of_the_copied_bytes_although_another_thread_writes_meanwhile() {
    let mapping = Mapping::allocate(3 * 4096, false).unwrap();
    let is_over = core::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0_u32.. {
                mapping.write(0, &[round as u8; 3 * 4096]).unwrap();
                if is_over.load(Ordering::Relaxed) {
                    return;
                }
            }
        });
        let (mut mixed, mut rounds, mut wrong) = (0, 0, None);
        // Until some were changed on the way; on one core that may take a while.
        while wrong.is_none() && (rounds < 2000 || (mixed == 0 && rounds < 2_000_000)) {
            let mtu = PathMtu::ALL[rounds % PathMtu::ALL.len()].bytes();
            let mut seen = vec![0; mtu];
            let crc = mapping.read_summed(rounds % 64, &mut seen).unwrap();
            if crc.is_some() && crc != PayloadCrc::of(&seen) {
                wrong = Some(mtu);
            }
            mixed += usize::from(seen.iter().any(|byte| *byte != seen[0]));
            rounds += 1;
        }
        // Before anything can fail, or the other would go on for ever.
        is_over.store(true, Ordering::Relaxed);
        assert_eq!(wrong, None);
    });
}

#[test]
fn copies_of_any_length_touch_no_byte_beyond_the_end_of_a_page() {
    let page = page_size();
    // What lies behind the end of these two cannot be touched at all.
    let [region, frame] = [(); 2].map(|()| {
        let mapping = Mapping::allocate(3 * page, false).unwrap();
        let end = (mapping.address() as usize + 2 * page) as *mut libc::c_void;
        // SAFETY: the last page of three, which nothing below uses.
        assert_eq!(unsafe { libc::mprotect(end, page, libc::PROT_NONE) }, 0);
        mapping
    });
    for len in (0..600).chain([1023, 1024, 1025, 2048, 4095, 4096]) {
        let offset = 2 * page - len;
        let end = (frame.address() as usize + offset) as *mut u8;
        // SAFETY: the last bytes of two whole pages, to which no other reference exists.
        let bytes = unsafe { core::slice::from_raw_parts_mut(end, len) };
        bytes.iter_mut().enumerate().for_each(|(i, byte)| *byte = (i * 7 + len) as u8);
        let expected = bytes.to_vec();
        region.write(offset, bytes).unwrap();
        bytes.fill(0);
        region.read(offset, bytes).unwrap();
        assert_eq!(bytes, expected, "{len}");
        bytes.fill(0);
        let crc = region.read_summed(offset, bytes).unwrap();
        assert_eq!(bytes, expected, "{len}");
        assert!(crc.is_none() || crc == PayloadCrc::of(&expected));
    }
}

#[test]
fn memory_from_huge_pages_is_zeroed_and_reports_the_kind_of_pages() {
    let mapping = Mapping::allocate(3 << 20, true).unwrap();
    assert_ne!(mapping.pages(), Pages::Ordinary);
    assert_eq!(mapping.len(), 3 << 20);
    if mapping.pages() == Pages::Huge {
        assert_eq!(mapping.address() % HUGE_PAGE as u64, 0);
    }
    let mut seen = vec![1; 3 << 20];
    mapping.read(0, &mut seen).unwrap();
    assert!(seen.iter().all(|byte| *byte == 0));
    assert_eq!(Mapping::allocate(64, false).unwrap().pages(), Pages::Ordinary);
}

#[test]
fn memory_that_is_not_mapped_or_not_writable_is_refused_when_it_is_registered() {
    let hole = Mapping::allocate(page_size(), false).unwrap();
    let address = hole.address() as *mut u8;
    drop(hole);
    // SAFETY: the very promise under test is broken; the value is dropped unused.
    assert!(unsafe { Mapping::borrow(address, 64, false, false) }.is_err());
    let constant = include_bytes!("../region.rs");
    let page = page_size() as u64;
    let inner = (constant.as_ptr() as u64).next_multiple_of(page) as *mut u8;
    // SAFETY: read-only bytes that live as long as the program, only looked at.
    unsafe {
        assert!(Mapping::borrow(inner, 64, false, false).is_ok());
        assert!(Mapping::borrow(inner, 64, true, false).is_err());
    }
}

#[test]
fn an_atomic_on_a_word_that_is_not_aligned_changes_nothing() {
    let mapping = Mapping::allocate(64, false).unwrap();
    assert_eq!(mapping.atomic(4, AtomicChange::Add(1)), Err(MemoryFault::Misaligned));
    assert_eq!(mapping.atomic(8, AtomicChange::Add(5)), Ok(0));
    assert_eq!(mapping.atomic(8, AtomicChange::SwapIf { expected: 5, new: 9 }), Ok(5));
    assert_eq!(mapping.load_u64(8), Some(9));
    assert_eq!(mapping.atomic(12, AtomicChange::Store(1)), Err(MemoryFault::Misaligned));
    assert_eq!(mapping.atomic(8, AtomicChange::Store(u64::MAX - 1)), Ok(9));
    assert_eq!(mapping.load_u64(8), Some(u64::MAX - 1));
    assert_eq!((mapping.load_u64(0), mapping.load_u64(16)), (Some(0), Some(0)));
    let word = mapping.at(8, 8).cast::<u64>();
    // The copies of other processors. SAFETY: in range and aligned.
    let plain = |change| unsafe { plain::atomic(word, change) };
    assert_eq!(plain(AtomicChange::Add(1)), Ok(u64::MAX - 1));
    assert_eq!(plain(AtomicChange::SwapIf { expected: 5, new: 9 }), Ok(u64::MAX));
    assert_eq!(plain(AtomicChange::SwapIf { expected: u64::MAX, new: 9 }), Ok(u64::MAX));
    assert_eq!(plain(AtomicChange::Store(3)), Ok(9));
    assert_eq!(mapping.load_u64(8), Some(3));
}

#[test]
fn a_reader_that_sees_the_last_byte_sees_the_whole_message() {
    let mapping = Mapping::allocate(4096, false).unwrap();
    let rounds = 2000u32;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 1..=rounds {
                mapping.write(3, &[round as u8; 1000]).unwrap();
                while mapping.load_u8(2000) != round as u8 {
                    std::thread::yield_now();
                }
            }
        });
        for round in 1..=rounds {
            while mapping.load_u8(1002) != round as u8 {
                std::thread::yield_now();
            }
            let mut seen = [0; 1000];
            mapping.read(3, &mut seen).unwrap();
            assert_eq!(seen, [round as u8; 1000], "round {round}");
            mapping.store_u8(2000, round as u8);
        }
    });
}

/// How a page goes that a region still names.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
#[derive(Clone, Copy, Debug)]
enum Loss {
    /// It has no rights any more.
    Protected,
    /// Another mapping without rights has its place: as unmapped, but in a process whose other threads
    /// map memory.
    Replaced,
    /// Its file has become shorter.
    Truncated,
    /// It is a huge page of which the machine has none left.
    NoHugePage,
}

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
impl Loss {
    const ALL: [Self; 4] = [Self::Protected, Self::Replaced, Self::Truncated, Self::NoHugePage];

    /// Returns a region of which the pages from the second of these two offsets to the third are lost.
    fn region(self) -> (Mapping, usize, usize) {
        let (page, rights) = (page_size(), libc::PROT_READ | libc::PROT_WRITE);
        let lost = if matches!(self, Self::NoHugePage) { HUGE_PAGE } else { page };
        let start = HUGE_PAGE.max(page);
        let mapping = Mapping::allocate(2 * HUGE_PAGE + lost, false).unwrap();
        let begin = (mapping.address() as usize + start).next_multiple_of(lost);
        let at = begin as *mut libc::c_void;
        let map = |rights, flags, fd| {
            // SAFETY: replaces pages of the mapping, which nothing else uses.
            unsafe { libc::mmap(at, lost, rights, flags | libc::MAP_FIXED, fd, 0) }
        };
        let private = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let done = match self {
            // SAFETY: pages of the mapping, which nothing else uses.
            Self::Protected => unsafe { libc::mprotect(at, lost, libc::PROT_NONE) == 0 },
            Self::Replaced => map(libc::PROT_NONE, private, -1) == at,
            Self::Truncated => {
                let file = file_of(lost);
                let mapped = map(rights, libc::MAP_SHARED, std::os::fd::AsRawFd::as_raw_fd(&file));
                file.set_len(0).unwrap();
                mapped == at
            }
            // None is reserved.
            Self::NoHugePage => {
                let flags = private | libc::MAP_HUGETLB | libc::MAP_NORESERVE;
                map(rights, flags, -1) == at
            }
        };
        assert!(done, "{self:?}: {}", io::Error::last_os_error());
        let offset = begin - mapping.address() as usize;
        (mapping, offset, offset + lost)
    }
}

/// Returns a file of `len` zeros without a name.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
fn file_of(len: usize) -> std::fs::File {
    use std::os::fd::FromRawFd;
    // SAFETY: the name ends with a zero; the descriptor is new.
    let file = unsafe {
        let fd = libc::memfd_create(c"region".as_ptr(), libc::MFD_CLOEXEC);
        assert!(fd >= 0);
        std::fs::File::from_raw_fd(fd)
    };
    file.set_len(len as u64).unwrap();
    file
}

/// Takes all huge pages that the machine has free.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
fn take_free_huge_pages() -> Vec<Mapping> {
    let one = || Mapping::allocate(HUGE_PAGE, true).ok().filter(|it| it.pages() == Pages::Huge);
    std::iter::from_fn(one).collect()
}

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
#[test]
fn an_access_to_a_page_that_is_not_present_fails_and_all_others_go_on() {
    let _taken = take_free_huge_pages();
    for loss in Loss::ALL {
        let (mapping, start, end) = loss.region();
        let absent = Err(MemoryFault::NotPresent);
        for len in (1..300).chain([512, 1023, 1024, 2048, 4096]) {
            let mut seen = vec![0; len];
            // Bytes that are present stand before, and behind, those that are not.
            for offset in [start - len / 2, start, end - len, end - 1] {
                if offset + len <= start {
                    continue;
                }
                let what = format!("{loss:?}: {len} bytes at {offset}");
                assert_eq!(mapping.write(offset, &seen), absent, "{what}");
                assert_eq!(mapping.read(offset, &mut seen), absent, "{what}");
                let summed = mapping.read_summed(offset, &mut seen);
                assert_eq!(summed, Err(MemoryFault::NotPresent), "{what}");
            }
            let bytes = vec![len as u8; len];
            for offset in [start - len, end] {
                mapping.write(offset, &bytes).unwrap();
                mapping.read(offset, &mut seen).unwrap();
                assert_eq!(seen, bytes);
                assert!(mapping.read_summed(offset, &mut seen).is_ok());
            }
        }
        let swap = AtomicChange::SwapIf { expected: 1, new: 2 };
        for change in [AtomicChange::Add(1), AtomicChange::Store(1), swap] {
            assert_eq!(mapping.atomic(start, change), Err(MemoryFault::NotPresent));
            assert!(mapping.atomic(start - 8, change).is_ok());
        }
    }
}

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
#[test]
fn a_page_that_may_only_be_read_is_read_and_cannot_be_written() {
    let mapping = Mapping::allocate(page_size(), false).unwrap();
    mapping.write(0, &[5; 64]).unwrap();
    let page = mapping.address() as *mut libc::c_void;
    // SAFETY: the page of the mapping, which nothing else uses.
    assert_eq!(unsafe { libc::mprotect(page, page_size(), libc::PROT_READ) }, 0);
    let mut seen = [0; 64];
    mapping.read(0, &mut seen).unwrap();
    assert_eq!(seen, [5; 64]);
    assert_eq!(mapping.write(0, &[6; 64]), Err(MemoryFault::NotPresent));
    // Also where the comparison fails, as a card, which locks the word for both.
    let no_match = AtomicChange::SwapIf { expected: 1, new: 2 };
    assert_eq!(mapping.atomic(0, no_match), Err(MemoryFault::NotPresent));
    mapping.read(0, &mut seen).unwrap();
    assert_eq!(seen, [5; 64]);
}

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
#[test]
fn pages_that_the_program_has_given_back_are_zeros_again() {
    let mapping = Mapping::allocate(page_size(), false).unwrap();
    mapping.write(0, &[5; 64]).unwrap();
    let page = mapping.address() as *mut libc::c_void;
    // SAFETY: the page of the mapping, which nothing else uses.
    assert_eq!(unsafe { libc::madvise(page, page_size(), libc::MADV_DONTNEED) }, 0);
    let mut seen = [1; 64];
    mapping.read(0, &mut seen).unwrap();
    assert_eq!(seen, [0; 64]);
}

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
#[test]
fn the_whole_address_space_is_a_region_of_which_some_pages_are_present() {
    // SAFETY: only the bytes of `value` are written, and no reference to them exists meanwhile.
    let all = unsafe { Mapping::borrow(core::ptr::null_mut(), usize::MAX, true, true) }.unwrap();
    let value = core::cell::UnsafeCell::new(*b"before");
    let at = value.get() as usize;
    all.write(at, b"behind").unwrap();
    let mut seen = [0; 6];
    all.read(at, &mut seen).unwrap();
    assert_eq!((&seen, &value.into_inner()), (b"behind", b"behind"));
    // Null, an address that no processor has, the kernel's, and the last byte but one.
    for nowhere in [0, 1 << 47, 1 << 62, usize::MAX << 47, usize::MAX - 8] {
        assert_eq!(all.read(nowhere, &mut seen), Err(MemoryFault::NotPresent), "{nowhere:x}");
        assert_eq!(all.write(nowhere, b"x"), Err(MemoryFault::NotPresent), "{nowhere:x}");
        assert!(all.populate(nowhere, 1, false).is_err(), "{nowhere:x}");
    }
    assert!(!all.holds(usize::MAX, 1));
}

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
#[test]
fn a_fault_of_a_thread_that_blocked_its_signal_before_it_used_an_engine_does_no_harm() {
    std::thread::spawn(|| {
        let mut all = core::mem::MaybeUninit::<libc::sigset_t>::zeroed();
        // SAFETY: the set is the stack's.
        unsafe {
            libc::sigfillset(all.as_mut_ptr());
            libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), core::ptr::null_mut());
        }
        fault_handler::admit_faults();
        let hole = Mapping::allocate(page_size(), false).unwrap();
        let page = hole.address() as *mut libc::c_void;
        // SAFETY: the page of the mapping, which nothing else uses.
        assert_eq!(unsafe { libc::mprotect(page, page_size(), libc::PROT_NONE) }, 0);
        assert_eq!(hole.write(0, b"x"), Err(MemoryFault::NotPresent));
    })
    .join()
    .unwrap();
}
