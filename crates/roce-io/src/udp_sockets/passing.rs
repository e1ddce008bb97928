//! Datagrams for queue pairs of other processes: the kernel gives each to any of the processes that share
//! the port, which passes it on to the one that has the queue pair.
//!
//! A device takes connections at an abstract unix socket for each block of queue pair numbers, named after it, and at
//! one while it takes management datagrams, of which each device gets a copy. The kernel closes them with the
//! process. Any user can bind such a name, so both ends of a connection ask the kernel for the other's user first.

use std::{
    fs::File,
    io::{self, Read, Seek, SeekFrom},
    os::fd::AsFd,
    time::{Duration, Instant},
};

use roce_wire::Qpn;

use super::{
    connections::{BACKLOG, Connections, Unsent},
    headers,
    peers::Source,
};
use crate::sys::socket::Socket;
use crate::{
    Filter, QpnBlocks,
    error::OpenError,
    process::Own,
    sockets::abstract_address,
    sys::{self, passing::AnyReadable},
};

/// Bytes before a frame that is passed on: the length of its segments, 0 if it is one packet.
pub(super) const PREFIX_LEN: usize = 2;
/// Blocks of a device that are heard of: each has 4 096 queue pair numbers.
const MAX_BLOCKS: usize = 16;
/// How long the other processes that take management datagrams are remembered. Reading the kernel's list for each of
/// 5 000 datagrams a second took a connection beside them a quarter of its rate. A process that begins to take them
/// misses those of this time, and their senders repeat them.
const NAMES_KEPT: Duration = Duration::from_millis(10);
/// Most bytes of the kernel's list of unix sockets that are read.
const MAX_LIST: u64 = 4 << 20;

/// Where a datagram goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Destination {
    /// To this device.
    Here,
    /// To the device with this block of queue pair numbers.
    Block(u16),
    /// To all devices of this user that take management datagrams, this one among them if it does.
    Management { here: bool },
    /// To none.
    Nowhere,
}

impl Destination {
    /// Returns true if the device itself takes the datagram.
    pub(super) fn is_here(self) -> bool {
        matches!(self, Self::Here | Self::Management { here: true })
    }
}

/// A frame that another process has passed on.
#[derive(Debug)]
pub(super) struct PassedFrame<'a> {
    pub(super) bytes: &'a mut [u8],
    /// The length of its segments; `None`: it is one packet.
    pub(super) segment_len: Option<usize>,
    /// Its source, if it is for a queue pair of this process alone.
    pub(super) source: Option<Source>,
}

/// The sockets by which datagrams are passed on.
#[derive(Debug)]
pub(super) struct Passing {
    /// A source port of the device's engine, which no other engine has.
    engine: u16,
    filter: Filter,
    /// Takes connections under the names of this device, one name each.
    listeners: Vec<(String, Socket)>,
    connections: Connections,
    /// What can be read: the listeners under one number, connections of others under their places.
    any: AnyReadable,
    /// Places that could be read at the last look and were not read since.
    ready: u64,
    /// Connections that others have made; a place is empty once its connection has ended.
    accepted: Vec<Option<Socket>>,
    /// The place that is used again next, while all are taken.
    next: usize,
    /// The kernel's list of unix sockets in the device's network namespace.
    list: Own<File>,
    /// Names of other devices that take management datagrams, and when they were read.
    management: Option<(Instant, Vec<String>)>,
    buffer: Vec<u8>,
    passed: u64,
    not_taken: u64,
    untrusted: u64,
}

/// Connections that others have made, at most.
const MAX_ACCEPTED: usize = 63;
/// The listeners' number.
const LISTENERS: u32 = 63;
/// Connections that are taken at one look at a listener.
const MAX_ACCEPTED_AT_ONCE: usize = 16;
/// Steps of one look for a frame.
const MAX_STEPS: usize = 128;

impl Passing {
    /// Makes what needs the device's network namespace, which is this thread's.
    pub(super) fn new(interface: &str, engine: u16) -> Result<Self, OpenError> {
        let failed =
            |step| move |source| OpenError::Os { name: interface.to_owned(), step, source };
        let list = Own::make(|| File::open("/proc/thread-self/net/unix"))
            .map_err(failed("reading /proc"))?;
        Ok(Self {
            engine,
            // Nothing passes before the filter is set.
            filter: Filter { qpn_blocks: QpnBlocks::Only(Vec::new()), ..Filter::default() },
            listeners: Vec::new(),
            connections: Connections::new().map_err(failed("opening a unix socket"))?,
            any: AnyReadable::new().map_err(failed("making an epoll descriptor"))?,
            ready: 0,
            accepted: Vec::new(),
            next: 0,
            list,
            management: None,
            buffer: vec![0; PREFIX_LEN + 65_535 + 22],
            passed: 0,
            not_taken: 0,
            untrusted: 0,
        })
    }

