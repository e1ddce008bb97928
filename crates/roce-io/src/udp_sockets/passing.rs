//! Datagrams for queue pairs of other processes: the kernel gives each to any of the processes that share
//! the port, which passes it on to the one that has the queue pair.
//!
//! A device has an abstract unix socket for each block of queue pair numbers, named after it, and one while
//! it takes management datagrams, of which each device gets a copy. The kernel closes them with the process.
//! Only processes of the same user are heard there.

use std::{
    fs::File,
    io::{self, Read, Seek, SeekFrom},
    os::fd::{AsFd, AsRawFd},
    time::{Duration, Instant},
};

use roce_wire::Qpn;
use socket2::{Domain, SockAddr, Type};

use super::{headers, peers::Source};
use crate::sys::socket::Socket;
use crate::{
    Filter, QpnBlocks,
    error::OpenError,
    process::Own,
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
    user: u32,
    /// A source port of the device's engine, which no other engine has.
    engine: u16,
    filter: Filter,
    /// Made with the device, in its network namespace. The first ones are bound, to one name each.
    sockets: Vec<Socket>,
    names: Vec<String>,
    /// Holds the name that shows other users that the interface's port is taken.
    claim: Socket,
    /// The kernel's list of unix sockets in the device's network namespace.
    list: Own<File>,
    /// Names of other devices that take management datagrams, and when they were read.
    management: Option<(Instant, Vec<String>)>,
    buffer: Vec<u8>,
    passed: u64,
    not_taken: u64,
    untrusted: u64,
}

impl Passing {
    /// Makes the sockets, and claims the interface's port for this user.
    pub(super) fn new(interface: &str, index: u32, engine: u16) -> Result<Self, OpenError> {
        let failed =
            |step| move |source| OpenError::Os { name: interface.to_owned(), step, source };
        let user = sys::passing::effective_user();
        let open = || sys::socket::open(Domain::UNIX, Type::DGRAM, None);
        let mut sockets = Vec::new();
        for _ in 0..MAX_BLOCKS {
            let socket = open().map_err(failed("opening a unix socket"))?;
            sys::passing::tell_senders(socket.as_fd()).map_err(failed("asking for senders"))?;
            sockets.push(socket);
        }
        let list = Own::make(|| File::open("/proc/thread-self/net/unix"))
            .map_err(failed("reading /proc"))?;
        let claim = open().map_err(failed("opening a unix socket"))?;
        let mut passing = Self {
            user,
            engine,
            // Nothing passes before the filter is set.
            filter: Filter { qpn_blocks: QpnBlocks::Only(Vec::new()), ..Filter::default() },
            sockets,
            names: Vec::new(),
            claim,
            list,
            management: None,
            buffer: vec![0; PREFIX_LEN + 65_535 + 22],
            passed: 0,
            not_taken: 0,
            untrusted: 0,
        };
        passing.claim(interface, index).map_err(failed("claiming the port"))??;
        Ok(passing)
    }

    /// Claims the interface's port for this user. The own name comes first, so that of two users that
    /// claim at once one at least sees the other.
    fn claim(&mut self, interface: &str, index: u32) -> io::Result<Result<(), OpenError>> {
        let prefix = format!("roce/udp-user/{index}/");
        let own = format!("{prefix}{}/", self.user);
        let number = self.claim.as_raw_fd();
        self.claim.bind(&address(&format!("{own}{}.{number}", std::process::id()))?)?;
        let names = self.names(&prefix)?;
        let Some(other) = names.iter().find(|name| !name.starts_with(&own)) else {
            return Ok(Ok(()));
        };
        let user = other[prefix.len()..].split('/').next().unwrap_or_default().to_owned();
        Ok(Err(OpenError::OtherUser { name: interface.to_owned(), user }))
    }

    /// Adds the sockets to what a thread sleeps on, under one number.
    pub(super) fn watch(&self, any: &AnyReadable, number: u32) -> io::Result<()> {
        self.sockets.iter().try_for_each(|socket| any.add(socket.as_fd(), number))
    }

