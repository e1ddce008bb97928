//! The sockets that have a UDP port, whatever user they belong to.

use std::{
    io::{self, Read},
    path::Path,
    time::Duration,
};

use socket2::{Domain, Protocol, Type};

use super::owner::{Entry, read_table};
use crate::sys;

/// A socket that has a UDP port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Holder {
    /// Its user, as this process's user namespace numbers them.
    pub(super) uid: u32,
    pub(super) is_v6: bool,
    /// It is bound to no address, and to no interface as far as that can be seen: no socket of another user
    /// that does not share the port can be bound beside it.
    pub(super) has_all: bool,
}

impl From<Entry> for Holder {
    fn from(entry: Entry) -> Self {
        Self { uid: entry.uid, is_v6: entry.is_v6, has_all: entry.has_all }
    }
}

/// Returns the sockets that have `port` in this thread's network namespace.
pub(super) fn holders_of(port: u16) -> io::Result<Vec<Holder>> {
    // The module udp_diag may be missing, or refused by a filter of system calls.
    let by_diag = [libc::AF_INET, libc::AF_INET6].map(|family| ask(family, port));
    match by_diag {
        [Ok(mut v4), Ok(v6)] => {
            v4.extend(v6);
            Ok(v4)
        }
        _ => read_tables(port),
    }
}

/// Reads the kernel's tables as files. An entry may be skipped while sockets are made and closed.
fn read_tables(port: u16) -> io::Result<Vec<Holder>> {
    let read = |is_v6| read_table(Path::new("/"), is_v6, port);
    let mut all = read(false)?;
    match read(true) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        v6 => all.extend(v6?),
    }
    Ok(all.into_iter().map(Holder::from).collect())
}

/// Of `linux/netlink.h`, `linux/sock_diag.h` and `linux/inet_diag.h`.
const NETLINK_SOCK_DIAG: i32 = 4;
const SOCK_DIAG_BY_FAMILY: u16 = 20;
const NLM_F_REQUEST_DUMP: u16 = 0x301;
const HEADER_LEN: usize = 16;
const REQUEST_LEN: usize = HEADER_LEN + 56;
/// How long the kernel may take. It answers at once.
const ANSWER: Duration = Duration::from_secs(1);
/// More than the kernel makes of an answer at once.
const BUFFER_LEN: usize = 64 << 10;

/// Asks the kernel for the sockets of an address family on a port. It looks at all of the port's under one lock.
fn ask(family: i32, port: u16) -> io::Result<Vec<Holder>> {
    let netlink = Domain::from(libc::AF_NETLINK);
    let protocol = Some(Protocol::from(NETLINK_SOCK_DIAG));
    let socket = sys::socket::open(netlink, Type::RAW, protocol)?;
    socket.set_read_timeout(Some(ANSWER))?;
    socket.send(&request(family, port))?;
    let (mut all, mut buffer) = (Vec::new(), vec![0; BUFFER_LEN]);
    loop {
        let len = (&*socket).read(&mut buffer)?;
        if answer(&buffer[..len], port, &mut all)? {
            return Ok(all);
        }
    }
}