    /// Adds what is passed on to what a thread sleeps on, under a number.
    pub(super) fn watch(&self, any: &AnyReadable, number: u32) -> io::Result<()> {
        any.add(self.any.as_fd(), number)
    }

    /// Takes the frames of a filter, under the names of its blocks.
    pub(super) fn set_filter(&mut self, filter: &Filter) -> io::Result<()> {
        if let QpnBlocks::Only(blocks) = &filter.qpn_blocks {
            for block in blocks {
                self.listen(block_name(self.connections.user, *block))?;
            }
        }
        if filter.general_services {
            self.listen(management_name(self.connections.user, self.engine))?;
        }
        self.filter = filter.clone();
        Ok(())
    }

    /// Takes connections under a name, unless the device does so already or has enough names.
    fn listen(&mut self, name: String) -> io::Result<()> {
        let has_it = self.listeners.iter().any(|(known, _)| *known == name);
        if has_it || self.listeners.len() >= MAX_BLOCKS {
            return Ok(());
        }
        let address = abstract_address(&name)?;
        let socket = self.connections.socket()?;
        if let Err(error) = socket.bind(&address) {
            self.connections.give_back(socket);
            if error.kind() != io::ErrorKind::AddrInUse {
                return Err(error);
            }
            return match self.connections.check(&name) {
                // The same engine's device on `lo` takes the same.
                Ok(()) => Ok(()),
                Err(Unsent::NotTaken) => Err(error),
                Err(Unsent::NotOurs) => Err(io::Error::new(
                    error.kind(),
                    format!(
                        "another user holds the abstract unix socket {name}, by which processes pass on \
                         datagrams: end its process (ss -xlp), or use another network namespace"
                    ),
                )),
            };
        }
        socket.listen(BACKLOG)?;
        self.any.add(socket.as_fd(), LISTENERS)?;
        self.listeners.push((name, socket));
        Ok(())
    }

    /// Returns which frames this device takes.
    pub(super) fn filter(&self) -> &Filter {
        &self.filter
    }

    /// Passes on a frame behind its prefix. What no process takes is dropped.
    pub(super) fn pass(&mut self, destination: Destination, message: &[u8]) {
        match destination {
            Destination::Here | Destination::Nowhere => {}
            Destination::Block(block) => {
                self.send(&block_name(self.connections.user, block), message);
            }
            Destination::Management { .. } => {
                let now = Instant::now();
                let kept = self.management.take();
                let (read_at, names) = kept
                    .filter(|(read_at, _)| now.duration_since(*read_at) < NAMES_KEPT)
                    .unwrap_or_else(|| (now, self.others_for_management()));
                for name in &names {
                    self.send(name, message);
                }
                self.management = Some((read_at, names));
            }
        }
    }

    fn send(&mut self, name: &str, message: &[u8]) {
        match self.connections.send(name, message) {
            Ok(()) => self.passed += 1,
            Err(Unsent::NotOurs) => self.untrusted += 1,
            Err(Unsent::NotTaken) => self.not_taken += 1,
        }
    }

    /// Reads the names of other devices of this user that take management datagrams.
    fn others_for_management(&mut self) -> Vec<String> {
        let user = self.connections.user;
        let own = management_name(user, self.engine);
        let mut names = self.names(&management_prefix(user)).unwrap_or_default();
        names.retain(|name| *name != own);
        names
    }

    /// Takes the connections that wait and are of this user.
    fn accept(&mut self) {
        for (_, listener) in &self.listeners {
            for _ in 0..MAX_ACCEPTED_AT_ONCE {
                let accepted = Own::make(|| listener.accept().map(|(socket, _)| socket));
                let Ok(socket) = accepted else { break };
                let user = sys::passing::peer_user(socket.as_fd());
                if !user.is_ok_and(|user| self.connections.is_own(user))
                    || socket.set_nonblocking(true).is_err()
                {
                    self.untrusted += 1;
                    continue;
                }
                let empty = self.accepted.iter().position(Option::is_none);
                let place = empty.unwrap_or_else(|| match self.accepted.len() {
                    MAX_ACCEPTED => {
                        self.next = (self.next + 1) % MAX_ACCEPTED;
                        self.next
                    }
                    len => {
                        self.accepted.push(None);
                        len
                    }
                });
                if let Some(old) = self.accepted[place].take() {
                    // Its process connects again.
                    let _removed = self.any.remove(old.as_fd());
                }
                if self.any.add(socket.as_fd(), place as u32).is_ok() {
                    self.accepted[place] = Some(socket);
                }
            }
        }
    }

