//! Private networks for demonstrations and tests: namespaces, veth pairs, bridges, taps.
//!
//! A [`VirtualNetwork`] makes [`Host`]s. Each is a network namespace without a name: it has its own
//! interfaces, addresses and ports, and it vanishes with the last process or handle that
//! uses it, so that nothing is left behind however a run ends. Hosts are joined by
//! [`VirtualNetwork::veth`] (a cable), [`VirtualNetwork::switch`] (a bridge) and [`VirtualNetwork::tap`] (a cable to a
//! virtual machine). Code runs inside a host with [`Host::run`], programs with
//! [`Host::spawn`].
//!
//! Root is not needed where the system allows user namespaces: a program that calls
//! [`enter_user_namespace_if_needed`] first thing in `main` may do all of this as an
//! ordinary user.
//!
//! ```no_run
//! use std::net::UdpSocket;
//! use roce_netns::{VirtualNetwork, Link};
//!
//! roce_netns::enter_user_namespace_if_needed()?; // before any thread exists
//! let network = VirtualNetwork::new()?;
//! let (left, right) = (network.host("left")?, network.host("right")?);
//! network.veth((&left, "eth0"), (&right, "eth0"), Link { mtu: 4200 })?;
//! left.address("eth0", "10.0.0.1/24".parse()?)?;
//! right.address("eth0", "10.0.0.2/24".parse()?)?;
//!
//! let socket = right.run(|| UdpSocket::bind("10.0.0.2:7"))?;
//! left.run(|| UdpSocket::bind("10.0.0.1:0")?.send_to(b"hello", "10.0.0.2:7"))?;
//! assert_eq!(socket.recv(&mut [0; 16])?, 5);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]

mod error;
mod host;
mod netlink;
mod switch;
mod user;
mod virtual_network;

pub use error::NetnsError;
pub use host::Host;
pub use ipnet::IpNet;
pub use switch::Switch;
pub use user::enter_user_namespace_if_needed;
pub use virtual_network::{Link, VirtualNetwork};
