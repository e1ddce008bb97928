//! A guest with `rdma_rxe` for a person: a shell in this terminal, a tap beside it.

use clap::Args;
use roce_guest::{Architecture, GuestConfig, Image, Kernel, interactive_command};
use roce_netns::{Link, VirtualNetwork};

use crate::{Result, host, workspace};

/// What `cargo xtask rxe` takes.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// MTU of the link: 1500 gives path MTU 1024, 4200 gives 4096.
    #[arg(long, default_value_t = 4200)]
    mtu: u32,
    /// Processors of the guest.
    #[arg(long, default_value_t = 2)]
    processors: u32,
}

/// Boots the guest and stays until it is powered off.
///
/// # Errors
/// When the guest cannot be built or booted, or there is no right to make a network for it.
pub(crate) fn run(options: &Options) -> Result<()> {
    let architecture = Architecture::X86_64;
    host::install_guest_tools(architecture)?;
    host::check_tap_access()?;
    // The image first: fetching needs this machine's network and its owner's files.
    println!("preparing the guest ...");
    let kernel = Kernel::from_environment();
    let directory = workspace::target().join(kernel.directory(architecture));
    let image = Image::prepare_with(&directory, architecture, &kernel)?;
    let was_root = host::is_root();
    roce_netns::enter_user_namespace_if_needed()?;
    let network = VirtualNetwork::new()?;
    let host = network.host("host")?;
    network.tap(&host, TAP, Link { mtu: options.mtu })?;
    for address in HOST_ADDRESSES {
        host.address(TAP, address.parse()?)?;
    }
    let config = GuestConfig { processors: options.processors, ..GuestConfig::new(TAP) };
    let qemu = interactive_command(&image, &config, options.mtu, GUEST_ADDRESSES)?;
    let mut qemu = host.spawn(qemu)?;
    let user = if was_root { "" } else { " -U --preserve-credentials" };
    println!(
        "guest   rxe0 on eth0: {}\n\
         here    {TAP}: {}\n\
         A shell beside the guest, from another terminal:\n\
         \u{20}   nsenter -t {}{user} -n\n\
         There, for example: roce pingpong (server), and in the guest: ibv_rc_pingpong -g 1 {}\n",
        GUEST_ADDRESSES.join(" "),
        HOST_ADDRESSES.join(" "),
        qemu.id(),
        address_of(HOST_ADDRESSES[0]),
    );
    let status = qemu.wait()?;
    if status.success() { Ok(()) } else { Err(format!("qemu: {status}").into()) }
}

fn address_of(address: &str) -> &str {
    address.split('/').next().unwrap_or(address)
}

const TAP: &str = "tap0";
const HOST_ADDRESSES: [&str; 2] = ["10.9.0.1/24", "fd00:9::1/64"];
const GUEST_ADDRESSES: &[&str] = &["10.9.0.2/24", "fd00:9::2/64"];
