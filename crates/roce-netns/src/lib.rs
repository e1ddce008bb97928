//! Virtual networks for demonstrations and tests: namespaces, veth pairs, bridges, taps.
//!
//! A [`VirtualNetwork`] creates [`Host`]s. Each is an anonymous network namespace with its own
//! interfaces, addresses and ports. The kernel removes it with the last process or handle that uses
//! it, so a run leaves nothing behind. [`VirtualNetwork::veth`] connects two hosts,
//! [`VirtualNetwork::switch`] any number, and [`VirtualNetwork::tap`] a virtual machine.
//! [`Host::run`] runs code in a host, [`Host::spawn`] a program; [`process`] starts programs that are read,
//! waited for with a limit and ended.
//!
//! If the system allows user namespaces, root is not needed: the program calls
//! [`enter_user_namespace_if_needed`] at the start of `main`.
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
mod link;
mod listening;
mod netlink;
pub mod process;
mod switch;
mod user;
mod virtual_network;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

pub use error::NetnsError;
pub use host::{Host, run_in};
pub use ipnet::IpNet;
pub use link::Link;
pub use listening::{has_abstract_socket, is_listening};
pub use switch::{Switch, port_name};
pub use user::{enter_user_namespace_if_needed, is_in_user_namespace};
pub use virtual_network::VirtualNetwork;
