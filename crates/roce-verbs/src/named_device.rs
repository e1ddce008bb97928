//! Devices under the names that verbs programs see.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use roce_wire::Gid;

use crate::device::{Device, DeviceInfo};
use crate::error::Error;
use crate::port::PortState;

/// An interface as a verbs program lists it: a device with a name, of which `ibv_get_device_name`,
/// `/sys/class/infiniband` and `/dev/infiniband` are made.
///
/// ```
/// use roce_verbs::{DeviceNames, NamedDevice};
///
/// for device in NamedDevice::list(&DeviceNames::default())? {
///     println!("{} is {}", device.name, device.info.interface.name);
/// }
/// # Ok::<(), roce_verbs::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct NamedDevice {
    /// Name of the device, such as `roce0`.
    pub name: String,
    /// Name of its file in `/dev/infiniband`: `uverbs` and the device's place in the list.
    pub dev_name: String,
    /// The interface.
    pub info: DeviceInfo,
}

/// Entries of the table of GIDs that a verbs program sees, most of them empty: as mlx5 has it.
pub const GID_TABLE_LEN: usize = 255;

impl NamedDevice {
    /// Lists the devices of this thread's network namespace. The order is that of `names`, and
    /// without names that of [`Readiness`], then that of the kernel: programs that choose no device
    /// take the first. An interface that `names` has and the system has not is left out; the places
    /// of the others stay.
    ///
    /// # Errors
    /// As [`Device::list`].
    pub fn list(names: &DeviceNames) -> Result<Vec<Self>, Error> {
        Ok(Self::name_all(names, Device::list()?))
    }

    fn name_all(names: &DeviceNames, mut found: Vec<DeviceInfo>) -> Vec<Self> {
        let named = |(number, (name, info)): (usize, (String, DeviceInfo))| Self {
            name,
            dev_name: format!("uverbs{number}"),
            info,
        };
        match &names.0 {
            Names::Counted(first) => {
                found.sort_by_key(DeviceInfo::readiness);
                let counted = |(number, info)| (number, (first.and(number), info));
                found.into_iter().enumerate().map(counted).map(named).collect()
            }
            Names::Chosen(pairs) => {
                let chosen = pairs.iter().enumerate().filter_map(|(number, (name, interface))| {
                    let info = found.iter().find(|info| info.interface.name == *interface)?;
                    Some((number, (name.clone(), info.clone())))
                });
                chosen.map(named).collect()
            }
        }
    }

    /// Returns the node GUID, in network byte order: the EUI-64 of the interface's MAC address, as
    /// rdma_rxe makes it.
    pub fn node_guid(&self) -> [u8; 8] {
        let Gid(gid) = Gid::link_local_from(self.info.mac());
        let [.., a, b, c, d, e, f, g, h] = gid;
        [a, b, c, d, e, f, g, h]
    }
}

/// How well an interface can carry RoCE now, best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Readiness {
    /// It is up, has a carrier, an MTU that is large enough, and an IPv4 address.
    Ipv4,
    /// The same with a routed IPv6 address and no IPv4 address.
    Ipv6,
    /// The same with a link-local address only.
    LinkLocal,
    /// It has no carrier, no address, or too small an MTU.
    NotReady,
}

impl DeviceInfo {
    /// Returns width and speed of the port.
    pub fn rate(&self) -> PortRate {
        PortRate::of(self.interface.speed)
    }

    /// Returns how well the interface can carry RoCE now.
    pub fn readiness(&self) -> Readiness {
        let usable = || self.gids.iter().filter(|row| row.usable);
        let works = self.port.state == PortState::Active && self.port.active_mtu.is_some();
        if !works || usable().count() == 0 {
            Readiness::NotReady
        } else if usable().any(|row| row.gid.is_ipv4()) {
            Readiness::Ipv4
        } else if usable().any(|row| row.index != 0) {
            Readiness::Ipv6
        } else {
            Readiness::LinkLocal
        }
    }
}

/// Width and speed of a port, in the terms of InfiniBand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortRate {
    /// Number of lanes: 1 or 4.
    pub lanes: u8,
    /// Speed of a lane.
    pub speed: LaneSpeed,
}

/// Speed of a lane; the value is that of `active_speed` in `ibv_port_attr`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LaneSpeed {
    /// 2.5 Gbit/s.
    Sdr = 1,
    /// 5 Gbit/s.
    Ddr = 2,
    /// 10 Gbit/s.
    Fdr10 = 8,
    /// 25 Gbit/s.
    Edr = 32,
}