    /// Receives a frame that another process has passed on. One that this device does not take is dropped.
    pub(super) fn receive(&mut self) -> io::Result<Option<PassedFrame<'_>>> {
        for _ in 0..MAX_STEPS {
            if self.ready == 0 {
                self.ready = match self.any.readable() {
                    Err(error) if is_nothing(&error) => 0,
                    other => other?,
                };
                if self.ready == 0 {
                    return Ok(None);
                }
            }
            let number = self.ready.trailing_zeros();
            self.ready &= self.ready - 1;
            if number == LISTENERS {
                self.accept();
                continue;
            }
            let Some(place) = self.accepted.get_mut(number as usize) else { continue };
            let Some(socket) = place else { continue };
            let len = match (&**socket).read(&mut self.buffer) {
                Err(error) if is_nothing(&error) => continue,
                Ok(0) | Err(_) => {
                    let _removed = self.any.remove(socket.as_fd());
                    *place = None;
                    continue;
                }
                Ok(len) => len,
            };
            let frame = self.buffer[..len].get(PREFIX_LEN..).unwrap_or_default();
            let headers = headers::read(frame);
            let destination = headers.map_or(Destination::Nowhere, |headers| {
                destination(&self.filter, &frame[headers.payload_at..])
            });
            if !destination.is_here() {
                self.not_taken += 1;
                continue;
            }
            let (prefix, bytes) = self.buffer[..len].split_at_mut(PREFIX_LEN);
            let segment_len = usize::from(u16::from_le_bytes([prefix[0], prefix[1]]));
            return Ok(Some(PassedFrame {
                bytes,
                segment_len: Some(segment_len).filter(|len| *len > 0),
                // Each process takes management of all sources.
                source: headers.filter(|_| destination == Destination::Here).map(Source::of),
            }));
        }
        Ok(None)
    }

    pub(super) fn counters(&self) -> [(&'static str, u64); 3] {
        [
            ("udp_passed_on", self.passed),
            ("udp_not_taken", self.not_taken),
            ("udp_untrusted", self.untrusted),
        ]
    }

    /// Returns the abstract names with a prefix in the device's network namespace.
    fn names(&mut self, prefix: &str) -> io::Result<Vec<String>> {
        let mut bytes = Vec::new();
        self.list.seek(SeekFrom::Start(0))?;
        (&*self.list).take(MAX_LIST).read_to_end(&mut bytes)?;
        let text = String::from_utf8_lossy(&bytes);
        let names = text.lines().filter_map(|line| line.rsplit_once(" @").map(|(_, name)| name));
        Ok(names.filter(|name| name.starts_with(prefix)).map(str::to_owned).collect())
    }
}

/// Returns where a datagram goes.
pub(super) fn destination(filter: &Filter, payload: &[u8]) -> Destination {
    let Some(&[high, middle, low]) = payload.get(5..8) else { return Destination::Nowhere };
    let number = u32::from_be_bytes([0, high, middle, low]);
    let block = (number >> 12) as u16;
    match &filter.qpn_blocks {
        QpnBlocks::Any => Destination::Here,
        QpnBlocks::Only(blocks) if blocks.contains(&block) => Destination::Here,
        _ if number == Qpn::GSI.get() => Destination::Management { here: filter.general_services },
        // The kernel gives a copy to each socket.
        _ if number == Qpn::MULTICAST.get() => match filter.multicast {
            true => Destination::Here,
            false => Destination::Nowhere,
        },
        _ if block == 0 => Destination::Nowhere,
        _ => Destination::Block(block),
    }
}

pub(super) fn is_nothing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

fn block_name(user: u32, block: u16) -> String {
    format!("roce/udp/{user}/{block:03x}")
}

fn management_name(user: u32, engine: u16) -> String {
    format!("{}{engine}", management_prefix(user))
}

fn management_prefix(user: u32) -> String {
    format!("roce/udp/{user}/management/")
}

#[cfg(test)]
mod tests {
    use socket2::{Domain, Socket, Type};

    use super::*;

    #[test]
    fn only_a_name_that_another_user_holds_is_said_to_be_that() {
        let mut passing = Passing::new("lo", 1).unwrap();
        let name = format!("roce-io/passing/{}", std::process::id());
        let refusal = |passing: &mut Passing| {
            let error = passing.listen(name.clone()).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
            error.to_string()
        };
        let socket = Socket::new(Domain::UNIX, Type::SEQPACKET, None).unwrap();
        socket.bind(&abstract_address(&name).unwrap()).unwrap();
        // It takes no connections yet: whose it is cannot be told.
        assert!(!refusal(&mut passing).contains("another user"));
        socket.listen(BACKLOG).unwrap();
        passing.listen(name.clone()).unwrap();
        assert!(passing.listeners.is_empty(), "another device of this user takes them");
        passing.connections.user += 1;
        let refusal = refusal(&mut passing);
        assert!(refusal.contains("another user") && refusal.contains(&name), "{refusal}");
    }
}
