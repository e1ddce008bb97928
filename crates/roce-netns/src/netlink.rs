//! Changes to interfaces by netlink.
//!
//! Every function acts in the network namespace of the calling thread.

use std::fs::File;
use std::future::Future;
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::AsRawFd;

use ipnet::IpNet;
use nix::net::if_::if_nametoindex;
use rtnetlink::packet_route::address::{AddressAttribute, AddressFlags};
use rtnetlink::packet_route::link::{InfoData, InfoVeth};
use rtnetlink::packet_route::route::RouteScope;
use rtnetlink::{
    Handle, LinkBridge, LinkMessageBuilder, LinkUnspec, LinkVeth, RouteMessageBuilder,
};

/// Creates a veth pair between this namespace (`near`) and another one. The far end is still down:
/// the kernel sets no end up before both exist. The near end gets a number that is not yet one of this namespace, or
/// the next free one.
pub(crate) fn add_veth(
    (near, number): (&str, Option<u32>),
    far: &str,
    far_namespace: &File,
    mtu: u32,
) -> io::Result<()> {
    let there = far_namespace.as_raw_fd();
    let peer = LinkUnspec::new_with_name(far).setns_by_fd(there).mtu(mtu).build();
    let link = LinkMessageBuilder::<LinkVeth>::new(near, far)
        .set_info_data(InfoData::Veth(InfoVeth::Peer(peer)))
        .mtu(mtu)
        .up()
        .index(number.unwrap_or(0))
        .build();
    ask(async |handle| handle.link().add(link).execute().await)
}

/// Creates a bridge and sets it up.
pub(crate) fn add_bridge(name: &str, mtu: u32) -> io::Result<()> {
    let link = LinkBridge::new(name).mtu(mtu).up().build();
    ask(async |handle| handle.link().add(link).execute().await)
}

/// Adds `port` to `bridge`.
pub(crate) fn enslave(port: &str, bridge: &str) -> io::Result<()> {
    let bridge = if_nametoindex(bridge)?;
    change(LinkUnspec::new_with_index(if_nametoindex(port)?).controller(bridge))
}

pub(crate) fn set_up(ifname: &str, up: bool) -> io::Result<()> {
    let link = LinkUnspec::new_with_index(if_nametoindex(ifname)?);
    change(if up { link.up() } else { link.down() })
}

pub(crate) fn set_mtu(ifname: &str, mtu: u32) -> io::Result<()> {
    change(LinkUnspec::new_with_index(if_nametoindex(ifname)?).mtu(mtu))
}

/// Makes an interface the way to all IPv4 addresses that no other route has, without a router.
pub(crate) fn add_default_route(ifname: &str) -> io::Result<()> {
    let index = if_nametoindex(ifname)?;
    let builder = RouteMessageBuilder::<Ipv4Addr>::new();
    let route = builder.output_interface(index).scope(RouteScope::Link).build();
    ask(async |handle| handle.route().add(route).execute().await)
}

pub(crate) fn add_address(ifname: &str, address: IpNet) -> io::Result<()> {
    let index = if_nametoindex(ifname)?;
    ask(async |handle| {
        let mut request = handle.address().add(index, address.addr(), address.prefix_len());
        if matches!(address, IpNet::V6(_)) {
            let flags = AddressAttribute::Flags(AddressFlags::Nodad);
            request.message_mut().attributes.push(flags);
        }
        request.execute().await
    })
}

fn change(link: LinkMessageBuilder<LinkUnspec>) -> io::Result<()> {
    ask(async |handle| handle.link().change(link.build()).execute().await)
}

/// Sends a request on a new netlink socket and waits for the reply.
fn ask<F, A>(request: F) -> io::Result<()>
where
    F: FnOnce(Handle) -> A,
    A: Future<Output = Result<(), rtnetlink::Error>>,
{
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    runtime.block_on(async {
        let (connection, handle, _) = rtnetlink::new_connection()?;
        let connection = tokio::spawn(connection);
        let answer = request(handle).await;
        connection.abort();
        answer.map_err(|error| match error {
            rtnetlink::Error::NetlinkError(refusal) => refusal.to_io(),
            other => io::Error::other(other),
        })
    })
}