fn request(family: i32, port: u16) -> [u8; REQUEST_LEN] {
    let mut bytes = [0; REQUEST_LEN];
    bytes[..4].copy_from_slice(&(REQUEST_LEN as u32).to_ne_bytes());
    bytes[4..6].copy_from_slice(&SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    bytes[6..8].copy_from_slice(&NLM_F_REQUEST_DUMP.to_ne_bytes());
    // Family, protocol, extensions, padding; states; the port.
    bytes[16..18].copy_from_slice(&[family as u8, libc::IPPROTO_UDP as u8]);
    bytes[20..24].copy_from_slice(&u32::MAX.to_ne_bytes());
    bytes[24..26].copy_from_slice(&port.to_be_bytes());
    bytes
}

/// Adds the sockets of one part of an answer; returns true if it was the last.
fn answer(mut bytes: &[u8], port: u16, all: &mut Vec<Holder>) -> io::Result<bool> {
    while let Some(header) = bytes.first_chunk::<HEADER_LEN>() {
        let len = u32::from_ne_bytes([header[0], header[1], header[2], header[3]]) as usize;
        let Some(body) = bytes.get(HEADER_LEN..len) else { break };
        match i32::from(u16::from_ne_bytes([header[4], header[5]])) {
            libc::NLMSG_DONE => return Ok(true),
            libc::NLMSG_ERROR => {
                let code =
                    body.first_chunk().map_or(libc::EPROTO, |code| -i32::from_ne_bytes(*code));
                return Err(io::Error::from_raw_os_error(code));
            }
            _ => all.extend(holder(body).filter(|(of, _)| *of == port).map(|(_, holder)| holder)),
        }
        bytes = bytes.get(len.next_multiple_of(4)..).unwrap_or_default();
    }
    Ok(false)
}

/// Reads an `inet_diag_msg`; returns the socket with its port.
fn holder(body: &[u8]) -> Option<(u16, Holder)> {
    let body = body.first_chunk::<72>()?;
    let is_v6 = i32::from(body[0]) == libc::AF_INET6;
    let address = &body[8..if is_v6 { 24 } else { 12 }];
    let zeros = |bytes: &[u8]| bytes.iter().all(|byte| *byte == 0);
    let uid = u32::from_ne_bytes([body[64], body[65], body[66], body[67]]);
    let has_all = zeros(address) && zeros(&body[40..44]);
    Some((u16::from_be_bytes([body[4], body[5]]), Holder { uid, is_v6, has_all }))
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use super::*;

    #[test]
    fn sockets_of_a_port_are_found_with_user_and_scope_by_the_kernels_answer_and_by_its_tables() {
        let uid = sys::passing::effective_user();
        let holder = |is_v6, has_all| Holder { uid, is_v6, has_all };
        for (address, expected) in [
            ("127.0.0.1:0", holder(false, false)),
            ("0.0.0.0:0", holder(false, true)),
            ("[::1]:0", holder(true, false)),
            ("[::]:0", holder(true, true)),
        ] {
            let Ok(socket) = UdpSocket::bind(address) else { continue };
            let port = socket.local_addr().unwrap().port();
            assert_eq!(holders_of(port).unwrap(), [expected], "{address}");
            // The kernel may skip an entry while others change.
            let read = || read_tables(port).unwrap();
            assert!((0..16).any(|_| read() == [expected]), "{address}");
            drop(socket);
        }
    }

    #[test]
    fn no_answer_of_any_bytes_panics_or_is_taken_for_one() {
        const PORT: u16 = 4791;
        for len in [0, 1, 15, 16, 17, 21, 22, 24, 87, 88, 200] {
            for byte in [0, 1, 2, 3, 16, 0xff] {
                let mut bytes = vec![byte; len];
                let mut all = Vec::new();
                let _ends = answer(&bytes, PORT, &mut all);
                assert_eq!(all, [], "{len} bytes of {byte}");
                if let Some(port) = bytes.get_mut(HEADER_LEN + 4..HEADER_LEN + 6) {
                    port.copy_from_slice(&PORT.to_be_bytes());
                }
                // The same behind a header of a kind that is known.
                for kind in [libc::NLMSG_ERROR as u16, libc::NLMSG_DONE as u16, SOCK_DIAG_BY_FAMILY]
                {
                    let Some(header) = bytes.first_chunk_mut::<HEADER_LEN>() else { continue };
                    header[..4].copy_from_slice(&(len as u32).to_ne_bytes());
                    header[4..6].copy_from_slice(&kind.to_ne_bytes());
                    let is_last = answer(&bytes, PORT, &mut all);
                    let is_whole = len >= HEADER_LEN + 72;
                    let (is_right, expected) = match i32::from(kind) {
                        libc::NLMSG_ERROR => (is_last.is_err(), 0),
                        libc::NLMSG_DONE => (matches!(is_last, Ok(true)), 0),
                        _ => (matches!(is_last, Ok(false)), usize::from(is_whole)),
                    };
                    assert!(is_right, "{len} bytes of {byte}, kind {kind}: {is_last:?}");
                    assert_eq!(all.len(), expected, "{len} bytes of {byte}, kind {kind}");
                    all.clear();
                    // One whose end is missing is none.
                    let _ends = answer(&bytes[..len - 1], PORT, &mut all);
                    assert_eq!(all, [], "{} of {len} bytes of {byte}, kind {kind}", len - 1);
                }
            }
        }
    }
}
