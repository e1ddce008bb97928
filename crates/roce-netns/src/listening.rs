//! Whether a program listens, by the kernel's table of sockets.

/// Returns true if a TCP socket in the network namespace of a process listens at `port`, or at any with
/// `None`. False if there is no such process.
///
/// ```
/// let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
/// let port = listener.local_addr().unwrap().port();
/// assert!(roce_netns::is_listening(std::process::id(), Some(port)));
/// ```
pub fn is_listening(process: u32, port: Option<u16>) -> bool {
    ["tcp", "tcp6"].iter().any(|table| {
        std::fs::read_to_string(format!("/proc/{process}/net/{table}"))
            .is_ok_and(|text| has_listener(&text, port))
    })
}

/// Returns true if a table of sockets, as the kernel prints it, has one that listens.
fn has_listener(table: &str, port: Option<u16>) -> bool {
    table.lines().skip(1).any(|line| {
        // sl, local address, remote address, state
        let mut fields = line.split_whitespace().skip(1);
        let local = fields.next().and_then(|address| address.rsplit(':').next());
        let local = local.and_then(|hex| u16::from_str_radix(hex, 16).ok());
        fields.nth(1) == Some(LISTEN) && (port.is_none() || local == port)
    })
}

/// Returns true if a socket of the local domain, in the network namespace of a process, has an
/// abstract name that begins with `start`. False if there is no such process.
///
/// ```
/// use std::os::linux::net::SocketAddrExt;
/// use std::os::unix::net::{SocketAddr, UnixDatagram};
///
/// let name = SocketAddr::from_abstract_name("example/1").unwrap();
/// let _socket = UnixDatagram::bind_addr(&name).unwrap();
/// assert!(roce_netns::has_abstract_socket(std::process::id(), "example/"));
/// assert!(!roce_netns::has_abstract_socket(std::process::id(), "xample/"));
/// ```
pub fn has_abstract_socket(process: u32, start: &str) -> bool {
    std::fs::read_to_string(format!("/proc/{process}/net/unix")).is_ok_and(|table| {
        let mut names = table.lines().filter_map(|line| line.split_once('@'));
        names.any(|(_, name)| name.starts_with(start))
    })
}

/// State of a listening socket.
const LISTEN: &str = "0A";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listening_socket_is_told_from_a_connected_one_and_from_one_at_another_port() {
        let head = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when\n";
        let connected = "   0: 0100000A:4855 0200000A:8B3C 01 00000000:00000000 00:00000000\n";
        let listening = "   1: 00000000:4855 00000000:0000 0A 00000000:00000000 00:00000000\n";
        let both = format!("{head}{connected}{listening}");
        for port in [None, Some(0x4855)] {
            assert!(
                !has_listener(head, port) && !has_listener(&format!("{head}{connected}"), port)
            );
            assert!(has_listener(&both, port));
        }
        assert!(!has_listener(&both, Some(0x4856)));
    }

    #[test]
    fn a_process_that_does_not_exist_does_not_listen() {
        assert!(!is_listening(0, None));
        assert!(!has_abstract_socket(0, ""));
    }
}
