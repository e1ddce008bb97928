//! The pcapng file.

use std::{
    borrow::Cow,
    fmt,
    fs::File,
    io::{self, BufWriter, Write},
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use pcap_file::{
    DataLink, PcapError,
    pcapng::{
        PcapNgWriter,
        blocks::{
            enhanced_packet::{EnhancedPacketBlock, EnhancedPacketOption},
            interface_description::{InterfaceDescriptionBlock, InterfaceDescriptionOption},
        },
    },
};

use crate::device::Direction;

/// A pcapng file that several devices may write to, each as an interface of its own. Clones share
/// the file.
#[derive(Clone)]
pub struct CaptureFile {
    state: Arc<Mutex<State>>,
}

impl CaptureFile {
    /// Creates the file, replacing an existing one.
    ///
    /// # Errors
    /// The operating system's error.
    pub fn create(path: impl AsRef<Path>) -> io::Result<Self> {
        Self::new(File::create(path)?)
    }

    /// Writes to any writer, such as a pipe to Wireshark.
    ///
    /// # Errors
    /// The writer's error.
    pub fn new(writer: impl Write + Send + 'static) -> io::Result<Self> {
        let writer: Writer = BufWriter::with_capacity(BUFFER_LEN, Box::new(writer));
        let writer = PcapNgWriter::new(writer).map_err(reason)?;
        let state = State { writer, interfaces: 0, dirty: true, broken: None };
        Ok(Self { state: Arc::new(Mutex::new(state)) })
    }

    /// Writes out buffered packets.
    ///
    /// # Errors
    /// The first write error since the file was created; nothing was recorded after it.
    pub fn flush(&self) -> io::Result<()> {
        let mut state = self.lock();
        if state.dirty && state.broken.is_none() {
            state.dirty = false;
            let result = state.writer.get_mut().flush();
            state.keep(result);
        }
        state.result()
    }

    pub(super) fn add_interface(&self, name: &str) -> io::Result<u32> {
        let mut state = self.lock();
        state.result()?;
        let mut block = InterfaceDescriptionBlock::new(DataLink::ETHERNET, SNAPLEN);
        block.options = vec![
            InterfaceDescriptionOption::IfName(Cow::Owned(name.to_owned())),
            InterfaceDescriptionOption::IfTsResol(NANOSECONDS),
        ];
        let result = state.writer.write_pcapng_block(block).map(drop).map_err(reason);
        state.keep(result);
        state.result()?;
        state.interfaces += 1;
        Ok(state.interfaces - 1)
    }

    pub(super) fn record(
        &self,
        interface: u32,
        direction: Direction,
        since_1970: Duration,
        packet: &[u8],
    ) {
        let mut state = self.lock();
        if state.broken.is_some() {
            return;
        }
        let block = EnhancedPacketBlock {
            interface_id: interface,
            timestamp: since_1970,
            original_len: packet.len() as u32,
            data: Cow::Borrowed(packet),
            options: vec![EnhancedPacketOption::Flags(match direction {
                Direction::In => INBOUND,
                Direction::Out => OUTBOUND,
            })],
        };
        let result = state.writer.write_pcapng_block(block).map(drop).map_err(reason);
        state.dirty = true;
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

type Writer = BufWriter<Box<dyn Write + Send>>;

struct State {
    writer: PcapNgWriter<Writer>,
    interfaces: u32,
    dirty: bool,
    broken: Option<(io::ErrorKind, String)>,
}

impl State {
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

fn reason(error: PcapError) -> io::Error {
    match error {
        PcapError::IoError(error) => error,
        other => io::Error::other(other),
    }
}

/// Maximum packet length, as Wireshark has it.
const SNAPLEN: u32 = 262_144;
/// Timestamp resolution: 10⁻⁹ s.
const NANOSECONDS: u8 = 9;
const INBOUND: u32 = 1;
const OUTBOUND: u32 = 2;
const BUFFER_LEN: usize = 256 << 10;

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A writer whose bytes a test can read.
    #[derive(Clone, Default)]
    pub(in crate::pcap_writer) struct Shared(Arc<Mutex<Vec<u8>>>);

    impl Shared {
        pub(in crate::pcap_writer) fn bytes(&self) -> Vec<u8> {
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
