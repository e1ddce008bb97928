//! The handler of SIGSEGV and SIGBUS, which lets a guarded access to registered memory fail.
//!
//! It looks at the program counter alone. Inside the functions of [`guarded`](super::guarded) it resumes
//! the thread where they return a failure. Every other fault, and every signal that a process sends, is
//! the program's: it gets what it would have got without this handler, from its own handler or from the
//! default.
//!
//! # Which handler the kernel calls
//!
//! [`install`] puts this handler in the place of the program's and keeps the program's action. What
//! of it the kernel decides is kept in the kernel: its mask and the flags `SA_ONSTACK`,
//! `SA_NODEFER` and `SA_RESTART` stand on this handler too. `SA_SIGINFO`, `SA_RESETHAND` and the
//! default and ignored actions are carried out here.
//!
//! A program that installs a handler later replaces this one, unless `libroce_preload.so` is loaded: its
//! `sigaction` hands the program's action to [`sigaction`], which keeps it as the program's, and leaves
//! this handler in front. Without it, a fault in a copy reaches the program's handler, unless that calls
//! the one before it, as well-behaved ones do.
//!
//! # Children
//!
//! A child has actions of its own in the kernel. After `fork` it has a copy of what this module remembers,
//! too. After `vfork` it has its parent's memory, which stays as it is: the child's calls change the
//! kernel's action alone, and the answer says what the program would have got without this handler.
//!
//! # What the kernel does not deliver
//!
//! A fault in a thread that blocks its signal ends the process, whatever handler there is. So the threads
//! of this crate block neither signal, and [`admit_faults`] unblocks both in a thread of the program when
//! that first uses an engine.

use core::ffi::c_int;

/// Installs the handler unless it is. It stays until the process ends.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
pub(crate) fn install() {}
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
pub(crate) use handler::install;

/// The signals of the handler.
const SIGNALS: [c_int; 2] = [libc::SIGSEGV, libc::SIGBUS];

/// Unblocks the handler's signals in the calling thread, once: blocked, a fault would end the process.
/// Costs a load of a thread's variable, and a call of the kernel the first time.
#[inline]
pub(crate) fn admit_faults() {
    std::thread_local! {
        static ARE_ADMITTED: core::cell::Cell<bool> = const { core::cell::Cell::new(false) };
    }
    if !ARE_ADMITTED.get() {
        ARE_ADMITTED.set(true);
        unblock();
    }
}

