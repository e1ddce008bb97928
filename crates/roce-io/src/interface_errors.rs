//! What the kernel's errors say of an interface.

use std::{io, os::fd::BorrowedFd};

use crate::{InterfaceInfo, device::DeviceCapabilities, error::DeviceError, sys};

/// Turns the kernel's error into a [`DeviceError`] where there is one.
pub(crate) fn explain(error: io::Error, interface: &InterfaceInfo) -> io::Error {
    let name = interface.name.clone();
    match error.raw_os_error() {
        Some(libc::ENETDOWN) => DeviceError::InterfaceDown { name }.into(),
        Some(libc::ENXIO | libc::ENODEV) => DeviceError::InterfaceGone { name }.into(),
        _ => error,
    }
}

/// As [`explain`], for the error of a frame that was sent. If the MTU was lowered, and `set_mtu` has not
/// been called yet, the capabilities get the present one, which the kernel reads without a lock.
pub(crate) fn explain_refusal(
    error: io::Error,
    (interface, socket): (&InterfaceInfo, BorrowedFd<'_>),
    capabilities: &mut DeviceCapabilities,
) -> io::Error {
    if error.raw_os_error() != Some(libc::EMSGSIZE) {
        return explain(error, interface);
    }
    let (name, packet_len) = (interface.name.clone(), capabilities.mtu);
    match sys::interface::mtu(socket, &name) {
        Ok(mtu) => {
            capabilities.mtu = mtu as usize;
            DeviceError::SegmentTooLong { name, packet_len, mtu: capabilities.mtu }.into()
        }
        Err(error) => explain(error, interface),
    }
}
