//! The guarded functions of x86-64, and the copies that its processors have.

core::arch::global_asm!(include_str!("x86_64.s"), options(raw));

// Of each function: see its comment in the assembly. What it returns is 0, or 1 after a fault.
unsafe extern "sysv64" {
    pub(crate) safe static roce_verbs_guarded_start: u8;
    pub(crate) safe static roce_verbs_guarded_end: u8;
    pub(crate) fn roce_verbs_guarded_failed() -> u32;
    pub(crate) fn roce_verbs_guarded_read(to: *mut u8, from: *const u8, len: usize) -> u32;
    pub(crate) fn roce_verbs_guarded_read_vectors(to: *mut u8, from: *const u8, len: usize) -> u32;
    pub(crate) fn roce_verbs_guarded_write(to: *mut u8, from: *const u8, len: usize) -> u32;
    pub(crate) fn roce_verbs_guarded_write_vectors(to: *mut u8, from: *const u8, len: usize)
    -> u32;
    pub(crate) fn roce_verbs_guarded_read_folded(to: *mut u8, from: *const u8, len: usize) -> u32;
    pub(crate) fn roce_verbs_guarded_fetch_add(word: *mut u64, add: u64, original: *mut u64)
    -> u32;
    pub(crate) fn roce_verbs_guarded_swap(word: *mut u64, new: u64, original: *mut u64) -> u32;
    pub(crate) fn roce_verbs_guarded_compare_exchange(
        word: *mut u64,
        expected: u64,
        new: u64,
        original: *mut u64,
    ) -> u32;
}

/// Bytes from which vectors are faster than words.
const LONG_MOVE: usize = 256;

/// Loads from a region, as [`roce_verbs_guarded_read`] does, in the fastest way for the length.
///
/// # Safety
/// As for [`copy::read`](super::super::copy::read).
#[inline]
pub(crate) unsafe fn read(to: *mut u8, from: *const u8, len: usize) -> u32 {
    // SAFETY: the caller's promise, and the processor has what the function needs.
    unsafe {
        if len >= LONG_MOVE && std::arch::is_x86_feature_detected!("avx") {
            roce_verbs_guarded_read_vectors(to, from, len)
        } else {
            roce_verbs_guarded_read(to, from, len)
        }
    }
}

/// Stores into a region, as [`roce_verbs_guarded_write`] does, in the fastest way for the length.
///
/// # Safety
/// As for [`copy::write`](super::super::copy::write).
#[inline]
pub(crate) unsafe fn write(to: *mut u8, from: *const u8, len: usize) -> u32 {
    // SAFETY: as in `read`.
    unsafe {
        if len >= LONG_MOVE && std::arch::is_x86_feature_detected!("avx") {
            roce_verbs_guarded_write_vectors(to, from, len)
        } else {
            roce_verbs_guarded_write(to, from, len)
        }
    }
}

/// Returns the address of the instruction at which a thread stands.
pub(crate) fn program_counter(context: &libc::ucontext_t) -> usize {
    context.uc_mcontext.gregs[libc::REG_RIP as usize] as usize
}

/// Makes a thread go on at an address when its handler returns.
pub(crate) fn set_program_counter(context: &mut libc::ucontext_t, address: usize) {
    context.uc_mcontext.gregs[libc::REG_RIP as usize] = address as i64;
}
