//! The files of a device.

use std::fs;
use std::path::PathBuf;

use roce_io::{InterfaceFlags, InterfaceInfo, InterfaceKind};
use roce_verbs::{
    DeviceInfo, GID_TABLE_LEN, Gid, GidEntry, GidType, MacAddr, NamedDevice, PathMtu,
    PortAttributes, PortState,
};
use roce_view::{Node, Tree};

const MAC: [u8; 6] = [0x52, 0x54, 0, 0x12, 0x34, 0x56];

fn device(number: usize, state: PortState) -> NamedDevice {
    let row = |index, gid| GidEntry { index, gid, kind: GidType::RoceV2, usable: true };
    let interface = InterfaceInfo {
        name: format!("eth{number}"),
        index: 2,
        mac: Some(MAC),
        mtu: 1500,
        addresses: Vec::new(),
        flags: InterfaceFlags::default(),
        kind: InterfaceKind::Veth,
        speed: Some(10_000),
    };
    let port = PortAttributes {
        state,
        max_mtu: PathMtu::B4096,
        active_mtu: Some(PathMtu::B1024),
        netdev_mtu: 1500,
        max_message_len: 1 << 31,
        gid_table_len: 2,
    };
    let address = Gid::from(std::net::Ipv4Addr::new(10, 0, 0, 1));
    let gids = vec![row(0, Gid::link_local_from(MacAddr(MAC))), row(1, address)];
    NamedDevice {
        name: format!("roce{number}"),
        dev_name: format!("uverbs{number}"),
        info: DeviceInfo { interface, port, gids },
    }
}

#[test]
fn the_files_of_a_device_are_those_of_the_kernel() {
    let tree = Tree::new(&[device(0, PortState::Active)], |_| None);
    insta::assert_snapshot!("virtual", tree);
    let hardware = PathBuf::from("/sys/devices/pci0000:00/0000:00:03.0");
    let tree = Tree::new(&[device(1, PortState::Down)], |_| Some(hardware.clone()));
    let text = tree.to_string();
    let told: Vec<&str> = text.lines().filter(|line| !line.contains("counters/")).collect();
    insta::assert_snapshot!("hardware", told.join("\n"));
}

#[test]
fn the_table_of_gids_has_as_many_files_as_the_device_says() {
    let folder = std::env::temp_dir().join(format!("roce-gids-{}", std::process::id()));
    Tree::new(&[device(0, PortState::Active)], |_| None).write_to(&folder).unwrap();
    let port = folder.join("sys/class/infiniband/roce0/ports/1");
    for name in ["gids", "gid_attrs/types", "gid_attrs/ndevs"] {
        assert_eq!(fs::read_dir(port.join(name)).unwrap().count(), GID_TABLE_LEN, "{name}");
    }
    for index in [2, 254] {
        let gid = fs::read_to_string(port.join(format!("gids/{index}"))).unwrap();
        assert_eq!(gid, format!("{}\n", ["0000"; 8].join(":")));
        let attribute = fs::File::open(port.join(format!("gid_attrs/types/{index}"))).unwrap();
        let error = std::io::read_to_string(attribute).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput);
    }
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_tree_is_written_as_it_is() {
    let folder = std::env::temp_dir().join(format!("roce-tree-{}", std::process::id()));
    let devices = [device(0, PortState::Active), device(1, PortState::Down)];
    let tree = Tree::new(&devices, |_| None);
    tree.write_to(&folder).unwrap();
    for (path, node) in tree.nodes() {
        let written = folder.join(path);
        match node {
            Node::File(text) => assert_eq!(fs::read_to_string(written).unwrap(), *text),
            Node::Link(target) => assert_eq!(fs::read_link(written).unwrap(), *target),
            Node::Device => assert_eq!(fs::read_link(written).unwrap(), PathBuf::from("/dev/null")),
        }
    }
    // Links within the tree lead to folders of the tree.
    for device in
        ["infiniband_verbs/uverbs1/device/infiniband/roce1", "net/eth1/device/infiniband/roce1"]
    {
        let device = fs::canonicalize(folder.join("sys/class").join(device)).unwrap();
        assert!(device.ends_with("sys/class/infiniband/roce1") && device.join("ports/1").is_dir());
    }
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_device_on_other_hardware_has_its_files_in_the_folder_of_a_function() {
    let folder = std::env::temp_dir().join(format!("roce-other-{}", std::process::id()));
    let (bus, function) = (folder.join("pci0000:00"), folder.join("pci0000:00/0000:00:03.0"));
    let hardware = function.join("virtio2");
    fs::create_dir_all(hardware.join("net/eth1")).unwrap();
    for (file, text) in [
        (hardware.join("vendor"), "0x1af4"),
        (function.join("class"), "0x020000"),
        (bus.join("numa_node"), "7"),
    ] {
        fs::write(file, text).unwrap();
    }
    let devices = [device(0, PortState::Active), device(1, PortState::Active)];
    let tree = Tree::new(&devices, |it| (it.name == "eth1").then(|| hardware.clone()));
    let view = folder.join("view");
    tree.write_to(&view).unwrap();
    let class = view.join("sys/class/infiniband");
    let seen = class.join("roce1/device");
    assert_eq!(
        fs::canonicalize(&seen).unwrap(),
        class.join("roce1/pci0000:00/0000:00:03.0/pciffff:01/ffff:01:00.0")
    );
    for (name, text) in [("vendor", "0x1af4"), ("class", "0x020000"), ("numa_node", "-1\n")] {
        assert_eq!(fs::read_to_string(seen.join(name)).unwrap(), text, "{name}");
    }
    assert!(seen.join("net/eth1").is_dir() && seen.join("infiniband/roce1/ports/1").is_dir());
    fs::remove_dir_all(folder).unwrap();
}