impl PortRate {
    /// Returns the rate that rdma_rxe gives an interface of this speed in Mbit/s: the next one of at
    /// least that speed, and the lowest for an unknown speed.
    pub fn of(netdev_speed: Option<u32>) -> Self {
        let (lanes, speed) = match netdev_speed.unwrap_or(0) {
            0..=1_000 => (1, LaneSpeed::Sdr),
            1_001..=10_000 => (1, LaneSpeed::Fdr10),
            10_001..=20_000 => (4, LaneSpeed::Ddr),
            20_001..=25_000 => (1, LaneSpeed::Edr),
            25_001..=40_000 => (4, LaneSpeed::Fdr10),
            _ => (4, LaneSpeed::Edr),
        };
        Self { lanes, speed }
    }

    /// Returns the rate of all lanes in units of 100 Mbit/s, as `ibv_query_port_speed` gives it.
    pub fn hundred_megabits(self) -> u32 {
        let lane = match self.speed {
            LaneSpeed::Sdr => 25,
            LaneSpeed::Ddr => 50,
            LaneSpeed::Fdr10 => 100,
            LaneSpeed::Edr => 250,
        };
        lane * u32::from(self.lanes)
    }

    /// Returns the value of `active_width` in `ibv_port_attr`: 1 for one lane, 2 for four.
    pub fn width_code(self) -> u8 {
        if self.lanes == 4 { 2 } else { 1 }
    }
}

impl fmt::Display for PortRate {
    /// Writes the rate as the kernel does, such as `10 Gb/sec (1X FDR10)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self.speed {
            LaneSpeed::Sdr => "SDR",
            LaneSpeed::Ddr => "DDR",
            LaneSpeed::Fdr10 => "FDR10",
            LaneSpeed::Edr => "EDR",
        };
        let total = self.hundred_megabits();
        let half = if total.is_multiple_of(10) { "" } else { ".5" };
        write!(f, "{}{half} Gb/sec ({}X {name})", total / 10, self.lanes)
    }
}

/// Names of devices and their interfaces, as text `NAME=INTERFACE`, separated by commas: the value
/// of [`ROCE_DEVICES`](crate::run::environment::DEVICES). A comma or a backslash in the name of an interface has a
/// backslash in front.
///
/// Without names, every interface is a device, named `roce0`, `roce1` and so on. With `NAME=*` every
/// interface is a device too, and the names count on from `NAME`: `rxe0=*` gives `rxe0`, `rxe1`. Programs
/// that look for a kind of device by its name so find one.
///
/// ```
/// use roce_verbs::DeviceNames;
///
/// let names: DeviceNames = "rxe0=eth1,rxe1=eth0".parse()?;
/// assert_eq!(names.interfaces().collect::<Vec<_>>(), ["eth1", "eth0"]);
/// assert!("mlx5_0=*".parse::<DeviceNames>()?.is_every_interface());
/// # Ok::<(), roce_verbs::DeviceNamesError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceNames(Names);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Names {
    /// Every interface, with names that count on from this one.
    Counted(FirstName),
    /// These names and their interfaces.
    Chosen(Vec<(String, String)>),
}

impl Default for Names {
    fn default() -> Self {
        Self::Counted(FirstName { stem: "roce".to_owned(), number: 0 })
    }
}

/// A name that ends in a number.
#[derive(Clone, Debug, PartialEq, Eq)]
struct FirstName {
    stem: String,
    number: usize,
}

impl FirstName {
    /// Returns the name; its number is 0 if it has none.
    fn of(name: &str) -> Self {
        let stem = name.trim_end_matches(|letter: char| letter.is_ascii_digit());
        match name[stem.len()..].parse::<u32>() {
            Ok(number) => Self { stem: stem.to_owned(), number: number as usize },
            // There are no digits, or so many that they are no count.
            Err(_) => Self { stem: name.to_owned(), number: 0 },
        }
    }

    /// Returns the name that is so many behind this one.
    fn and(&self, more: usize) -> String {
        format!("{}{}", self.stem, self.number + more)
    }
}

/// In place of an interface: every interface.
const EVERY: &str = "*";

/// Text that names no devices.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DeviceNamesError {
    /// A part is not of the form `NAME=INTERFACE`.
    #[error(
        "{0:?} does not name a device; write NAME=INTERFACE, with a name of at most 63 letters, \
         digits, '-', '_' and '.'"
    )]
    Malformed(String),
    /// A name or an interface occurs twice.
    #[error("{0} occurs twice; a device has one name and one interface")]
    Repeated(String),
    /// `NAME=*` stands beside other names.
    #[error("NAME=* names the devices of all interfaces; leave it out, or the others")]
    EveryAndOthers,
}

impl DeviceNames {
    /// Returns true if every interface is a device.
    pub fn is_every_interface(&self) -> bool {
        matches!(self.0, Names::Counted(_))
    }

