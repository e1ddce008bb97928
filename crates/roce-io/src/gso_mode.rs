//! When trains are sent.

use std::{fs, os::fd::BorrowedFd, sync::LazyLock};

use crate::{InterfaceInfo, InterfaceKind, sys};

/// When to send trains by UDP segmentation offload. Received trains are always understood.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GsoMode {
    /// Always; the kernel segments trains that the interface does not take whole.
    On,
    /// Never.
    Off,
    /// From Linux 6.2 on, on interfaces known to segment in software: veth, tap, bridge, `lo`; not on a
    /// veth whose checksum offload is switched off. Packet sockets of older kernels refuse to send
    /// trains, and lose those that they receive, from UDP sockets too.
    #[default]
    Auto,
}

impl GsoMode {
    /// Returns true if a device sends trains on an interface of the socket's network namespace.
    pub(crate) fn sends_trains(self, interface: &InterfaceInfo, socket: BorrowedFd<'_>) -> bool {
        match self {
            Self::On => true,
            Self::Off => false,
            Self::Auto => {
                interface.kind.segments_in_software()
                    && *KERNEL_HAS_TRAINS
                    // Without checksum offload the kernel cuts every train.
                    && (interface.kind != InterfaceKind::Veth
                        || sys::interface::offloads_transmit_checksum(socket, &interface.name)
                            .unwrap_or(true))
            }
        }
    }
}

/// Packet sockets of this kernel have trains. A kernel that cannot be asked is taken for a newer one.
static KERNEL_HAS_TRAINS: LazyLock<bool> = LazyLock::new(|| {
    fs::read_to_string("/proc/sys/kernel/osrelease").map_or(true, |release| has_trains(&release))
});

/// Returns true if packet sockets of a release have trains: virtio headers know UDP segmentation
/// offload since 6.2.
fn has_trains(release: &str) -> bool {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(str::parse::<u32>);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(major)), Some(Ok(minor))) => (major, minor) >= (6, 2),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packet_sockets_have_trains_from_linux_6_2_on() {
        for old in ["4.18.0-553.el8_10.x86_64", "5.15.0-1.generic", "6.1.0-50-arm64", "6.1"] {
            assert!(!has_trains(old), "{old}");
        }
        for new in ["6.2.0\n", "6.10.3", "6.18.44-fc", "7.0-rc1", "10.1", "", "unknown", "6"] {
            assert!(has_trains(new), "{new}");
        }
    }
}
