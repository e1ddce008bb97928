//! The guarded functions of arm64.

core::arch::global_asm!(include_str!("aarch64.s"), options(raw));

// Of each function: see its comment in the assembly. What it returns is 0, or 1 after a fault.
unsafe extern "C" {
    pub(crate) safe static roce_verbs_guarded_start: u8;
    pub(crate) safe static roce_verbs_guarded_end: u8;
    pub(crate) fn roce_verbs_guarded_failed() -> u32;
    #[link_name = "roce_verbs_guarded_read"]
    pub(crate) fn read(to: *mut u8, from: *const u8, len: usize) -> u32;
    #[link_name = "roce_verbs_guarded_write"]
    pub(crate) fn write(to: *mut u8, from: *const u8, len: usize) -> u32;
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

/// Returns the address of the instruction at which a thread stands.
pub(crate) fn program_counter(context: &libc::ucontext_t) -> usize {
    context.uc_mcontext.pc as usize
}

/// Makes a thread go on at an address when its handler returns.
pub(crate) fn set_program_counter(context: &mut libc::ucontext_t, address: usize) {
    context.uc_mcontext.pc = address as u64;
}
