//! Bytes read ahead, lent out without a copy.

use std::io::{self, Read};

/// A window onto what is read, in bounded memory.
pub(super) struct Buffer<R> {
    reader: R,
    /// [`ROOM`] for what is left of the last chunk, and behind it the chunk.
    memory: Vec<u8>,
    start: usize,
    end: usize,
    /// Of `start`, from the start of the file.
    offset: u64,
    ended: bool,
    /// What was found in the memory is not done with: it must stay where it is.
    is_lent: bool,
    /// What was left when the memory was given away.
    rest: Vec<u8>,
}

/// Why nothing was found, though the file has not ended.
#[derive(Debug)]
pub(super) enum Halt {
    /// The reader's reason.
    Io(io::Error),
    /// There is no place for the next bytes while frames are lent out.
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

    /// Reads until `need` bytes are there; false where the file ends before, or where they are
    /// more than [`ROOM`].
    #[inline]
    pub(super) fn fill(&mut self, need: usize) -> Result<bool, Halt> {
        if self.end - self.start >= need {
            return Ok(true);
        }
        self.read_more(need)
    }

    fn read_more(&mut self, need: usize) -> Result<bool, Halt> {
        if need > ROOM {
            return Ok(false);
        }
        while self.end - self.start < need && !self.ended {
            self.settle()?;
            self.memory.resize(ROOM + CHUNK_LEN, 0);
            // Less than `need`, so it fits.
            let start = ROOM - (self.end - self.start);
            self.memory.copy_within(self.start..self.end, start);
            (self.start, self.end) = (start, ROOM);
            match self.reader.read(&mut self.memory[ROOM..]) {
                Ok(0) => self.ended = true,
                Ok(read) => self.end += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(self.end - self.start >= need)
    }

    /// What is there.
    #[inline]
    pub(super) fn bytes(&self) -> &[u8] {
        &self.memory[self.start..self.end]
    }

    /// Where [`bytes`](Self::bytes) begin in [`memory`](Self::memory).
    #[inline]
    pub(super) const fn start(&self) -> usize {
        self.start
    }

    #[inline]
    pub(super) fn memory(&self) -> &[u8] {
        &self.memory
    }

    /// Goes on behind the next `len` bytes that are there.
    #[inline]
    pub(super) fn consume(&mut self, len: usize) {
        let len = len.min(self.end - self.start);
        self.start += len;
        self.offset += len as u64;
    }

    /// Goes on behind the next `len` bytes, there or not; false where the file ends before.
    pub(super) fn skip(&mut self, mut len: u64) -> Result<bool, Halt> {
        self.settle()?;
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

    /// For what may have to read on and cannot be begun again.
    pub(super) const fn settle(&self) -> Result<(), Halt> {
        if self.is_lent { Err(Halt::Lent) } else { Ok(()) }
    }

    /// From now on nothing is read over what is there.
    #[inline]
    pub(super) const fn lend(&mut self) {
        self.is_lent = true;
    }

    /// Gives the memory away, and keeps what was not consumed.
    pub(super) fn give_away(&mut self) -> Vec<u8> {
        self.rest.clear();
        self.rest.extend_from_slice(&self.memory[self.start..self.end]);
        (self.start, self.end, self.is_lent) = (0, 0, false);
        std::mem::take(&mut self.memory)
    }

    /// Takes memory to go on in, unless it still has its own.
    pub(super) fn take_over(&mut self, memory: Vec<u8>) {
        if !self.memory.is_empty() {
            return;
        }
        self.memory = memory;
        self.memory.resize(ROOM + CHUNK_LEN, 0);
        self.start = ROOM.saturating_sub(self.rest.len());
        self.end = self.start + self.rest.len();
        self.memory[self.start..self.end].copy_from_slice(&self.rest);
    }
}

/// Free bytes in front of a chunk: what is left of the one before goes there. A multiple of a
/// page, and more than the longest block.
const ROOM: usize = 384 << 10;

/// Most bytes in a chunk: fits the second level of most processors' caches.
const CHUNK_LEN: usize = 256 << 10;
