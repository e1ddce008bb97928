//! The pcapng file.

use std::{
    borrow::Cow,
    fmt,
    fs::{File, OpenOptions},
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use byteorder_slice::LittleEndian;
use pcap_file::{
    DataLink,
    pcapng::{
        Block, PcapNgBlock,
        blocks::{
            enhanced_packet::{EnhancedPacketBlock, EnhancedPacketOption},
            interface_description::{InterfaceDescriptionBlock, InterfaceDescriptionOption},
        },
    },
};

use super::section::{self, Section};
use crate::device::Direction;

/// A pcapng file that several devices may write to, each as an interface of its own. Clones share
/// the file.
///
/// Several processes may write to one file on a disk, too, each with [`append`](Self::append): whole
/// blocks are appended by one call of the kernel each, and a process adds its interfaces under a lock
/// of the file. A block is written before the call that records it returns, so that the file is
/// complete when a process ends, in whatever way.
#[derive(Clone)]
pub struct CaptureFile {
    state: Arc<Mutex<State>>,
}

/// An interface of a [`CaptureFile`], which gets its block in the file with its first packet.
#[derive(Debug)]
pub(super) struct CaptureInterface {
    name: String,
    id: Option<u32>,
}

impl CaptureInterface {
    pub(super) fn new(name: &str) -> Self {
        Self { name: name.to_owned(), id: None }
    }
}

impl CaptureFile {
    /// Creates the file, replacing an existing one. A pipe is opened by [`append`](Self::append) instead.
    ///
    /// # Errors
    /// The operating system's error.
    pub fn create(path: impl AsRef<Path>) -> io::Result<Self> {
        drop(File::create(&path)?);
        Self::append(path)
    }

    /// Opens a file to add to the packets that it has. It is created if it does not exist; an empty
    /// one gets the header of a capture, and one that is no regular file, such as a pipe, gets one in
    /// any case. Opening waits for nothing; writing to a pipe waits for its reader.
    ///
    /// # Errors
    /// The operating system's error; [`io::ErrorKind::InvalidData`] if the file has anything but
    /// packets of a `CaptureFile`; [`io::ErrorKind::NotConnected`] if it is a pipe that nothing reads.
    pub fn append(path: impl AsRef<Path>) -> io::Result<Self> {
        let path = path.as_ref();
        let mut options = OpenOptions::new();
        options.append(true).create(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY);
        let appended = options.open(path).map_err(|error| match error.raw_os_error() {
            Some(libc::ENXIO) => io::Error::new(
                io::ErrorKind::NotConnected,
                "nothing reads the pipe; start its reader first",
            ),
            _ => error,
        })?;
        if !appended.metadata()?.is_file() {
            let flags = rustix::fs::fcntl_getfl(&appended)?;
            rustix::fs::fcntl_setfl(&appended, flags - rustix::fs::OFlags::NONBLOCK)?;
            return Self::new(appended);
        }
        // Of a file opened to append the kernel ignores where to write.
        let whole = OpenOptions::new().read(true).write(true).open(path)?;
        let section = Section::open(whole)?;
        Ok(Self::of(Sink::Shared { appended, section }))
    }

    /// Writes to any writer, such as a pipe to Wireshark.
    ///
    /// # Errors
    /// The writer's error.
    pub fn new(mut writer: impl Write + Send + 'static) -> io::Result<Self> {
        writer.write_all(&section::header())?;
        Ok(Self::of(Sink::Own { writer: Box::new(writer), interfaces: 0 }))
    }

    fn of(sink: Sink) -> Self {
        let state = State { sink, buffer: Vec::new(), broken: None };
        Self { state: Arc::new(Mutex::new(state)) }
    }

    /// Flushes the writer. A file has all recorded packets without it.
    ///
    /// # Errors
    /// The first write error since the file was opened; nothing was recorded after it.
    pub fn flush(&self) -> io::Result<()> {
        let mut state = self.lock();
        state.result()?;
        if let Sink::Own { writer, .. } = &mut state.sink {
            let result = writer.flush();
            state.keep(result);
        }
        state.result()
    }

    /// Counts the interfaces that other processes have added to a file on a disk. Returns a byte: the blocks before
    /// it, but not the first 4096 bytes, are read no more by any `CaptureFile`, so that a program that has copied
    /// them may give them back to the file system.
    ///
    /// # Errors
    /// The operating system's error; [`io::ErrorKind::InvalidData`] if the file has anything but packets of a
    /// `CaptureFile`.
    pub fn count_interfaces(&self) -> io::Result<u64> {
        match &self.lock().sink {
            // It reads nothing.
            Sink::Own { .. } => Ok(u64::MAX),
            Sink::Shared { section, .. } => section.count(),
        }
    }

    /// Records packets: `fill` adds them, and then all are written at once. The file keeps an error.
    pub(super) fn record(
        &self,
        interface: &mut CaptureInterface,
        fill: impl FnOnce(&mut PacketBlocks<'_>),
    ) {
        let mut state = self.lock();
        if state.broken.is_some() {
            return;
        }
        let result = state.record(interface, fill);
        state.keep(result);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A thread that panicked while writing left at worst half a block, as a full disk does.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for CaptureFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CaptureFile").finish_non_exhaustive()
    }
}

/// Where blocks go.
enum Sink {
    /// A writer of this process alone.
    Own { writer: Box<dyn Write + Send>, interfaces: u32 },
    /// A file that other processes may append to.
    Shared { appended: File, section: Section },
}

struct State {
    sink: Sink,
    /// Blocks that are not written yet.
    buffer: Vec<u8>,
    broken: Option<(io::ErrorKind, String)>,
}

impl State {
    fn record(
        &mut self,
        interface: &mut CaptureInterface,
        fill: impl FnOnce(&mut PacketBlocks<'_>),
    ) -> io::Result<()> {
        let id = match interface.id {
            Some(id) => id,
            None => *interface.id.insert(self.add_interface(&interface.name)?),
        };
        self.buffer.clear();
        fill(&mut PacketBlocks { interface: id, buffer: &mut self.buffer });
        match &mut self.sink {
            Sink::Own { writer, .. } => writer.write_all(&self.buffer),
            Sink::Shared { appended, .. } => append_whole(appended, &self.buffer),
        }
    }

    fn add_interface(&mut self, name: &str) -> io::Result<u32> {
        let mut block = InterfaceDescriptionBlock::new(DataLink::ETHERNET, SNAPLEN);
        block.options = vec![
            InterfaceDescriptionOption::IfName(Cow::Borrowed(name)),
            InterfaceDescriptionOption::IfDescription(Cow::Owned(process())),
            InterfaceDescriptionOption::IfTsResol(NANOSECONDS),
        ];
        let mut bytes = Vec::new();
        write_block(block.into_block(), &mut bytes);
        match &mut self.sink {
            Sink::Own { writer, interfaces } => {
                writer.write_all(&bytes)?;
                *interfaces += 1;
                Ok(*interfaces - 1)
            }
            Sink::Shared { appended, section } => {
                section.add_interface(|| append_whole(appended, &bytes))
            }
        }
    }

    fn keep(&mut self, result: io::Result<()>) {
        if let Err(error) = result {
            self.broken.get_or_insert((error.kind(), error.to_string()));
        }
    }

    fn result(&self) -> io::Result<()> {
        match &self.broken {
            None => Ok(()),
            Some((kind, text)) => Err(io::Error::new(*kind, text.clone())),
        }
    }
}

/// Packets of one interface that are written together.
pub(super) struct PacketBlocks<'a> {
    interface: u32,
    buffer: &'a mut Vec<u8>,
}

impl PacketBlocks<'_> {
    pub(super) fn push(
        &mut self,
        direction: Direction,
        since_1970: Duration,
        packet: &[u8],
        comment: &str,
    ) {
        let mut options = vec![EnhancedPacketOption::Flags(match direction {
            Direction::In => INBOUND,
            Direction::Out => OUTBOUND,
        })];
        if !comment.is_empty() {
            options.push(EnhancedPacketOption::Comment(Cow::Borrowed(comment)));
        }
        let block = EnhancedPacketBlock {
            interface_id: self.interface,
            timestamp: since_1970,
            original_len: packet.len() as u32,
            data: Cow::Borrowed(packet),
            options,
        };
        write_block(block.into_block(), self.buffer);
    }
}

/// Appends blocks by one call, so that those of another process stand before or behind them. What a
/// full disk leaves of them is taken back.
fn append_whole(file: &File, blocks: &[u8]) -> io::Result<()> {
    let mut writer = file;
    let written = loop {
        match writer.write(blocks) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            outcome => break outcome?,
        }
    };
    if written == blocks.len() {
        return Ok(());
    }
    let len = file.metadata()?.len();
    file.set_len(len.saturating_sub(written as u64))?;
    Err(io::ErrorKind::StorageFull.into())
}

