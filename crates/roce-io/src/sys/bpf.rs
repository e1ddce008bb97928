//! The system call `bpf`: maps, programs, and their links to interfaces.

use std::{
    io, mem,
    os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd},
};

use super::own::Own;
use crate::bpf_assembler::Instruction;

/// A map that an eBPF program and this process share.
#[derive(Debug)]
pub(crate) struct Map {
    fd: Own<OwnedFd>,
    key_len: usize,
    value_len: usize,
}

/// The kind of a map.
#[derive(Clone, Copy, Debug)]
pub(crate) enum MapKind {
    /// Values by keys, of which few are there.
    Hash = 1,
    /// Values by number, all zero at first.
    Array = 2,
    /// AF_XDP sockets by number.
    Sockets = 17,
}

impl Map {
    /// Makes a map, which goes with the last descriptor of it and the last program that uses it.
    pub(crate) fn new(
        name: &str,
        kind: MapKind,
        (key_len, value_len): (usize, usize),
        max_entries: u32,
    ) -> io::Result<Self> {
        let request = MapCreate {
            kind: kind as u32,
            key_len: key_len as u32,
            value_len: value_len as u32,
            max_entries,
            flags: 0,
            inner_map_fd: 0,
            numa_node: 0,
            name: object_name(name),
            interface: 0,
        };
        // SAFETY: BPF_MAP_CREATE reads its request, which holds no pointers.
        let fd = unsafe { call_for_fd(BPF_MAP_CREATE, &request) }?;
        Ok(Self { fd, key_len, value_len })
    }

    /// Returns its descriptor, by which a program names it.
    pub(crate) fn raw_fd(&self) -> i32 {
        self.fd.as_raw_fd()
    }

    /// Returns its number.
    #[cfg(test)]
    pub(crate) fn id(&self) -> io::Result<u32> {
        use std::os::fd::AsFd;
        id_of(self.fd.as_fd()).map(|(id, _)| id)
    }

