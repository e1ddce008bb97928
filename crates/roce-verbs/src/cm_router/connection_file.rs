//! The file in which a process writes down the connections of a device.
//!
//! | bytes | what |
//! |---|---|
//! | 128 | `rocecm01`, number of the network namespace, index of the interface, block of communication ids |
//! | 128 for each connection | sequence number, [`ConnectionRecord`], the same number again; 0 where there is none |
//!
//! A record is written by one call and lies in one page, so that it is there or not, in whatever way the
//! process ends. It is written before any datagram leaves that makes a peer wait for more.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use roce_cm::{Change, ConnectionRecord, RECORD_LEN};
use roce_io::process::Own;
use roce_wire::management::CommunicationId;

use crate::process::fork;
use crate::run::numbered_file;

/// Bytes of the header, and of a record with its sequence numbers.
const SLOT_LEN: usize = 128;
/// Most connections in a file; further ones are not written down.
const MAX_SLOTS: u32 = 65_536;
const MAGIC: [u8; 8] = *b"rocecm01";
const RECORD_AT: usize = 4;
const LAST_NUMBER_AT: usize = SLOT_LEN - 4;

/// What the connections of a file belong to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Owner {
    /// Number of the network namespace.
    pub(crate) namespace: u64,
    /// Index of the interface.
    pub(crate) interface: u32,
    /// The upper twelve bits of its communication ids, whose name the process holds.
    pub(crate) block: u16,
}

impl Owner {
    fn to_bytes(self) -> [u8; SLOT_LEN] {
        let mut bytes = [0; SLOT_LEN];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..16].copy_from_slice(&self.namespace.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.interface.to_le_bytes());
        bytes[20..22].copy_from_slice(&self.block.to_le_bytes());
        bytes
    }

    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let rest = bytes.strip_prefix(&MAGIC)?;
        let (namespace, rest) = rest.split_first_chunk()?;
        let (interface, rest) = rest.split_first_chunk()?;
        let (block, _) = rest.split_first_chunk()?;
        Some(Self {
            namespace: u64::from_le_bytes(*namespace),
            interface: u32::from_le_bytes(*interface),
            block: u16::from_le_bytes(*block),
        })
    }
}

/// The file of a device.
#[derive(Debug)]
pub(crate) struct ConnectionFile {
    file: Own<File>,
    path: PathBuf,
    /// Place of each connection, from 1.
    slots: HashMap<CommunicationId, u32>,
    free: Vec<u32>,
    /// Places that were used once.
    used: u32,
    sequence: u32,
    generation: fork::Generation,
}

impl ConnectionFile {
    /// Creates the file; the name may get a number behind it.
    pub(crate) fn create(path: &Path, owner: Owner) -> io::Result<Self> {
        let (file, path) = numbered_file::create(path, 0o600)?;
        if let Err(error) = numbered_file::write(&file, &owner.to_bytes(), 0) {
            // Nothing reads an empty one.
            let _gone = fs::remove_file(&path);
            return Err(error);
        }
        let generation = fork::Generation::current();
        let (slots, free) = Default::default();
        Ok(Self { file, path, slots, free, used: 0, sequence: 0, generation })
    }

    /// Writes a record, or removes it. Peers are told of a death even less without it, so that an error is
    /// only logged.
    pub(crate) fn note(&mut self, change: Change) {
        let Some(slot) = self.slot_of(change).filter(|_| self.file.is_open()) else { return };
        let mut bytes = [0; SLOT_LEN];
        if let Some(record) = &change.record {
            self.sequence = self.sequence.wrapping_add(1).max(1);
            bytes[..RECORD_AT].copy_from_slice(&self.sequence.to_le_bytes());
            bytes[RECORD_AT..RECORD_AT + RECORD_LEN].copy_from_slice(&record.to_bytes());
            bytes[LAST_NUMBER_AT..].copy_from_slice(&self.sequence.to_le_bytes());
        }
        let at = u64::from(slot) * SLOT_LEN as u64;
        if let Err(error) = numbered_file::write(&self.file, &bytes, at) {
            tracing::debug!(%error, "a connection is not written down");
        }
    }

    /// Returns the place for a change, if there is anything to write.
    fn slot_of(&mut self, change: Change) -> Option<u32> {
        if change.record.is_none() {
            let slot = self.slots.remove(&change.id)?;
            self.free.push(slot);
            return Some(slot);
        }
        if let Some(slot) = self.slots.get(&change.id) {
            return Some(*slot);
        }
        let slot = match self.free.pop() {
            Some(slot) => slot,
            None if self.used >= MAX_SLOTS => {
                tracing::debug!("more than {MAX_SLOTS} connections: one is not written down");
                return None;
            }
            None => {
                self.used += 1;
                self.used
            }
        };
        self.slots.insert(change.id, slot);
        Some(slot)
    }
}

impl Drop for ConnectionFile {
    fn drop(&mut self) {
        // In a child after fork it is the parent's. What is left is ended by another process.
        if self.generation.is_current() && self.slots.is_empty() {
            let _gone = fs::remove_file(&self.path);
        }
    }
}

/// Reads whose connections are in a file; `None` if it is none of ours, or not complete yet.
pub(crate) fn read_owner(path: &Path) -> io::Result<Option<Owner>> {
    Ok(Owner::from_bytes(&read(path, SLOT_LEN)?))
}

/// Reads the connections of a file.
pub(crate) fn read_records(path: &Path) -> io::Result<Vec<ConnectionRecord>> {
    let bytes = read(path, (1 + MAX_SLOTS as usize) * SLOT_LEN)?;
    let slots = bytes.as_chunks::<SLOT_LEN>().0.iter().skip(1);
    Ok(slots.filter_map(record_in).collect())
}