    /// Takes the frames of a filter, under the names of its blocks.
    pub(super) fn set_filter(&mut self, filter: &Filter) -> io::Result<()> {
        if let QpnBlocks::Only(blocks) = &filter.qpn_blocks {
            for block in blocks {
                self.bind(block_name(self.user, *block))?;
            }
        }
        if filter.general_services {
            self.bind(management_name(self.user, self.engine))?;
        }
        self.filter = filter.clone();
        Ok(())
    }

    /// Binds a socket to a name, unless one has it or none is left.
    fn bind(&mut self, name: String) -> io::Result<()> {
        let Some(socket) = self.sockets.get(self.names.len()) else { return Ok(()) };
        if self.names.contains(&name) {
            return Ok(());
        }
        match socket.bind(&address(&name)?) {
            Ok(()) => self.names.push(name),
            // The same engine's device on `lo` takes the same.
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Returns which frames this device takes.
    pub(super) fn filter(&self) -> &Filter {
        &self.filter
    }

    /// Passes on a frame behind its prefix. What no process takes is dropped. It leaves by the socket that has its
    /// name for good: the kernel gives one to a socket that tells of senders and sends without, and then
    /// refuses it that of a block.
    pub(super) fn pass(&mut self, destination: Destination, message: &[u8]) {
        match destination {
            Destination::Here | Destination::Nowhere => {}
            Destination::Block(block) => {
                let sent = address(&block_name(self.user, block));
                let sent = sent
                    .and_then(|to| self.claim.send_to_with_flags(message, &to, libc::MSG_DONTWAIT));
                self.count(sent.is_ok());
            }
            Destination::Management { .. } => {
                let now = Instant::now();
                let kept = self.management.take();
                let (read_at, names) = kept
                    .filter(|(read_at, _)| now.duration_since(*read_at) < NAMES_KEPT)
                    .unwrap_or_else(|| (now, self.others_for_management()));
                for name in &names {
                    let sent = address(name).and_then(|to| {
                        self.claim.send_to_with_flags(message, &to, libc::MSG_DONTWAIT)
                    });
                    self.count(sent.is_ok());
                }
                self.management = Some((read_at, names));
            }
        }
    }

    /// Reads the names of other devices of this user that take management datagrams.
    fn others_for_management(&mut self) -> Vec<String> {
        let own = management_name(self.user, self.engine);
        let mut names = self.names(&management_prefix(self.user)).unwrap_or_default();
        names.retain(|name| *name != own);
        names
    }

    fn count(&mut self, is_taken: bool) {
        *if is_taken { &mut self.passed } else { &mut self.not_taken } += 1;
    }

    /// Receives a frame that another process has passed on. One that this device does not take is dropped.
    pub(super) fn receive(&mut self) -> io::Result<Option<PassedFrame<'_>>> {
        let bound = self.names.len();
        for socket in &self.sockets[..bound] {
            let passed = match sys::passing::receive(socket.as_fd(), &mut self.buffer) {
                Ok(passed) if passed.is_trusted && passed.len > PREFIX_LEN => passed,
                Ok(_) => {
                    self.untrusted += 1;
                    continue;
                }
                Err(error) if is_nothing(&error) => continue,
                Err(error) => return Err(error),
            };
            let frame = &self.buffer[PREFIX_LEN..passed.len];
            let headers = headers::read(frame);
            let destination = headers.map_or(Destination::Nowhere, |headers| {
                destination(&self.filter, &frame[headers.payload_at..])
            });
            if !destination.is_here() {
                self.not_taken += 1;
                continue;
            }
            let (prefix, bytes) = self.buffer[..passed.len].split_at_mut(PREFIX_LEN);
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

fn address(name: &str) -> io::Result<SockAddr> {
    SockAddr::unix(format!("\0{name}"))
}
