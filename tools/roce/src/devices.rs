//! `roce devices`: the interfaces that can carry RoCE.

use clap::Args;
use roce_verbs::{CongestionConfig, Device, DeviceInfo, PathMtu, PortState};
use serde_json::{Value, json};

use crate::backend;
use crate::congestion;
use crate::error::Result;
use crate::output::print;

/// List the interfaces that can carry RoCE, and their addresses
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct Options {
    /// Show all rows of the GID tables, also unusable ones
    #[arg(short, long)]
    verbose: bool,
    /// Show the parameters of congestion control instead, with those of SPEC set, such as
    /// dcqcn,rp_ai_rate=10; without SPEC those of ROCE_CC
    #[arg(long, value_name = "SPEC", num_args = 0..=1, conflicts_with = "verbose")]
    cc: Option<Option<CongestionConfig>>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub(crate) fn run(options: &Options) -> Result {
    if let Some(config) = options.cc {
        let config = match config {
            Some(config) => config,
            None => congestion::of_environment()?,
        };
        return print(&match options.json {
            true => format!("{}\n", serde_json::to_string_pretty(&congestion::to_json(&config))?),
            false => congestion::table(&config),
        });
    }
    let devices: Vec<Shown> = Device::list()?.iter().map(Shown::from).collect();
    if options.json {
        let (backend, why) = backend::of_devices()?;
        let list = devices.iter().map(|device| {
            let mut shown = device.to_json();
            shown["backend"] = json!({ "name": backend.name(), "why": why });
            shown
        });
        let list: Vec<Value> = list.collect();
        print(&format!("{}\n", serde_json::to_string_pretty(&list)?))?;
    } else if devices.is_empty() {
        print("No interface can carry RoCE; it needs an Ethernet interface:\n")?;
        print("  ip link add veth0 type veth peer name veth1   creates a pair for tests,\n")?;
        print("  roce pingpong --local                         needs none.\n")?;
    } else {
        print(&table(&devices, options.verbose))?;
        let (backend, why) = backend::of_devices()?;
        print(&format!("Packets travel by {backend}: {why}.\n"))?;
    }
    Ok(())
}

/// An interface as shown.
#[derive(Clone, Debug)]
struct Shown {
    name: String,
    state: &'static str,
    mac: String,
    netdev_mtu: u32,
    path_mtu: Option<usize>,
    kind: String,
    gids: Vec<Row>,
}

/// A row of the GID table.
#[derive(Clone, Debug)]
struct Row {
    index: u8,
    gid: String,
    kind: String,
    usable: bool,
}

impl From<&DeviceInfo> for Shown {
    fn from(device: &DeviceInfo) -> Self {
        let row = |entry: &roce_verbs::GidEntry| Row {
            index: entry.index,
            gid: std::net::Ipv6Addr::from(entry.gid.0).to_string(),
            kind: entry.kind.to_string(),
            usable: entry.usable,
        };
        let mac = device.interface.mac.unwrap_or_default();
        Self {
            name: device.interface.name.clone(),
            state: match device.port.state {
                PortState::Active => "active",
                PortState::Down => "down",
            },
            mac: mac.map(|byte| format!("{byte:02x}")).join(":"),
            netdev_mtu: device.port.netdev_mtu,
            path_mtu: device.port.active_mtu.map(PathMtu::bytes),
            kind: kind_in_words(&device.interface.kind),
            gids: device.gids.iter().map(row).collect(),
        }
    }
}

impl Shown {
    fn to_json(&self) -> Value {
        let row = |row: &Row| json!({ "index": row.index, "gid": row.gid, "type": row.kind, "usable": row.usable });
        json!({
            "interface": self.name,
            "state": self.state,
            "kind": self.kind,
            "mac": self.mac,
            "mtu": self.netdev_mtu,
            "path_mtu": self.path_mtu,
            "gids": self.gids.iter().map(row).collect::<Vec<_>>(),
        })
    }

    /// Returns why the interface is unusable, if it is, and what to do.
    fn obstacle(&self) -> Option<String> {
        let name = &self.name;
        if self.state == "down" {
            Some(format!("bring it up: ip link set {name} up (and see that it has a carrier)"))
        } else if self.path_mtu.is_none() {
            Some(format!("MTU too small for RoCE: ip link set {name} mtu 1500"))
        } else if !self.gids.iter().any(|row| row.usable) {
            Some(format!("no address: ip address add 10.0.0.1/24 dev {name}"))
        } else {
            None
        }
    }
}

fn kind_in_words(kind: &roce_io::InterfaceKind) -> String {
    use roce_io::InterfaceKind as Kind;
    match kind {
        Kind::Loopback => "loopback",
        Kind::Veth => "veth",
        Kind::Tap => "tap",
        Kind::Bridge => "bridge",
        Kind::Vlan => "vlan",
        Kind::Driver(name) => name,
        Kind::Unknown => "-",
    }
    .to_owned()
}

fn table(devices: &[Shown], verbose: bool) -> String {
    let width = devices.iter().map(|device| device.name.len()).max().unwrap_or(0).max(9);
    let mut text = format!(
        "{:width$}  {:6}  {:5}  {:8}  {:17}  {}\n",
        "INTERFACE", "STATE", "MTU", "PATH MTU", "MAC", "KIND"
    );
    for device in devices {
        let path_mtu = device.path_mtu.map_or("-".to_owned(), |bytes| bytes.to_string());
        text += &format!(
            "{:width$}  {:6}  {:<5}  {path_mtu:<8}  {}  {}\n",
            device.name, device.state, device.netdev_mtu, device.mac, device.kind
        );
        for row in device.gids.iter().filter(|row| verbose || row.usable) {
            let note = if row.usable { "" } else { "  not usable: the kernel has no such address" };
            text += &format!("    GID {:<3}  {:8}  {}{note}\n", row.index, row.kind, row.gid);
        }
        if let Some(obstacle) = device.obstacle() {
            text += &format!("    {obstacle}\n");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn devices() -> [Shown; 3] {
        let row = |index, gid: &str, usable| Row {
            index,
            gid: gid.to_owned(),
            kind: "RoCE v2".to_owned(),
            usable,
        };
        let good = Shown {
            name: "eth0".to_owned(),
            state: "active",
            mac: "52:54:00:12:34:56".to_owned(),
            netdev_mtu: 4200,
            path_mtu: Some(4096),
            kind: "virtio_net".to_owned(),
            gids: vec![
                row(0, "fe80::5054:ff:fe12:3456", false),
                row(1, "::ffff:10.0.0.1", true),
                row(2, "fd00::1", true),
            ],
        };
        let down = Shown { name: "a-long-name0".to_owned(), state: "down", ..good.clone() };
        let small = Shown {
            name: "tap0".to_owned(),
            netdev_mtu: 300,
            path_mtu: None,
            gids: Vec::new(),
            ..good.clone()
        };
        [good, down, small]
    }

    #[test]
    fn a_device_that_cannot_be_used_says_what_to_do() {
        insta::assert_snapshot!("devices", table(&devices(), false));
    }

    #[test]
    fn verbose_shows_the_rows_that_cannot_be_used_too() {
        insta::assert_snapshot!("devices_verbose", table(&devices(), true));
    }

    #[test]
    fn json_holds_what_the_table_holds() {
        let list: Vec<Value> = devices().iter().map(Shown::to_json).collect();
        insta::assert_snapshot!("devices_json", serde_json::to_string_pretty(&list).unwrap());
    }
}
