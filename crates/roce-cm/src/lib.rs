//! Connection management over RoCEv2 as pure computation: no socket, no clock, no threads.
//!
//! An [`Agent`] is the connection manager of a device. It speaks with the agents of other devices, of the
//! Linux kernel for instance, in management datagrams between queue pairs 1: the InfiniBand
//! protocol as rdma_cm uses it. Datagrams, time and calls go in; datagrams and events come out.
//!
//! | side | states |
//! |---|---|
//! | active | REQ sent → REP received → established |
//! | passive | REQ received → REP sent → established |
//! | both | → DREQ sent or received → timewait → idle |
//!
//! Every message that waits for an answer is repeated, and every repetition is answered as the first was,
//! so that the program hears of each thing once. Where the kernel forgets what it answered, this agent
//! keeps the reply; where a lost REJ leaves the kernel's peer with a dead connection, this agent follows
//! with a DREQ.
//!
//! ```
//! use roce_cm::*;
//! use roce_wire::{Instant, Qpn};
//! use roce_wire::management::PortSpace;
//!
//! let [here, there] = ["10.0.0.1:40000", "10.0.0.2:7174"].map(|it| it.parse().unwrap());
//! let qpn = |number| Qpn::new(number).unwrap();
//! let now = Instant::START;
//! let mut client = Agent::new(AgentConfig::new(1, 1, vec!["10.0.0.1".parse().unwrap()]));
//! let mut server = Agent::new(AgentConfig::new(2, 2, vec!["10.0.0.2".parse().unwrap()]));
//!
//! /// Carries what waits at `from` to `to`.
//! fn carry(now: Instant, from: &mut Agent, to: &mut Agent) {
//!     while let Some(transmit) = from.poll_transmit() {
//!         let DatagramAddresses { local, remote } = transmit.addresses;
//!         let received_on = DatagramAddresses { local: remote, remote: local };
//!         let disposition = to.handle_datagram(now, received_on, &transmit.datagram[..]);
//!         assert_eq!(disposition, Disposition::Handled);
//!     }
//! }
//!
//! let address = "0.0.0.0".parse().unwrap();
//! server.listen(&ListenParameters { space: PortSpace::TCP, port: 7174, address, backlog: 8 })?;
//! let addresses = ConnectionAddresses { local: here, remote: there };
//! let client_id = client.connect(now, &ConnectParameters::new(addresses, qpn(0x11)))?;
//! carry(now, &mut client, &mut server);
//!
//! let Some(Event::ConnectRequest { id: server_id, request, .. }) = server.poll_event() else {
//!     panic!("no request");
//! };
//! assert_eq!((request.remote_qpn, request.addresses.remote), (qpn(0x11), here));
//! server.accept(now, server_id, &AcceptParameters::new(qpn(0x22)))?;
//! carry(now, &mut server, &mut client);
//!
//! assert!(matches!(client.poll_event(), Some(Event::ConnectResponse { .. })));
//! assert_eq!(client.rtr_attributes(client_id)?.dest_qpn, qpn(0x22));
//! client.establish(client_id, &[])?;
//! carry(now, &mut client, &mut server);
//! assert_eq!(server.poll_event(), Some(Event::Established { id: server_id }));
//! # Ok::<(), AgentError>(())
//! ```

#![forbid(unsafe_code)]

mod active;
mod addresses;
mod agent;
mod config;
mod connection;
mod counters;
mod disposition;
mod duplicates;
mod ending;
mod error;
mod event;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
mod identifier;
mod limits;
mod listener;
mod messages;
mod orphan;
mod outputs;
mod parameters;
mod passive;
mod queue_pair_attributes;
mod random;
mod record;
mod request_checks;
mod request_window;
mod resolution;
mod services;
mod strays;
mod tables;
#[cfg(test)]
mod tests;
mod timers;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

pub use addresses::{ConnectionAddresses, DatagramAddresses};
pub use agent::{Agent, AgentUsage};
pub use config::AgentConfig;
pub use counters::{Counters, DropReason};
pub use disposition::Disposition;
pub use error::AgentError;
pub use event::{ConnectRequest, ConnectResponse, Event, ServiceRequest, ServiceResponse};
pub use identifier::COUNTED_ID_BITS;
pub use limits::{
    KEPT_ANSWER_TIME, KEPT_REJECT_TIME, MAX_BACKLOG, MAX_KEPT_REPLIES, MAX_REQUESTS,
    MAX_REQUESTS_IN_FLIGHT, MAX_STRAYS_AT_ONCE, MAX_STRAYS_HELD, MAX_TIMEWAITS, MAX_TRANSMITS,
    REQUEST_FLIGHT_TIME, STRAY_INTERVAL,
};
pub use listener::ListenerHandle;
pub use outputs::Transmit;
pub use parameters::{
    AcceptParameters, ConnectParameters, ListenParameters, RejectParameters, ResolveParameters,
    ServiceAnswer, UDP_Q_KEY,
};
pub use queue_pair_attributes::{
    InitAttributes, ReliableRtrAttributes, ReliableRtsAttributes, RtrAttributes, RtsAttributes,
};
pub use record::{Change, ConnectionRecord, RECORD_LEN};
pub use strays::StrayDatagram;
