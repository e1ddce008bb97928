//! What the kernel has of processes that use AF_XDP: programs, maps, and links of interfaces.

use std::fs;
use std::io;
use std::mem;

use libc::c_long;

/// A kind of object, as the system call `bpf` finds one by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// A program.
    Program = 13,
    /// A map.
    Map = 14,
    /// A link of a program to an interface.
    Link = 30,
}

/// An object with its number.
pub type Object = (Kind, u32);

/// Returns the objects that a process has descriptors of, and the program of a link.
///
/// # Panics
/// When the process is gone.
pub fn of_process(id: u32) -> Vec<Object> {
    let mut found = Vec::new();
    for entry in fs::read_dir(format!("/proc/{id}/fdinfo")).expect("a process of ours") {
        // A descriptor may be closed meanwhile.
        let Ok(text) = entry.and_then(|entry| fs::read_to_string(entry.path())) else { continue };
        for line in text.lines() {
            let Some((name, number)) = line.split_once(':') else { continue };
            let kind = match name {
                "prog_id" => Kind::Program,
                "map_id" => Kind::Map,
                "link_id" => Kind::Link,
                _ => continue,
            };
            found.push((kind, number.trim().parse().expect("a number")));
        }
    }
    found.sort_unstable();
    found.dedup();
    found
}

/// Returns true if the kernel has an object still.
///
/// # Panics
/// When the kernel says neither.
pub fn exists((kind, number): Object) -> bool {
    let request = [number, 0, 0, 0];
    // SAFETY: the commands read a request that begins with a number, and holds no pointers.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            kind as c_long,
            request.as_ptr(),
            mem::size_of_val(&request) as c_long,
        )
    };
    if fd < 0 {
        let error = io::Error::last_os_error();
        assert_eq!(error.raw_os_error(), Some(libc::ENOENT), "{error}");
        return false;
    }
    // SAFETY: the call has made this descriptor, which nothing else has.
    unsafe { libc::close(fd as i32) };
    true
}
