//! Private networks for demonstrations and tests: namespaces, veth pairs, bridges, taps.
//!
//! A [`Lab`] makes [`Host`]s. Each is a network namespace without a name: it has its own
//! interfaces, addresses and ports, and it vanishes with the last process or handle that
//! uses it, so that nothing is left behind however a run ends. Hosts are joined by
//! [`Lab::veth`] (a cable), [`Lab::switch`] (a bridge) and [`Lab::tap`] (a cable to a
//! virtual machine). Code runs inside a host with [`Host::run`], programs with
//! [`Host::spawn`].
//!
//! Root is not needed where the system allows user namespaces: a program that calls
//! [`enter_user_namespace_if_needed`] first thing in `main` may do all of this as an
//! ordinary user.
//!
//! ```no_run
//! use std::net::UdpSocket;
//! use roce_netlab::{Lab, Link};
//!
//! roce_netlab::enter_user_namespace_if_needed()?; // before any thread exists
//! let lab = Lab::new()?;
//! let (left, right) = (lab.host("left")?, lab.host("right")?);
//! lab.veth((&left, "eth0"), (&right, "eth0"), Link { mtu: 4200 })?;
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
mod lab;
mod netlink;
mod switch;
mod user;

pub use error::LabError;
pub use host::Host;
pub use ipnet::IpNet;
pub use lab::{Lab, Link};
pub use switch::Switch;
pub use user::enter_user_namespace_if_needed;