fn record_in(slot: &[u8; SLOT_LEN]) -> Option<ConnectionRecord> {
    let (first, last) = (&slot[..RECORD_AT], &slot[LAST_NUMBER_AT..]);
    let record = slot[RECORD_AT..].first_chunk()?;
    if first != last { None } else { ConnectionRecord::from_bytes(record) }
}

/// Reads at most `limit` bytes of a file. The program owns the folder: what it has put there may be
/// anything, but nothing here waits for it.
fn read(path: &Path, limit: usize) -> io::Result<Vec<u8>> {
    let mut options = OpenOptions::new();
    let file = options.read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut bytes = Vec::new();
    file.take(limit as u64).read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::process::Command;

    use roce_cm::{Agent, AgentConfig, ConnectParameters, ConnectionAddresses};
    use roce_wire::Qpn;

    use super::*;

    const OWNER: Owner = Owner { namespace: 0x1_0000_0007, interface: 3, block: 0xabc };

    /// A folder, removed when dropped.
    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let name = format!("roce-connection-file-{name}-{}", std::process::id());
            let folder = Self(std::env::temp_dir().join(name));
            fs::create_dir_all(&folder.0).unwrap();
            folder
        }

        fn file(&self) -> PathBuf {
            self.0.join("x.1")
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    /// Returns the changes of `count` connections that begin, and those of their ends.
    fn changes(count: u32) -> (Vec<Change>, Vec<Change>) {
        let local = [10, 0, 0, 1].into();
        let config = AgentConfig::new(1, 1, vec![local]);
        let mut agent = Agent::new(AgentConfig { keeps_records: true, ..config });
        let ends =
            ConnectionAddresses { local: (local, 9).into(), remote: ([10, 0, 0, 2], 7).into() };
        let ids: Vec<_> = (1..=count)
            .map(|number| {
                let parameters = ConnectParameters::new(ends, Qpn::new(number).unwrap());
                agent.connect(roce_transport::Instant::START, &parameters).unwrap()
            })
            .collect();
        let begun = std::iter::from_fn(|| agent.poll_change()).collect();
        ids.into_iter().for_each(|id| agent.destroy(roce_transport::Instant::START, id).unwrap());
        (begun, std::iter::from_fn(|| agent.poll_change()).collect())
    }

    fn read_ids(path: &Path) -> Vec<CommunicationId> {
        let mut ids: Vec<_> =
            read_records(path).unwrap().iter().map(ConnectionRecord::id).collect();
        ids.sort();
        ids
    }

    #[test]
    fn a_file_has_the_connections_that_are_left_and_goes_with_the_last() {
        let folder = Folder::new("left");
        let mut file = ConnectionFile::create(&folder.file(), OWNER).unwrap();
        assert_eq!(read_owner(&folder.file()).unwrap(), Some(OWNER));
        let (begun, ended) = changes(20);
        begun.iter().for_each(|change| file.note(*change));
        assert_eq!(read_records(&folder.file()).unwrap().len(), 20);
        ended[5..].iter().for_each(|change| file.note(*change));
        let mut left: Vec<_> = ended[..5].iter().map(|change| change.id).collect();
        left.sort();
        assert_eq!(read_ids(&folder.file()), left);
        // Places are used again.
        let len = fs::metadata(folder.file()).unwrap().len();
        begun.iter().for_each(|change| file.note(*change));
        assert_eq!(fs::metadata(folder.file()).unwrap().len(), len);
        assert_eq!(read_ids(&folder.file()).len(), 20);
        ended[1..].iter().for_each(|change| file.note(*change));
        drop(file);
        assert_eq!(read_ids(&folder.file()), [ended[0].id]);

        let mut other = ConnectionFile::create(&folder.file(), OWNER).unwrap();
        let its = folder.0.join("x.1.1");
        begun.iter().chain(&ended).for_each(|change| other.note(*change));
        assert!(read_records(&its).unwrap().is_empty());
        drop(other);
        assert!(!its.exists());
    }

    #[test]
    fn a_file_of_anything_has_only_records_that_were_written_whole() {
        let folder = Folder::new("hostile");
        let mut file = ConnectionFile::create(&folder.file(), OWNER).unwrap();
        let (begun, _) = changes(2);
        begun.iter().for_each(|change| file.note(*change));
        let bytes = fs::read(folder.file()).unwrap();
        let written = folder.0.join("written");
        for len in 0..bytes.len() {
            fs::write(&written, &bytes[..len]).unwrap();
            assert_eq!(read_owner(&written).unwrap().is_some(), len >= 22, "{len} bytes");
            let whole = (len / SLOT_LEN).saturating_sub(1);
            assert_eq!(read_records(&written).unwrap().len(), whole, "{len} bytes");
        }
        // One that was not written to its end.
        for at in [SLOT_LEN, SLOT_LEN + LAST_NUMBER_AT] {
            let mut torn = bytes.clone();
            torn[at] ^= 1;
            fs::write(&written, torn).unwrap();
            assert_eq!(read_records(&written).unwrap().len(), 1);
        }
        fs::write(&written, [0xff; 1000]).unwrap();
        assert_eq!(read_owner(&written).unwrap(), None);
        let (link, fifo) = (folder.0.join("link"), folder.0.join("fifo"));
        symlink(&written, &link).unwrap();
        assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
        for path in [link, fifo, folder.0.clone(), folder.0.join("nothing")] {
            assert!(read_owner(&path).is_err() && read_records(&path).is_err());
        }
    }
}
