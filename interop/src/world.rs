//! Where the matrix takes place: a host of ours and a guest with rxe, on one tap.

use std::path::{Path, PathBuf};
use std::time::Duration;

use roce_guest::{Architecture, Guest, GuestConfig, Image, Kernel};
use roce_netns::{Host, Link, VirtualNetwork};

use super::testbed::{Testbed, link_mtu};
use super::{Fault, rdma_cm_peer, rxe_agent};

/// The interface on our side.
pub(crate) const INTERFACE: &str = "tap0";
/// Our IPv4 address.
pub(crate) const OUR_ADDRESS: &str = "10.9.0.1";
/// Our IPv6 address.
pub(crate) const OUR_ADDRESS_V6: &str = "fd00:9::1";
/// The guest's IPv6 address.
pub(crate) const GUEST_ADDRESS_V6: &str = "fd00:9::2";
/// The guest's IPv4 address.
pub(crate) const GUEST_ADDRESS: &str = "10.9.0.2";

/// A host of ours and a guest, joined by a tap.
#[derive(Debug)]
pub struct World {
    /// Our side. Work that opens the device runs inside ([`Host::run`]).
    pub host: Host,
    /// The guest.
    pub guest: Guest,
}

impl World {
    /// What a guest boots, built below `target` or taken from there. It needs this machine's own
    /// network and user, so it comes before any namespace is entered. Its kernel is that of
    /// `ROCE_GUEST_KERNEL`: see [`Kernel`].
    ///
    /// # Errors
    /// When it cannot be built.
    pub fn image(target: &Path) -> Result<Image, Fault> {
        Self::image_with(target, Architecture::X86_64, &Kernel::from_environment())
    }

    /// As [`image`](Self::image), with this architecture and kernel.
    ///
    /// # Errors
    /// When it cannot be built.
    pub fn image_with(
        target: &Path,
        architecture: Architecture,
        kernel: &Kernel,
    ) -> Result<Image, Fault> {
        let directory = target.join(kernel.directory(architecture));
        Ok(Image::prepare_with(&directory, architecture, kernel)?)
    }

    /// Boots a guest.
    ///
    /// # Errors
    /// When there is no right to make namespaces and taps, or the guest does not come up.
    pub fn boot(image: &Image) -> Result<Self, Fault> {
        let network = VirtualNetwork::new().map_err(Fault::ours("make a private network"))?;
        let host = network.host("ours").map_err(Fault::ours("make a private network"))?;
        network.tap(&host, INTERFACE, Link { mtu: 1500 }).map_err(Fault::ours("make a tap"))?;
        for address in [format!("{OUR_ADDRESS}/24"), format!("{OUR_ADDRESS_V6}/64")] {
            let address = address.parse().expect("an address with its prefix length");
            host.address(INTERFACE, address).map_err(Fault::ours("set an address"))?;
        }
        // One processor: with two, rxe's requester and completer race when a resend begins while
        // an acknowledgement is taken, and it then sends a message's packets under wrong PSNs.
        let config = GuestConfig {
            processors: 1,
            // Emulated, and beside other load.
            boot_limit: Duration::from_secs(240),
            command_limit: Duration::from_secs(240),
            ..GuestConfig::new(INTERFACE)
        };
        let guest = Guest::boot(image, &config, |command| host.spawn(command))?;
        rxe_agent::install(image, &guest)?;
        rdma_cm_peer::install(image, &guest)?;
        // Packets are meant to get lost, not the guest's questions for our hardware address.
        guest.run_ok(&format!(
            "set-network 1500 {GUEST_ADDRESS}/24 && ping -c 1 -W 5 {OUR_ADDRESS} && \
             mac=$(ip neigh show {OUR_ADDRESS} | sed 's/.*lladdr \\([^ ]*\\).*/\\1/') && \
             ip neigh replace {OUR_ADDRESS} dev eth0 lladdr $mac nud permanent && \
             ip neigh replace {OUR_ADDRESS_V6} dev eth0 lladdr $mac nud permanent"
        ))?;
        let world = Self { host, guest };
        world.set_path_mtu(1024)?;
        Ok(world)
    }
}

impl Testbed for World {
    fn set_path_mtu(&self, path_mtu: usize) -> Result<(), Fault> {
        let mtu = link_mtu(path_mtu);
        self.host.set_mtu(INTERFACE, mtu).map_err(Fault::ours("set the MTU"))?;
        self.guest.set_network(
            mtu,
            &[&format!("{GUEST_ADDRESS}/24"), &format!("{GUEST_ADDRESS_V6}/64")],
        )?;
        Ok(())
    }

    fn set_netem(&self, what: &str) -> Result<(), Fault> {
        Ok(self.guest.set_netem(what)?)
    }
}

/// A program of this workspace, which was built with the one that runs now.
///
/// # Errors
/// When it is not there.
pub(crate) fn program(name: &str) -> Result<PathBuf, Fault> {
    let ourselves = std::env::current_exe().map_err(Fault::ours("find its own program"))?;
    // Programs are in one folder; tests are in `deps` below it.
    let found = ourselves.ancestors().skip(1).take(2).map(|folder| folder.join(name));
    found.into_iter().find(|path| path.is_file()).ok_or_else(|| {
        Fault::Wrong(format!("{name} is not built; run this as `cargo xtask interop` does"))
    })
}
