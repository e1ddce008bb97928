//! Connection management: queue pairs that find each other by address and port; as librdmacm.
//!
//! An [`EventChannel`] reports what happens to its [`Id`]s: connections, listeners, resolutions of
//! datagram services. The peers may be of this crate, or any other that speaks rdma_cm's protocol
//! over RoCEv2, the Linux kernel for one. The names are those of librdmacm.
//!
//! Nothing waits but [`EventChannel::next`], and calls that open a device. The device exchanges the
//! datagrams of connection management in its rounds, with queue pair 1, which an application's
//! [general services queue pair](crate::QueuePairBuilder::general_services) excludes, and is excluded by.
//!
//! Queue pairs are the program's: it makes one from the [device](Id::device) of the identifier,
//! brings it to INIT with [`Id::init_queue_pair`] and to RTS with [`Id::ready_queue_pair`], or with
//! attributes of its own.
//!
//! # A server and a client
//!
//! ```no_run
//! use roce_verbs::DeviceConfig;
//! use roce_verbs::cm::{ConnectionParameters, Error, EventChannel, EventKind, Id, PortSpace};
//!
//! /// Makes a queue pair for a connection.
//! fn queue_pair(id: &Id) -> Result<roce_verbs::QueuePair, Error> {
//!     let device = id.device().expect("bound to a device");
//!     let cq = device.create_cq(16, None)?;
//!     let queue_pair = device.alloc_pd()?.queue_pair(&cq, &cq).build()?;
//!     id.init_queue_pair(&queue_pair)?;
//!     Ok(queue_pair)
//! }
//!
//! fn server(channel: &EventChannel) -> Result<(), Error> {
//!     let listener = channel.create_id(PortSpace::TCP, 0)?;
//!     listener.bind("0.0.0.0:7174".parse().unwrap())?;
//!     listener.listen(8)?;
//!     while let Some(event) = channel.next(None)? {
//!         match event.kind {
//!             EventKind::ConnectRequest(_) => {
//!                 let queue_pair = queue_pair(&event.id)?;
//!                 event.id.ready_queue_pair(&queue_pair)?;
//!                 event.id.accept(&ConnectionParameters::new(queue_pair.number()))?;
//!                 // ... keep `event.id` and `queue_pair` as long as the connection lives ...
//!             }
//!             EventKind::Disconnected => event.id.disconnect()?,
//!             _ => {}
//!         }
//!     }
//!     Ok(())
//! }
//!
//! fn client(channel: &EventChannel) -> Result<(), Error> {
//!     let id = channel.create_id(PortSpace::TCP, 0)?;
//!     id.resolve_addr(None, "10.0.0.2:7174".parse().unwrap(), std::time::Duration::from_secs(2))?;
//!     let mut queue_pairs = Vec::new();
//!     while let Some(event) = channel.next(None)? {
//!         match event.kind {
//!             EventKind::AddressResolved => id.resolve_route()?,
//!             EventKind::RouteResolved => {
//!                 queue_pairs.push(queue_pair(&id)?);
//!                 id.connect(&ConnectionParameters::new(queue_pairs[0].number()))?;
//!             }
//!             EventKind::ConnectResponse(_) => {
//!                 id.ready_queue_pair(&queue_pairs[0])?;
//!                 id.establish()?;
//!                 // ... exchange messages, then:
//!                 id.disconnect()?;
//!             }
//!             _ => return Ok(()),
//!         }
//!     }
//!     Ok(())
//! }
//! # let channel = EventChannel::new(DeviceConfig::default()).unwrap();
//! # server(&channel).and(client(&channel)).unwrap();
//! ```
//!
//! # Multicast
//!
//! An identifier of [`PortSpace::UDP`] joins groups with [`Id::join`]; the event tells how its members are
//! reached. Between two Rust programs [`QueuePair::attach`](crate::QueuePair::attach) is enough; the
//! identifier adds the address and the Q_Key that programs on librdmacm use.
//!
//! ```no_run
//! use std::net::IpAddr;
//! use roce_verbs::cm::{Error, EventChannel, EventKind, JoinMode, PortSpace};
//! use roce_verbs::{AddressVector, DeviceConfig, SendOperation, SendWr, Service};
//!
//! # fn main() -> Result<(), Error> {
//! let group = IpAddr::from([239, 1, 2, 3]);
//! let channel = EventChannel::new(DeviceConfig::default())?;
//! let id = channel.create_id(PortSpace::UDP, 0)?;
//! id.bind("10.0.0.1:0".parse().unwrap())?;
//! id.join(group, JoinMode::FullMember, 7)?;
//! let Some(EventKind::MulticastJoin(joined)) = channel.next(None)?.map(|event| event.kind) else {
//!     panic!("the interface is no member of {group}");
//! };
//! let (device, members) = (id.device().expect("bound to a device"), joined.members);
//! let (cq, pd) = (device.create_cq(16, None)?, device.alloc_pd()?);
//! let queue_pair = pd.queue_pair(&cq, &cq).service(Service::Ud).build()?;
//! queue_pair.ready_for_datagrams(members.q_key)?;
//! queue_pair.attach(group)?;
//! let to_members = pd.create_ah(&AddressVector::new(members.gid_index, group.into()))?;
//! let hello = SendWr::inline(1, SendOperation::send(), b"hello").signaled();
//! queue_pair.post_send_to([hello], &to_members, members.qpn, members.q_key).expect("room");
//! id.leave(group, 7)?;
//! # Ok(())
//! # }
//! ```
//!
//! # The end of the process
//!
//! `exit` and the return from `main` end the connections that are left: the peers are told once. Of
//! a process that ends otherwise (SIGKILL, `_exit`, `execve`, a crash) they are told by [`Orphans`] of
//! another process, if the configuration has a [file](crate::DeviceConfig::connection_file) for that;
//! `roce run` does both. Else they learn when their queue pairs' retries are used up, or when they
//! disconnect themselves: another process with connection management on the interface confirms that.
//!
//! # Ports
//!
//! A port that an identifier is bound to belongs to it in the network namespace of the process:
//! another process gets [`Error::AddressInUse`]. Requests to a port that no process has are refused
//! by one of those that manage connections on the interface, if there is one. Any user of the
//! namespace can take such names: see SECURITY.md.

mod channel;
mod connection;
mod event;
mod id;
mod join;
mod listening;
mod multicast;
mod opener;
mod orphans;
mod parameters;
mod route;

pub use crate::cm_router::{Error, EventNotifier, LISTENERS};
pub use crate::connection_timing::{Timing, TimingError};
pub use channel::EventChannel;
pub use event::{DatagramPeer, Event, EventKind, MulticastGroup, PeerParameters, Unreachable};
pub use id::Id;
pub use multicast::JoinMode;
pub use orphans::Orphans;
pub use parameters::ConnectionParameters;
pub use route::Route;

pub use roce_cm::{
    AgentError, InitAttributes, ReliableRtrAttributes, ReliableRtsAttributes, RtrAttributes,
    RtsAttributes, UDP_Q_KEY,
};
pub use roce_wire::management::{CmTimeout, PortSpace, RejectReason, SidrStatus};
