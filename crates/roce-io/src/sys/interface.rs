//! Properties of an interface, by ioctl: `/sys/class/net` shows the network namespace it was
//! mounted in, which need not be this thread's.

use std::{
    io, mem,
    os::fd::{AsRawFd, BorrowedFd},
    ptr,
};

/// Returns the MTU in bytes.
pub(crate) fn mtu(fd: BorrowedFd<'_>, name: &str) -> io::Result<u32> {
    let mut request = request(name)?;
    // SAFETY: SIOCGIFMTU reads and writes one `ifreq`.
    unsafe { ioctl(fd, libc::SIOCGIFMTU, (&raw mut request).cast()) }?;
    // SAFETY: the kernel has filled in the MTU; any bytes make an integer.
    let mtu = unsafe { request.ifr_ifru.ifru_mtu };
    Ok(mtu.max(0) as u32)
}

/// Returns the index.
pub(crate) fn index(fd: BorrowedFd<'_>, name: &str) -> io::Result<u32> {
    let mut request = request(name)?;
    // SAFETY: SIOCGIFINDEX reads and writes one `ifreq`.
    unsafe { ioctl(fd, libc::SIOCGIFINDEX, (&raw mut request).cast()) }?;
    // SAFETY: the kernel has filled in the index; any bytes make an integer.
    let index = unsafe { request.ifr_ifru.ifru_ifindex };
    Ok(index.max(0) as u32)
}

/// Returns the `IFF_*` flags.
pub(crate) fn flags(fd: BorrowedFd<'_>, name: &str) -> io::Result<u32> {
    let mut request = request(name)?;
    // SAFETY: SIOCGIFFLAGS reads and writes one `ifreq`.
    unsafe { ioctl(fd, libc::SIOCGIFFLAGS, (&raw mut request).cast()) }?;
    // SAFETY: the kernel has filled in the flags; any bytes make an integer.
    let flags = unsafe { request.ifr_ifru.ifru_flags };
    Ok(u32::from(flags as u16))
}

/// Returns the `ARPHRD_*` hardware type.
pub(crate) fn hardware_type(fd: BorrowedFd<'_>, name: &str) -> io::Result<u16> {
    let mut request = request(name)?;
    // SAFETY: SIOCGIFHWADDR reads and writes one `ifreq`.
    unsafe { ioctl(fd, libc::SIOCGIFHWADDR, (&raw mut request).cast()) }?;
    // SAFETY: the kernel has filled in a socket address; any bytes make one.
    Ok(unsafe { request.ifr_ifru.ifru_hwaddr }.sa_family)
}

/// Returns the name of the driver.
pub(crate) fn driver(fd: BorrowedFd<'_>, name: &str) -> io::Result<String> {
    let mut request = request(name)?;
    let mut info = DriverInfo { command: GET_DRIVER_INFO, driver: [0; 32], rest: [0; 160] };
    request.ifr_ifru.ifru_data = (&raw mut info).cast();
    // SAFETY: for this command SIOCETHTOOL writes an `ethtool_drvinfo` behind `ifru_data`;
    // `info` has its size and lives until after the call.
    unsafe { ioctl(fd, libc::SIOCETHTOOL as _, (&raw mut request).cast()) }?;
    let end = info.driver.iter().position(|&byte| byte == 0).unwrap_or(info.driver.len());
    Ok(String::from_utf8_lossy(&info.driver[..end]).into_owned())
}

/// Returns the speed in Mbit/s; `None` if the driver does not know it.
pub(crate) fn speed(fd: BorrowedFd<'_>, name: &str) -> io::Result<Option<u32>> {
    let mut request = request(name)?;
    let mut settings = Settings { command: GET_SETTINGS, ..Settings::default() };
    request.ifr_ifru.ifru_data = (&raw mut settings).cast();
    // SAFETY: for this command SIOCETHTOOL writes an `ethtool_cmd` behind `ifru_data`; `settings`
    // has its size and lives until after the call.
    unsafe { ioctl(fd, libc::SIOCETHTOOL as _, (&raw mut request).cast()) }?;
    let speed = u32::from(settings.speed_high) << 16 | u32::from(settings.speed_low);
    Ok(Some(speed).filter(|speed| ![0, 0xffff, u32::MAX].contains(speed)))
}

/// Returns the number of receive queues.
pub(crate) fn receive_queues(fd: BorrowedFd<'_>, name: &str) -> io::Result<u32> {
    let mut request = request(name)?;
    let mut channels = Channels { command: GET_CHANNELS, ..Channels::default() };
    request.ifr_ifru.ifru_data = (&raw mut channels).cast();
    // SAFETY: for this command SIOCETHTOOL writes an `ethtool_channels` behind `ifru_data`; `channels`
    // has its size and lives until after the call.
    unsafe { ioctl(fd, libc::SIOCETHTOOL as _, (&raw mut request).cast()) }?;
    Ok(channels.receive.saturating_add(channels.combined))
}