    /// Returns the names of the interfaces, in order; none if every interface is a device.
    pub fn interfaces(&self) -> impl Iterator<Item = &str> {
        let pairs = match &self.0 {
            Names::Counted(_) => &[][..],
            Names::Chosen(pairs) => pairs,
        };
        pairs.iter().map(|(_, interface)| interface.as_str())
    }
}

impl FromIterator<NamedDevice> for DeviceNames {
    /// Returns the names that a list of devices has.
    fn from_iter<T: IntoIterator<Item = NamedDevice>>(devices: T) -> Self {
        let pair = |device: NamedDevice| (device.name, device.info.interface.name);
        Self(Names::Chosen(devices.into_iter().map(pair).collect()))
    }
}

impl fmt::Display for DeviceNames {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pairs = match &self.0 {
            Names::Counted(first) => return write!(f, "{}={EVERY}", first.and(0)),
            Names::Chosen(pairs) => pairs,
        };
        for (number, (name, interface)) in pairs.iter().enumerate() {
            let comma = if number == 0 { "" } else { "," };
            write!(f, "{comma}{name}={}", escaped(interface))?;
        }
        Ok(())
    }
}

impl FromStr for DeviceNames {
    type Err = DeviceNamesError;

    fn from_str(text: &str) -> Result<Self, DeviceNamesError> {
        let mut seen = [BTreeSet::new(), BTreeSet::new()];
        let mut pairs = Vec::new();
        let parts = parts(text);
        for part in parts.iter().map(|part| part.trim()).filter(|part| !part.is_empty()) {
            let pair = part.split_once('=').filter(|(name, interface)| {
                is_device_name(name) && !interface.is_empty() && !interface.contains('/')
            });
            let (name, interface) =
                pair.ok_or_else(|| DeviceNamesError::Malformed(part.to_owned()))?;
            for (seen, word) in seen.iter_mut().zip([name, interface]) {
                if !seen.insert(word) {
                    return Err(DeviceNamesError::Repeated(word.to_owned()));
                }
            }
            pairs.push((name.to_owned(), interface.to_owned()));
        }
        match pairs.as_slice() {
            [] => Ok(Self::default()),
            [(name, every)] if every == EVERY && name.len() > MAX_COUNTED_LEN => {
                Err(DeviceNamesError::Malformed(text.to_owned()))
            }
            [(name, every)] if every == EVERY => Ok(Self(Names::Counted(FirstName::of(name)))),
            pairs if pairs.iter().any(|(_, interface)| interface == EVERY) => {
                Err(DeviceNamesError::EveryAndOthers)
            }
            _ => Ok(Self(Names::Chosen(pairs))),
        }
    }
}

/// Returns the name of an interface as it stands in the text of [`DeviceNames`]: the kernel allows commas in it.
fn escaped(interface: &str) -> String {
    interface.replace('\\', r"\\").replace(',', r"\,")
}

/// Returns what commas separate. A backslash takes the character behind it as it is.
fn parts(text: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        match (letter, parts.last_mut()) {
            (',', _) => parts.push(String::new()),
            ('\\', Some(part)) => part.extend(letters.next()),
            (_, Some(part)) => part.push(letter),
            (_, None) => {}
        }
    }
    parts
}

/// Returns true if a name can be a file's name, and fits `ibv_device`.
fn is_device_name(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    (1..=MAX_NAME_LEN).contains(&name.len()) && name.bytes().all(plain) && !name.starts_with('.')
}

/// Longest name in bytes: `ibv_device` has 64 with the zero at the end.
const MAX_NAME_LEN: usize = 63;

/// Longest name of `NAME=*`, behind which a number has space.
const MAX_COUNTED_LEN: usize = MAX_NAME_LEN - 10;

#[cfg(test)]
mod tests {
    use roce_io::{InterfaceAddress, InterfaceFlags, InterfaceInfo, InterfaceKind};

    use super::*;

    fn interface(name: &str, running: bool, addresses: &[&str]) -> DeviceInfo {
        let address = |text: &&str| InterfaceAddress {
            address: text.parse().expect("an address"),
            prefix_len: 24,
        };
        DeviceInfo::of(InterfaceInfo {
            name: name.to_owned(),
            index: 2,
            mac: Some([0x52, 0x54, 0, 0x12, 0x34, 0x56]),
            mtu: 1500,
            addresses: addresses.iter().map(address).collect(),
            flags: InterfaceFlags { up: true, running, ethernet: true, ..Default::default() },
            kind: InterfaceKind::Veth,
            speed: Some(10_000),
        })
    }

    fn four() -> Vec<DeviceInfo> {
        vec![
            interface("down0", false, &["10.0.0.1"]),
            interface("local0", true, &["fe80::5054:ff:fe12:3456"]),
            interface("six0", true, &["fd00::1"]),
            interface("four0", true, &["fd00::1", "10.0.0.1"]),
        ]
    }