#[cold]
fn unblock() {
    // SAFETY: the set is initialised by the call, and lives during the others.
    unsafe {
        let mut set: libc::sigset_t = core::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        for signal in SIGNALS {
            libc::sigaddset(&raw mut set, signal);
        }
        libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const set, core::ptr::null_mut());
    }
}

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod handler {
    use core::ffi::{c_int, c_void};
    use core::mem::{MaybeUninit, transmute};
    use core::ptr;
    use core::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
    use std::process;

    use super::super::guarded;
    use super::super::program_action::{Action, ProgramAction, Writing};
    use super::SIGNALS;

    /// `sigaction` of the C library.
    type SigactionFn =
        unsafe extern "C" fn(c_int, *const libc::sigaction, *mut libc::sigaction) -> c_int;

    /// `roce_preload_hook_sigaction` of `libroce_preload.so`: from now on a program's calls of
    /// `sigaction` for the handler's signals go to the given function. Returns the one that they
    /// would have gone to.
    type HookFn = unsafe extern "C" fn(SigactionFn) -> Option<SigactionFn>;

    /// What the program has asked for, for each of [`SIGNALS`].
    static PROGRAM: [ProgramAction; 2] = [ProgramAction::new(), ProgramAction::new()];

    /// The [`SigactionFn`] that changes the kernel's action, as a number; 0 for the C library's.
    static REAL: AtomicUsize = AtomicUsize::new(0);

    /// The process whose actions [`PROGRAM`] has; 0 for none.
    static OWNER: AtomicU32 = AtomicU32::new(0);

    /// Flags of the program's action that the kernel carries out.
    const KERNEL_FLAGS: c_int = libc::SA_ONSTACK | libc::SA_NODEFER | libc::SA_RESTART;

    /// Installs the handler unless it is. It stays until the process ends.
    pub(crate) fn install() {
        static IS_INSTALLED: AtomicBool = AtomicBool::new(false);
        if IS_INSTALLED.load(Ordering::Acquire) {
            return;
        }
        let writing = Writing::begin();
        if IS_INSTALLED.load(Ordering::Acquire) {
            return;
        }
        own_actions();
        // SAFETY: the handler only asks for a number and stores it. A refusal (no memory) leaves children
        // to the kernel's actions alone.
        unsafe { libc::pthread_atfork(None, None, Some(own_actions)) };
        // Calls of other threads wait for `writing` from here on.
        // SAFETY: the name ends with a zero; a function of this name has this type.
        unsafe {
            let name = c"roce_preload_hook_sigaction";
            let hook = libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr());
            if let Some(hook) = transmute::<*mut c_void, Option<HookFn>>(hook)
                && let Some(real) = hook(sigaction)
            {
                REAL.store(real as usize, Ordering::Release);
            }
        }
        for (signal, program) in SIGNALS.into_iter().zip(&PROGRAM) {
            let mut action = MaybeUninit::<libc::sigaction>::zeroed();
            // SAFETY: a query writes the structure; zeros are a valid one too.
            let found = unsafe {
                real()(signal, ptr::null(), action.as_mut_ptr());
                Action::of(&action.assume_init())
            };
            program.store(&writing, found);
            stand_in_front(signal, found);
        }
        IS_INSTALLED.store(true, Ordering::Release);
    }

    /// Makes the calling process the owner of [`PROGRAM`].
    extern "C" fn own_actions() {
        OWNER.store(process::id(), Ordering::Relaxed);
    }

    /// Returns true in the process whose actions [`PROGRAM`] has, and false in a child after `vfork`.
    fn owns_actions() -> bool {
        OWNER.load(Ordering::Relaxed) == process::id()
    }

    fn real() -> SigactionFn {
        match REAL.load(Ordering::Acquire) {
            0 => libc::sigaction,
            // SAFETY: stored by `install` from a function of this type.
            address => unsafe { transmute::<usize, SigactionFn>(address) },
        }
    }

    /// Makes the kernel call this handler, with mask and flags of the program's action.
    fn stand_in_front(signal: c_int, program: Action) -> c_int {
        let mut flags = program.flags & KERNEL_FLAGS;
        if program.handler == libc::SIG_IGN {
            // An ignored signal interrupts no call.
            flags |= libc::SA_RESTART;
        }
        let handler = handler_address();
        let own = Action { handler, flags: flags | libc::SA_SIGINFO, ..program };
        let own = own.to_c();
        // SAFETY: the handler calls nothing that a handler must not call.
        unsafe { real()(signal, &raw const own, ptr::null_mut()) }
    }

    /// Returns the handler as the kernel has it.
    fn handler_address() -> usize {
        let handler: extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void) = on_fault;
        handler as usize
    }

    /// `sigaction` as the program sees it, for the handler's signals.
    ///
    /// # Safety
    /// As for `sigaction`.
    unsafe extern "C" fn sigaction(
        signal: c_int,
        new: *const libc::sigaction,
        old: *mut libc::sigaction,
    ) -> c_int {
        let Some(place) = SIGNALS.iter().position(|it| *it == signal) else {
            // SAFETY: the caller's promise.
            return unsafe { real()(signal, new, old) };
        };
        if !owns_actions() {
            // SAFETY: the caller's promise.
            return unsafe { sigaction_of_child(signal, new, old, &PROGRAM[place]) };
        }
        // SAFETY: null, or the program's structures, which may be the same.
        let (new, old) = unsafe { (new.as_ref().map(Action::of), old.as_mut()) };
        let writing = Writing::begin();
        let before = PROGRAM[place].load();
        if let Some(new) = new {
            PROGRAM[place].store(&writing, new);
            let failed = stand_in_front(signal, new);
            if failed != 0 {
                PROGRAM[place].store(&writing, before);
                return failed;
            }
        }
        drop(writing);
        if let Some(old) = old {
            *old = before.to_c();
        }
        0
    }

    /// `sigaction` of a child that has the memory of its parent, whose action `program` is.
    ///
    /// # Safety
    /// As for `sigaction`.
    unsafe fn sigaction_of_child(
        signal: c_int,
        new: *const libc::sigaction,
        old: *mut libc::sigaction,
        program: &ProgramAction,
    ) -> c_int {
        let mut before = MaybeUninit::<libc::sigaction>::zeroed();
        // SAFETY: the caller's promise; the call writes the last argument.
        let result = unsafe { real()(signal, new, before.as_mut_ptr()) };
        // SAFETY: zeros are a valid action; null, or the program's structure.
        let (before, old) = unsafe { (before.assume_init(), old.as_mut()) };
        if let Some(old) = old.filter(|_| result == 0) {
            let is_ours = before.sa_sigaction == handler_address();
            *old = if is_ours { program.load().to_c() } else { before };
        }
        result
    }

    /// Returns true if the kernel sent the signal because of the instruction at which the thread stands.
    fn is_synchronous(info: &libc::siginfo_t) -> bool {
        /// A page in the memory of the process has an error that the processor found by itself.
        const BUS_MCEERR_AO: c_int = 5;
        info.si_code > 0 && !(info.si_signo == libc::SIGBUS && info.si_code == BUS_MCEERR_AO)
    }

    extern "C" fn on_fault(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
        // SAFETY: the kernel passes both to a handler with SA_SIGINFO, and reads the context when the
        // handler returns.
        let (thread, is_synchronous) =
            unsafe { (&mut *context.cast::<libc::ucontext_t>(), is_synchronous(&*info)) };
        let start = (&raw const guarded::roce_verbs_guarded_start).addr();
        let end = (&raw const guarded::roce_verbs_guarded_end).addr();
        if is_synchronous && (start..end).contains(&guarded::program_counter(thread)) {
            let failed = guarded::roce_verbs_guarded_failed as *const ();
            guarded::set_program_counter(thread, failed as usize);
            return;
        }
        let Some(place) = SIGNALS.iter().position(|it| *it == signal) else { return };
        let program = PROGRAM[place].load();
        match program.handler {
            // The kernel ends a process that ignores a fault of its own.
            libc::SIG_IGN if !is_synchronous => {}
            libc::SIG_IGN | libc::SIG_DFL => end_by_default(signal, info, is_synchronous),
            handler => {
                if program.flags & libc::SA_RESETHAND != 0 {
                    let default = Action { handler: libc::SIG_DFL, ..program };
                    if owns_actions() {
                        PROGRAM[place].store(&Writing::begin(), default);
                    } else {
                        let default = default.to_c();
                        // SAFETY: the call may be made in a handler.
                        unsafe { real()(signal, &raw const default, ptr::null_mut()) };
                    }
                }
                // SAFETY: the program has given it as a handler. One without SA_SIGINFO ignores the
                // last two arguments, and is called with them by the kernel too.
                unsafe {
                    let handler = transmute::<
                        usize,
                        extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void),
                    >(handler);
                    handler(signal, info, context);
                }
            }
        }
    }

    /// Lets the kernel's default action end the process, as if there were no handler: at the instruction
    /// that faulted, or by the same signal again.
    #[cold]
    fn end_by_default(signal: c_int, info: *mut libc::siginfo_t, is_synchronous: bool) {
        let default = Action { handler: libc::SIG_DFL, flags: 0, mask: 0 }.to_c();
        // SAFETY: the calls may be made in a handler; `info` is the kernel's.
        unsafe {
            real()(signal, &raw const default, ptr::null_mut());
            if !is_synchronous {
                let (process, thread) = (libc::getpid(), libc::syscall(libc::SYS_gettid));
                libc::syscall(libc::SYS_rt_tgsigqueueinfo, process, thread, signal, info);
            }
        }
    }
}