/// Returns true if the interface's flags say that it is up and has a carrier. They lag behind a
/// change: milliseconds on a veth, up to a second on a card. The kernel takes no lock.
pub(crate) fn is_running(fd: BorrowedFd<'_>, name: &str) -> io::Result<bool> {
    const UP_AND_RUNNING: u32 = (libc::IFF_UP | libc::IFF_RUNNING) as u32;
    Ok(flags(fd, name)? & UP_AND_RUNNING == UP_AND_RUNNING)
}

/// Returns true if the interface has a carrier now. May take long: the kernel takes a lock that
/// every change of any interface holds.
pub(crate) fn has_carrier(fd: BorrowedFd<'_>, name: &str) -> io::Result<bool> {
    let mut request = request(name)?;
    let mut link = Value { command: GET_LINK, value: 0 };
    request.ifr_ifru.ifru_data = (&raw mut link).cast();
    // SAFETY: for this command SIOCETHTOOL writes an `ethtool_value` behind `ifru_data`; `link`
    // has its size and lives until after the call.
    unsafe { ioctl(fd, libc::SIOCETHTOOL as _, (&raw mut request).cast()) }?;
    Ok(link.value != 0)
}

/// Returns true if the kernel leaves checksums to the interface.
pub(crate) fn offloads_transmit_checksum(fd: BorrowedFd<'_>, name: &str) -> io::Result<bool> {
    let mut request = request(name)?;
    let mut offload = Value { command: GET_TX_CHECKSUM, value: 0 };
    request.ifr_ifru.ifru_data = (&raw mut offload).cast();
    // SAFETY: for this command SIOCETHTOOL writes an `ethtool_value` behind `ifru_data`; `offload`
    // has its size and lives until after the call.
    unsafe { ioctl(fd, libc::SIOCETHTOOL as _, (&raw mut request).cast()) }?;
    Ok(offload.value != 0)
}

/// Makes the kernel complete checksums and segment before frames reach the interface. Needs
/// CAP_NET_ADMIN.
pub(crate) fn disable_transmit_offload(fd: BorrowedFd<'_>, name: &str) -> io::Result<()> {
    // Without checksum offload the kernel uses none of the segmentation offloads. Those are switched
    // off first all the same: TCP asks for them by themselves.
    for command in [SET_TSO, SET_TX_CHECKSUM] {
        let mut request = request(name)?;
        let mut off = Value { command, value: 0 };
        request.ifr_ifru.ifru_data = (&raw mut off).cast();
        // SAFETY: for these commands SIOCETHTOOL reads an `ethtool_value` behind `ifru_data`; `off`
        // has its size and lives until after the call.
        unsafe { ioctl(fd, libc::SIOCETHTOOL as _, (&raw mut request).cast()) }?;
    }
    Ok(())
}

/// `struct ethtool_value`.
#[repr(C)]
struct Value {
    command: u32,
    value: u32,
}

/// `struct ethtool_cmd`, of which only the speed is read.
#[repr(C)]
#[derive(Default)]
struct Settings {
    command: u32,
    modes: [u32; 2],
    speed_low: u16,
    port: [u8; 6],
    limits: [u32; 2],
    speed_high: u16,
    rest: [u8; 14],
}

/// `struct ethtool_channels`, of which only the present numbers of receive queues are read.
#[repr(C)]
#[derive(Default)]
struct Channels {
    command: u32,
    limits: [u32; 4],
    receive: u32,
    send: u32,
    other: u32,
    combined: u32,
}

/// `struct ethtool_drvinfo`, of which only the driver's name is read.
#[repr(C)]
struct DriverInfo {
    command: u32,
    driver: [u8; 32],
    rest: [u8; 160],
}

const GET_SETTINGS: u32 = 1;
const GET_DRIVER_INFO: u32 = 3;
const GET_LINK: u32 = 10;
const GET_CHANNELS: u32 = 0x3c;
const GET_TX_CHECKSUM: u32 = 0x16;
const SET_TX_CHECKSUM: u32 = 0x17;
const SET_TSO: u32 = 0x1f;

fn request(name: &str) -> io::Result<libc::ifreq> {
    // SAFETY: an `ifreq` is plain data, for which all zeros is a value.
    let mut request: libc::ifreq = unsafe { mem::zeroed() };
    // The name ends in a zero byte, which the array already holds.
    if name.is_empty() || name.len() >= request.ifr_name.len() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    Ok(request)
}

/// # Safety
/// `argument` points to the structure that `command` reads and writes.
unsafe fn ioctl(
    fd: BorrowedFd<'_>,
    command: libc::c_ulong,
    argument: *mut libc::c_void,
) -> io::Result<()> {
    debug_assert_ne!(argument, ptr::null_mut());
    // SAFETY: the caller's promise.
    let result = unsafe { libc::ioctl(fd.as_raw_fd(), command as _, argument) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