    fn listed(names: &str) -> Vec<(String, String, String)> {
        let names = names.parse().expect("names");
        let devices = NamedDevice::name_all(&names, four()).into_iter();
        devices.map(|device| (device.name, device.dev_name, device.info.interface.name)).collect()
    }

    fn row(name: &str, dev_name: &str, interface: &str) -> (String, String, String) {
        (name.to_owned(), dev_name.to_owned(), interface.to_owned())
    }

    #[test]
    fn an_interface_may_have_commas_and_equals_signs_in_its_name() {
        let device = |name: &str, interface_name: &str| NamedDevice {
            name: name.to_owned(),
            dev_name: "uverbs0".to_owned(),
            info: interface(interface_name, true, &[]),
        };
        let names: DeviceNames =
            [device("roce0", "c,d"), device("roce1", "a=b"), device("roce2", r"e\")]
                .into_iter()
                .collect();
        let text = names.to_string();
        assert_eq!(text, r"roce0=c\,d,roce1=a=b,roce2=e\\");
        assert_eq!(text.parse(), Ok(names));
    }

    #[test]
    fn the_first_device_is_the_one_that_works_best() {
        assert_eq!(
            listed(""),
            [
                row("roce0", "uverbs0", "four0"),
                row("roce1", "uverbs1", "six0"),
                row("roce2", "uverbs2", "local0"),
                row("roce3", "uverbs3", "down0"),
            ]
        );
    }

    #[test]
    fn names_choose_devices_and_their_order() {
        assert_eq!(
            listed("rxe0=six0, mlx5_0=gone0,rxe1=down0"),
            [row("rxe0", "uverbs0", "six0"), row("rxe1", "uverbs2", "down0")]
        );
    }

    #[test]
    fn names_of_every_interface_count_on_from_the_first() {
        let devices = |text: &str| listed(text).into_iter().map(|it| it.0).collect::<Vec<_>>();
        assert_eq!(devices("rxe0=*"), ["rxe0", "rxe1", "rxe2", "rxe3"]);
        assert_eq!(devices("mlx5_7=*"), ["mlx5_7", "mlx5_8", "mlx5_9", "mlx5_10"]);
        assert_eq!(devices("rdma=*")[..2], ["rdma0", "rdma1"]);
        assert_eq!(devices("x99999999999=*")[..2], ["x999999999990", "x999999999991"]);
        assert_eq!(listed("roce0=*"), listed(""));
        assert!(format!("{}=*", "n".repeat(54)).parse::<DeviceNames>().is_err());
        for text in ["a=*,b=eth0", "b=eth0,a=*"] {
            assert_eq!(text.parse::<DeviceNames>(), Err(DeviceNamesError::EveryAndOthers));
        }
    }

    #[test]
    fn names_survive_as_text() {
        let names: DeviceNames =
            NamedDevice::name_all(&DeviceNames::default(), four()).into_iter().collect();
        assert_eq!(names.to_string(), "roce0=four0,roce1=six0,roce2=local0,roce3=down0");
        assert_eq!(names.to_string().parse(), Ok(names));
        let counted: DeviceNames = "rxe5=*".parse().expect("names");
        assert_eq!(counted.to_string().parse(), Ok(counted));
    }

    #[test]
    fn what_names_no_device_is_refused() {
        let long = format!("{}=eth0", "n".repeat(64));
        for text in ["eth0", "=eth0", "a=", "../x=eth0", ".=eth0", "a b=eth0", "a=x/y", &long] {
            let refused = Err(DeviceNamesError::Malformed(text.to_owned()));
            assert_eq!(text.parse::<DeviceNames>(), refused);
        }
        for (text, word) in [("a=x,a=y", "a"), ("a=x,b=x", "x")] {
            let refused = Err(DeviceNamesError::Repeated(word.to_owned()));
            assert_eq!(text.parse::<DeviceNames>(), refused);
        }
    }

    #[test]
    fn a_rate_is_written_as_the_kernel_writes_it() {
        for (speed, text) in [
            (None, "2.5 Gb/sec (1X SDR)"),
            (Some(10_000), "10 Gb/sec (1X FDR10)"),
            (Some(20_000), "20 Gb/sec (4X DDR)"),
            (Some(25_000), "25 Gb/sec (1X EDR)"),
            (Some(40_000), "40 Gb/sec (4X FDR10)"),
            (Some(100_000), "100 Gb/sec (4X EDR)"),
        ] {
            assert_eq!(PortRate::of(speed).to_string(), text);
        }
    }

    #[test]
    fn the_node_guid_is_the_eui_64_of_the_mac_address() {
        let devices = NamedDevice::name_all(&DeviceNames::default(), four());
        assert_eq!(devices[0].node_guid(), [0x50, 0x54, 0, 0xff, 0xfe, 0x12, 0x34, 0x56]);
    }
}
