//! The files of a device.

use std::path::{Path, PathBuf};

use roce_io::InterfaceInfo;
use roce_verbs::{GID_TABLE_LEN, GidEntry, NamedDevice, PortState};

use crate::counters::CounterTotals;
use crate::function;
use crate::tree::{Node, Tree};

impl Tree {
    /// Creates the files of devices. `hardware` returns the folder of an interface's hardware.
    pub fn new(
        devices: &[NamedDevice],
        hardware: impl Fn(&InterfaceInfo) -> Option<PathBuf>,
    ) -> Self {
        let mut tree = Self::default();
        add_common(&mut tree);
        for (position, device) in devices.iter().enumerate() {
            add(&mut tree, position, device, hardware(&device.info.interface));
        }
        tree
    }
}

/// Adds the files that do not depend on devices.
fn add_common(tree: &mut Tree) {
    tree.line("sys/class/infiniband_verbs/abi_version", 6);
    // libibumad (ibstat) reads nothing before it has seen this file.
    tree.line("sys/class/infiniband_mad/abi_version", 5);
    let rdma_cm = Path::new("sys/class/misc/rdma_cm");
    tree.line(rdma_cm.join("abi_version"), 4);
    tree.line(rdma_cm.join("dev"), NULL_NUMBERS);
    // The preloaded library opens the device for those that ask for this path. Where it is missing,
    // librdmacm refuses a file that is no device.
    tree.insert("dev/infiniband/rdma_cm", Node::File(String::new()));
}

/// The numbers of /dev/null, as which device files appear.
const NULL_NUMBERS: &str = "1:3";

/// Adds the files of the device at a position in the list. `hardware` is the folder of the interface's hardware.
fn add(tree: &mut Tree, position: usize, device: &NamedDevice, hardware: Option<PathBuf>) {
    let folder = Path::new("sys/class/infiniband").join(&device.name);
    let guid = groups(&device.node_guid());
    for (name, text) in [
        ("node_type", "1: CA"),
        ("node_guid", &guid),
        ("sys_image_guid", &guid),
        ("node_desc", "roce"),
        ("fw_ver", env!("CARGO_PKG_VERSION")),
        ("hw_rev", "0x0"),
        ("hca_type", "roce"),
        ("board_id", "roce"),
    ] {
        tree.line(folder.join(name), text);
    }
    function::add(tree, &folder, position, device, hardware);
    let interface = Path::new("sys/class/net").join(&device.info.interface.name);
    let of_interface = interface.join("device/infiniband").join(&device.name);
    let from_interface = Path::new("../../../../infiniband").join(&device.name);
    tree.insert(of_interface, Node::Link(from_interface));
    add_port(tree, &folder.join("ports/1"), device);
    CounterTotals::add_zeros(tree, &device.name);

    let uverbs = Path::new("sys/class/infiniband_verbs").join(&device.dev_name);
    tree.line(uverbs.join("ibdev"), &device.name);
    tree.line(uverbs.join("abi_version"), 1);
    tree.line(uverbs.join("dev"), NULL_NUMBERS);
    let device_folder = Path::new("../../infiniband").join(&device.name).join("device");
    tree.insert(uverbs.join("device"), Node::Link(device_folder));
    tree.insert(Path::new("dev/infiniband").join(&device.dev_name), Node::Device);
}

fn add_port(tree: &mut Tree, folder: &Path, device: &NamedDevice) {
    let info = &device.info;
    let (state, physical) = match info.port.state {
        PortState::Active => ("4: ACTIVE", "5: LinkUp"),
        PortState::Down => ("1: DOWN", "3: Disabled"),
    };
    let rate = info.rate().to_string();
    for (name, text) in [
        ("state", state),
        ("phys_state", physical),
        ("link_layer", "Ethernet"),
        ("rate", &rate),
        ("lid", "0x0"),
        ("lid_mask_count", "0"),
        ("sm_lid", "0x0"),
        ("sm_sl", "0"),
        ("cap_mask", "0x00010000"),
        ("pkeys/0", "0xffff"),
    ] {
        tree.line(folder.join(name), text);
    }
    let (gids, attributes) = (folder.join("gids"), folder.join("gid_attrs"));
    for GidEntry { index, gid, kind, .. } in &info.gids {
        let index = index.to_string();
        tree.line(gids.join(&index), groups(&gid.0));
        tree.line(attributes.join("types").join(&index), kind);
        tree.line(attributes.join("ndevs").join(&index), &info.interface.name);
    }
    // Programs read as many entries as the table has. An empty one has zeros, and no attributes.
    let is_used = |index: &usize| info.gids.iter().any(|entry| usize::from(entry.index) == *index);
    for index in (0..GID_TABLE_LEN).filter(|index| !is_used(index)) {
        let index = index.to_string();
        tree.line(gids.join(&index), groups(&[0; 16]));
        for name in ["types", "ndevs"] {
            tree.insert(attributes.join(name).join(&index), Node::Link(INVALID.into()));
        }
    }
}

/// A file that can be opened, and whose reading is EINVAL: the speed of an interface that has none. So the kernel
/// has it for the attributes of an empty entry in the table of GIDs.
const INVALID: &str = "/sys/class/net/lo/speed";

/// Returns bytes as the kernel writes GUIDs and GIDs: groups of four hexadecimal digits.
fn groups(bytes: &[u8]) -> String {
    let group = |pair: &[u8]| pair.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    bytes.chunks(2).map(group).collect::<Vec<_>>().join(":")
}
