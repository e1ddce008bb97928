//! Whether a program listens, by the kernel's table of sockets.

/// Returns whether a TCP socket in the network namespace of `pid` listens on the port.
pub(crate) fn listens(pid: u32, port: u16) -> bool {
    ["tcp", "tcp6"].iter().any(|table| {
        let text = std::fs::read_to_string(format!("/proc/{pid}/net/{table}")).unwrap_or_default();
        text.lines().any(|line| {
            let mut fields = line.split_whitespace().skip(1);
            let local = fields.next().unwrap_or_default();
            local.ends_with(&format!(":{port:04X}")) && fields.nth(1) == Some(LISTEN)
        })
    })
}

/// TCP_LISTEN in the kernel's table.
const LISTEN: &str = "0A";
