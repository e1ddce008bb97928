//! The hardware of an interface.

use std::fs;
use std::path::{Path, PathBuf};

use roce_io::InterfaceInfo;

/// Returns the folder of `/sys/devices` that the interface's hardware has, such as that of a PCI
/// function; `None` for a virtual interface.
///
/// `/sys` may show the interfaces of another network namespace. So the MAC address that it gives must
/// be that of the interface.
pub fn hardware_folder(interface: &InterfaceInfo) -> Option<PathBuf> {
    let folder = Path::new("/sys/class/net").join(&interface.name);
    let address = fs::read_to_string(folder.join("address")).ok()?;
    let index = fs::read_to_string(folder.join("ifindex")).ok()?;
    let mac = interface.mac?.map(|byte| format!("{byte:02x}")).join(":");
    let is_same = address.trim() == mac && index.trim() == interface.index.to_string();
    is_same.then(|| fs::canonicalize(folder.join("device")).ok())?
}
