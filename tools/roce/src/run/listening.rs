//! Waiting until a program listens.

use std::fs;

/// Returns true if any socket in the network namespace of a process listens on a TCP port.
pub(crate) fn in_namespace_of(process: u32) -> bool {
    ["tcp", "tcp6"].iter().any(|table| {
        fs::read_to_string(format!("/proc/{process}/net/{table}"))
            .is_ok_and(|text| has_listener(&text))
    })
}

/// Returns true if a table of sockets, as the kernel prints it, has one that listens.
fn has_listener(table: &str) -> bool {
    // sl, local address, remote address, state
    table.lines().skip(1).any(|line| line.split_whitespace().nth(3) == Some(LISTEN))
}

/// State of a listening socket.
const LISTEN: &str = "0A";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listening_socket_is_told_from_a_connected_one() {
        let head = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when\n";
        let connected = "   0: 0100000A:4855 0200000A:8B3C 01 00000000:00000000 00:00000000\n";
        let listening = "   1: 00000000:4855 00000000:0000 0A 00000000:00000000 00:00000000\n";
        assert!(!has_listener(head) && !has_listener(&format!("{head}{connected}")));
        assert!(has_listener(&format!("{head}{connected}{listening}")));
    }

    #[test]
    fn a_process_that_listens_is_found() {
        let _listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        assert!(in_namespace_of(std::process::id()));
        assert!(!in_namespace_of(0));
    }
}