    /// Sets the value of a key.
    pub(crate) fn set(&self, key: &[u8], value: &[u8]) -> io::Result<()> {
        if key.len() != self.key_len || value.len() != self.value_len {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let request = MapElement {
            map_fd: self.raw_fd() as u32,
            padding: 0,
            key: key.as_ptr() as u64,
            value: value.as_ptr() as u64,
            flags: 0,
        };
        // SAFETY: BPF_MAP_UPDATE_ELEM reads its request and as many bytes of key and value as the map was
        // made with, which the check above has shown to be there.
        unsafe { call(BPF_MAP_UPDATE_ELEM, &request) }.map(drop)
    }

    /// Removes a key; it is no error if it is not there.
    pub(crate) fn remove(&self, key: &[u8]) -> io::Result<()> {
        if key.len() != self.key_len {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let request = MapElement {
            map_fd: self.raw_fd() as u32,
            padding: 0,
            key: key.as_ptr() as u64,
            value: 0,
            flags: 0,
        };
        // SAFETY: BPF_MAP_DELETE_ELEM reads its request and as many bytes of the key as the map was made
        // with, which the check above has shown to be there.
        match unsafe { call(BPF_MAP_DELETE_ELEM, &request) } {
            Err(error) if error.raw_os_error() != Some(libc::ENOENT) => Err(error),
            _ => Ok(()),
        }
    }
}

/// Loads an XDP program. If the kernel's verifier refuses it, the error ends with what that says.
pub(crate) fn load_xdp_program(
    name: &str,
    code: &[Instruction],
    takes_fragments: bool,
) -> io::Result<Own<OwnedFd>> {
    let error = match load(name, code, takes_fragments, &mut []) {
        Err(error) if matches!(error.raw_os_error(), Some(libc::EINVAL | libc::EACCES)) => error,
        outcome => return outcome,
    };
    // It says why only if it has room to; that costs time, so not at first.
    let mut log = vec![0; 64 << 10];
    let Err(_) = load(name, code, takes_fragments, &mut log) else { return Err(error) };
    let text = String::from_utf8_lossy(&log);
    let lines: Vec<_> =
        text.trim_end_matches('\0').lines().filter(|line| !line.starts_with("processed")).collect();
    match lines.last() {
        None => Err(error),
        Some(last) => Err(io::Error::new(error.kind(), format!("{error}: {last}"))),
    }
}

fn load(
    name: &str,
    code: &[Instruction],
    takes_fragments: bool,
    log: &mut [u8],
) -> io::Result<Own<OwnedFd>> {
    let request = ProgramLoad {
        kind: BPF_PROG_TYPE_XDP,
        instructions: code.len() as u32,
        code: code.as_ptr() as u64,
        license: LICENSE.as_ptr() as u64,
        log_level: u32::from(!log.is_empty()),
        log_len: log.len() as u32,
        log: if log.is_empty() { 0 } else { log.as_mut_ptr() as u64 },
        kernel_version: 0,
        flags: if takes_fragments { BPF_F_XDP_HAS_FRAGS } else { 0 },
        name: object_name(name),
        interface: 0,
        expected_attach_type: BPF_XDP,
    };
    // SAFETY: BPF_PROG_LOAD reads its request, the code and the licence, and writes no more than `log_len`
    // bytes of the log; all of them outlive the call.
    unsafe { call_for_fd(BPF_PROG_LOAD, &request) }
}

/// Attaches an XDP program to an interface, until the last descriptor of the link is closed. `flags` has one
/// of [`NATIVE`] and [`GENERIC`].
pub(crate) fn link_xdp(
    program: BorrowedFd<'_>,
    interface: u32,
    flags: u32,
) -> io::Result<Own<OwnedFd>> {
    let request =
        LinkCreate { program: program.as_raw_fd() as u32, interface, attach_type: BPF_XDP, flags };
    // SAFETY: BPF_LINK_CREATE reads its request, which holds no pointers.
    unsafe { call_for_fd(BPF_LINK_CREATE, &request) }
}

/// The driver runs the program on its own buffers.
pub(crate) const NATIVE: u32 = 1 << 2;
/// The kernel runs the program on socket buffers, with any driver.
pub(crate) const GENERIC: u32 = 1 << 1;

/// Runs an XDP program on a frame, and returns its verdict.
#[cfg(test)]
pub(crate) fn run(program: BorrowedFd<'_>, frame: &[u8]) -> io::Result<u32> {
    let mut request = TestRun {
        program: program.as_raw_fd() as u32,
        verdict: 0,
        data_len: frame.len() as u32,
        output_len: 0,
        data: frame.as_ptr() as u64,
        output: 0,
        repeat: 1,
        duration: 0,
    };
    // SAFETY: BPF_PROG_TEST_RUN reads the frame, which outlives the call, and writes into the request.
    unsafe { call_mut(BPF_PROG_TEST_RUN, &mut request) }?;
    Ok(request.verdict)
}

/// Kinds of objects, which have numbers by which the kernel lists them.
#[cfg(test)]
#[derive(Clone, Copy, Debug)]
pub(crate) enum ObjectKind {
    Program = 13,
    Map = 14,
    Link = 30,
}

/// Returns true if there is an object with a number.
#[cfg(test)]
pub(crate) fn exists(kind: ObjectKind, id: u32) -> bool {
    let request = [id, 0, 0, 0];
    // SAFETY: the commands read a request that begins with a number, and holds no pointers.
    unsafe { call_for_fd(kind as libc::c_long, &request) }.is_ok()
}

/// Returns the number of a map or link, and the word behind it, which for a link is that of its program.
#[cfg(test)]
pub(crate) fn id_of(object: BorrowedFd<'_>) -> io::Result<(u32, u32)> {
    const BPF_OBJ_GET_INFO_BY_FD: libc::c_long = 15;
    #[repr(C)]
    struct InfoByFd {
        fd: u32,
        len: u32,
        info: u64,
    }
    // Kind, number, and what follows.
    let mut info = [0_u32; 3];
    let (fd, len) = (object.as_raw_fd() as u32, mem::size_of_val(&info) as u32);
    let mut request = InfoByFd { fd, len, info: info.as_mut_ptr() as u64 };
    // SAFETY: BPF_OBJ_GET_INFO_BY_FD writes no more than `len` bytes to `info`.
    unsafe { call_mut(BPF_OBJ_GET_INFO_BY_FD, &mut request) }?;
    Ok((info[1], info[2]))
}

/// The name of an object, as tools show it.
fn object_name(name: &str) -> [u8; 16] {
    let mut bytes = [0; 16];
    for (to, from) in bytes[..15].iter_mut().zip(name.bytes()) {
        *to = from;
    }
    bytes
}

/// # Safety
/// `request` is what `command` reads, and its pointers are valid for what the command does with them.
unsafe fn call<T>(command: libc::c_long, request: &T) -> io::Result<i32> {
    // SAFETY: the caller's promise.
    let result =
        unsafe { libc::syscall(libc::SYS_bpf, command, &raw const *request, mem::size_of::<T>()) };
    i32::try_from(result).ok().filter(|it| *it >= 0).ok_or_else(io::Error::last_os_error)
}

/// # Safety
/// As [`call`]; the command may write into the request.
#[cfg(test)]
unsafe fn call_mut<T>(command: libc::c_long, request: &mut T) -> io::Result<i32> {
    // SAFETY: the caller's promise.
    let result =
        unsafe { libc::syscall(libc::SYS_bpf, command, &raw mut *request, mem::size_of::<T>()) };
    i32::try_from(result).ok().filter(|it| *it >= 0).ok_or_else(io::Error::last_os_error)
}

/// # Safety
/// As [`call`]; the command returns a new descriptor.
unsafe fn call_for_fd<T>(command: libc::c_long, request: &T) -> io::Result<Own<OwnedFd>> {
    // SAFETY: the caller's promise. The kernel closes all descriptors of `bpf` on `exec`.
    Own::make(|| unsafe { call(command, request).map(|fd| OwnedFd::from_raw_fd(fd)) })
}

/// It uses no function that the kernel gives to programs under the GPL only.
const LICENSE: &std::ffi::CStr = c"Dual MIT/GPL";

const BPF_MAP_CREATE: libc::c_long = 0;
const BPF_MAP_UPDATE_ELEM: libc::c_long = 2;
const BPF_MAP_DELETE_ELEM: libc::c_long = 3;
const BPF_PROG_LOAD: libc::c_long = 5;
#[cfg(test)]
const BPF_PROG_TEST_RUN: libc::c_long = 10;
const BPF_LINK_CREATE: libc::c_long = 28;

const BPF_PROG_TYPE_XDP: u32 = 6;
const BPF_XDP: u32 = 37;
const BPF_F_XDP_HAS_FRAGS: u32 = 1 << 5;

#[repr(C)]
struct MapCreate {
    kind: u32,
    key_len: u32,
    value_len: u32,
    max_entries: u32,
    flags: u32,
    inner_map_fd: u32,
    numa_node: u32,
    name: [u8; 16],
    /// Always 0; valgrind looks at it, however long the request is.
    interface: u32,
}

#[repr(C)]
struct MapElement {
    map_fd: u32,
    padding: u32,
    key: u64,
    value: u64,
    flags: u64,
}

#[repr(C)]
struct ProgramLoad {
    kind: u32,
    instructions: u32,
    code: u64,
    license: u64,
    log_level: u32,
    log_len: u32,
    log: u64,
    kernel_version: u32,
    flags: u32,
    name: [u8; 16],
    interface: u32,
    expected_attach_type: u32,
}

#[repr(C)]
struct LinkCreate {
    program: u32,
    interface: u32,
    attach_type: u32,
    flags: u32,
}

#[cfg(test)]
#[repr(C)]
struct TestRun {
    program: u32,
    verdict: u32,
    data_len: u32,
    output_len: u32,
    data: u64,
    output: u64,
    repeat: u32,
    duration: u32,
}