fn write_block(block: Block<'_>, to: &mut Vec<u8>) {
    let written = block.write_to::<LittleEndian, _>(to);
    debug_assert!(written.is_ok(), "memory takes all");
}

/// Returns what the description of an interface says about its process.
fn process() -> String {
    let id = std::process::id();
    let name = std::fs::read_to_string("/proc/self/comm").unwrap_or_default();
    format!("process {id} ({})", name.trim_end())
}

/// Maximum packet length, as Wireshark has it.
const SNAPLEN: u32 = 262_144;
/// Timestamp resolution: 10⁻⁹ s.
const NANOSECONDS: u8 = 9;
const INBOUND: u32 = 1;
const OUTBOUND: u32 = 2;

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A writer whose bytes a test can read.
    #[derive(Clone, Default)]
    pub(crate) struct Shared(Arc<Mutex<Vec<u8>>>);

    impl Shared {
        pub(crate) fn bytes(&self) -> Vec<u8> {
            self.0.lock().unwrap().clone()
        }
    }

    impl Write for Shared {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// A writer that takes `room` more bytes.
    pub(in crate::pcap_writer) struct FullDisk {
        pub(in crate::pcap_writer) room: usize,
    }

    impl Write for FullDisk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let len = bytes.len().min(self.room);
            self.room -= len;
            if len == 0 { Err(io::ErrorKind::StorageFull.into()) } else { Ok(len) }
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
}
