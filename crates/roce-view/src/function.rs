//! The folder of a device's hardware, by a name as a PCI function has it.
//!
//! NCCL and UCX take the address of a device by its place at the end of the path to which `device` leads, so each device
//! has one there.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};

use roce_verbs::NamedDevice;

use crate::tree::{Node, Tree};

/// Returns true if a folder of `/sys/devices` is that of a PCI function: `DDDD:BB:DD.F`.
fn is_pci_function(folder: &Path) -> bool {
    let name = folder.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let parts: Vec<&str> = name.split([':', '.']).collect();
    let lengths: Vec<usize> = parts.iter().map(|part| part.len()).collect();
    let is_hexadecimal = |part: &&str| part.bytes().all(|byte| byte.is_ascii_hexdigit());
    // The domains of some controllers have five digits.
    matches!(lengths[..], [4 | 5, 2, 2, 1]) && parts.iter().all(is_hexadecimal)
}

/// Returns the folder for the hardware of the device at a position in the list, below that of the device. Each has a
/// bus of its own, since NCCL takes the functions of a bus for one device. No machine has these domains, so that nothing
/// takes the device for a graphics card or another one of the same address.
fn folder_of(position: usize) -> PathBuf {
    let (domains, bus) = (position / 256, position % 256);
    let domain = u16::try_from(domains).map_or(0, |domains| u16::MAX - domains);
    Path::new(&format!("pci{domain:04x}:{bus:02x}")).join(format!("{domain:04x}:{bus:02x}:00.0"))
}

/// Returns the path of the PCI function that has some other hardware, as virtio is of one, from its bus on. hwloc takes
/// the place of a device in the machine from the text of its link.
fn place_of(hardware: &Path) -> PathBuf {
    let function = hardware.ancestors().find(|folder| is_pci_function(folder));
    let is_bus = |name: &&OsStr| name.as_encoded_bytes().starts_with(b"pci");
    let from_bus = function.into_iter().flatten().skip_while(|name| !is_bus(name));
    // hwloc looks for "/pci".
    Path::new(".").join(from_bus.collect::<PathBuf>())
}

/// Adds `device` to the folder of a device, and what it leads to: the folder of the interface's hardware, if that is a
/// PCI function, or else one that stands for it.
pub(crate) fn add(
    tree: &mut Tree,
    folder: &Path,
    position: usize,
    device: &NamedDevice,
    hardware: Option<PathBuf>,
) {
    // hwloc passes over a device whose `device` is no link.
    let link = folder.join("device");
    match hardware {
        Some(hardware) if is_pci_function(&hardware) => tree.insert(link, Node::Link(hardware)),
        hardware => {
            let place = hardware.as_deref().map(place_of).unwrap_or_default();
            let below = place.join(folder_of(position));
            let function = folder.join(below.strip_prefix(".").unwrap_or(&below));
            let ups = function.components().count() - folder.components().count();
            let ups = std::iter::repeat_n("..", ups).collect::<PathBuf>();
            let own = Path::new("../..").join(ups).join(&device.name);
            match hardware {
                Some(hardware) => add_links(tree, &function, &hardware),
                None => {
                    let interface = &device.info.interface.name;
                    let target = Path::new("/sys/class/net").join(interface);
                    tree.insert(function.join("net").join(interface), Node::Link(target));
                    tree.line(function.join("numa_node"), -1);
                }
            }
            tree.insert(link, Node::Link(below));
            tree.insert(function.join("infiniband").join(&device.name), Node::Link(own));
        }
    }
}

/// Adds links to what the folder of some other hardware has, such as that of virtio or of VMBus, and to what programs
/// read of a PCI function and find in the folder around it alone, as with virtio.
fn add_links(tree: &mut Tree, function: &Path, hardware: &Path) {
    let entries = fs::read_dir(hardware).into_iter().flatten().flatten();
    for name in entries.map(|entry| entry.file_name()).filter(|name| name != "infiniband") {
        tree.insert(function.join(&name), Node::Link(hardware.join(&name)));
    }
    let around = hardware.parent().unwrap_or(hardware);
    for name in ["class", "numa_node", "local_cpus", "local_cpulist"].map(OsString::from) {
        match (hardware.join(&name).exists(), around.join(&name).exists()) {
            (false, true) => tree.insert(function.join(&name), Node::Link(around.join(name))),
            (false, false) if name == "numa_node" => tree.line(function.join(name), -1),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn folders_of_pci_functions_are_told_by_their_name() {
        for name in ["0000:00:1f.0", "ffff:ab:00.7", "10000:e1:00.0"] {
            assert!(is_pci_function(&Path::new("/sys/devices/pci0000:00").join(name)), "{name}");
        }
        for name in
            ["virtio2", "vmbus_0", "0000:00:1f", "000:00:1f.0", "0000:00:1g.0", "pci0000:00"]
        {
            assert!(!is_pci_function(&Path::new("/sys/devices/pci0000:00").join(name)), "{name}");
        }
        assert!(!is_pci_function(Path::new("/")));
    }

    #[test]
    fn other_hardware_has_its_place_from_the_function_around_it() {
        for (hardware, place) in [
            ("/sys/devices/pci0000:00/0000:00:03.0/virtio2", "./pci0000:00/0000:00:03.0"),
            (
                "/sys/devices/pci0000:00/0000:00:02.0/0000:03:00.0/virtio0",
                "./pci0000:00/0000:00:02.0/0000:03:00.0",
            ),
            ("/sys/devices/vif-0", "."),
        ] {
            let found = place_of(Path::new(hardware)).join("x");
            assert_eq!(found.as_os_str(), Path::new(place).join("x").as_os_str());
        }
    }

    #[test]
    fn each_device_has_a_bus_of_its_own() {
        assert_eq!(folder_of(0), Path::new("pciffff:00/ffff:00:00.0"));
        assert_eq!(folder_of(257), Path::new("pcifffe:01/fffe:01:00.0"));
        let folders: BTreeSet<_> = (0..1000).map(folder_of).collect();
        assert_eq!(folders.len(), 1000);
        assert!(folders.iter().all(|folder| is_pci_function(folder)));
        assert!(is_pci_function(&folder_of(usize::MAX)));
    }
}
