//! Read-ahead buffer that lends bytes without a copy.

use std::io::{self, Read};

/// A buffered reader in bounded memory.
pub(super) struct Buffer<R> {
    reader: R,
    /// [`HEADROOM`] for the rest of the previous chunk, then the chunk.
    memory: Vec<u8>,
    start: usize,
    end: usize,
    /// File offset of `start`.
    offset: u64,
    ended: bool,
    /// Frames refer to the memory, so its content must stay in place.
    is_lent: bool,
    /// Unconsumed bytes, kept while a batch has the memory.
    rest: Vec<u8>,
}

/// Reason to stop before the end of the file.
#[derive(Debug)]
pub(super) enum Halt {
    /// The read failed.
    Io(io::Error),
    /// The next bytes do not fit while frames are lent.
    Lent,
}

impl From<io::Error> for Halt {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl<R> std::fmt::Debug for Buffer<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Buffer").field("offset", &self.offset).finish_non_exhaustive()
    }
}

impl<R: Read> Buffer<R> {
    pub(super) const fn new(reader: R) -> Self {
        Self {
            reader,
            memory: Vec::new(),
            start: 0,
            end: 0,
            offset: 0,
            ended: false,
            is_lent: false,
            rest: Vec::new(),
        }
    }

    /// Reads until `need` bytes are available. Returns false if the file ends first or `need`
    /// exceeds [`HEADROOM`].
    #[inline]
    pub(super) fn fill(&mut self, need: usize) -> Result<bool, Halt> {
        if self.end - self.start >= need {
            return Ok(true);
        }
        self.read_more(need)
    }

    fn read_more(&mut self, need: usize) -> Result<bool, Halt> {
        if need > HEADROOM {
            return Ok(false);
        }
        while self.end - self.start < need && !self.ended {
            self.check_not_lent()?;
            self.memory.resize(HEADROOM + CHUNK_LEN, 0);
            // Less than `need`, so it fits.
            let start = HEADROOM - (self.end - self.start);
            self.memory.copy_within(self.start..self.end, start);
            (self.start, self.end) = (start, HEADROOM);
            match self.reader.read(&mut self.memory[HEADROOM..]) {
                Ok(0) => self.ended = true,
                Ok(read) => self.end += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(self.end - self.start >= need)
    }

    /// Returns the available bytes.
    #[inline]
    pub(super) fn bytes(&self) -> &[u8] {
        &self.memory[self.start..self.end]
    }

    /// Returns the offset of [`bytes`](Self::bytes) in [`memory`](Self::memory).
    #[inline]
    pub(super) const fn start(&self) -> usize {
        self.start
    }

    #[inline]
    pub(super) fn memory(&self) -> &[u8] {
        &self.memory
    }

    /// Consumes up to `len` available bytes.
    #[inline]
    pub(super) fn consume(&mut self, len: usize) {
        let len = len.min(self.end - self.start);
        self.start += len;
        self.offset += len as u64;
    }

    /// Consumes `len` bytes and reads as needed. Returns false if the file ends first.
    pub(super) fn skip(&mut self, mut len: u64) -> Result<bool, Halt> {
        self.check_not_lent()?;
        while len > 0 {
            if !self.fill(1)? {
                return Ok(false);
            }
            let step = (self.bytes().len() as u64).min(len);
            self.consume(step as usize);
            len -= step;
        }
        Ok(true)
    }

    pub(super) const fn offset(&self) -> u64 {
        self.offset
    }

    /// Fails while frames are lent. Called before a read that cannot be repeated.
    pub(super) const fn check_not_lent(&self) -> Result<(), Halt> {
        if self.is_lent { Err(Halt::Lent) } else { Ok(()) }
    }

    /// Keeps the memory in place until [`give_away`](Self::give_away).
    #[inline]
    pub(super) const fn lend(&mut self) {
        self.is_lent = true;
    }

    /// Returns the memory and keeps a copy of the unconsumed bytes.
    pub(super) fn give_away(&mut self) -> Vec<u8> {
        self.rest.clear();
        self.rest.extend_from_slice(&self.memory[self.start..self.end]);
        (self.start, self.end, self.is_lent) = (0, 0, false);
        std::mem::take(&mut self.memory)
    }

    /// Continues in `memory`, unless the buffer has its own.
    pub(super) fn take_over(&mut self, memory: Vec<u8>) {
        if !self.memory.is_empty() {
            return;
        }
        self.memory = memory;
        self.memory.resize(HEADROOM + CHUNK_LEN, 0);
        self.start = HEADROOM.saturating_sub(self.rest.len());
        self.end = self.start + self.rest.len();
        self.memory[self.start..self.end].copy_from_slice(&self.rest);
    }
}

/// Bytes before a chunk, for the rest of the previous one. A multiple of the page size, and more
/// than the longest block.
const HEADROOM: usize = 384 << 10;

/// Maximum bytes of a chunk; fits the level 2 cache of most processors.
const CHUNK_LEN: usize = 256 << 10;
