//! Bytes read ahead, lent out without a copy.

use std::io::{self, Read};

/// Where the bytes of a capture come from, chunk by chunk. Everything that implements [`Read`]
/// is one; others may read in a thread of their own while this one looks at what was read.
pub trait Chunks {
    /// Takes back memory that is not looked at any more, and returns memory with the next bytes
    /// in it at [`CHUNK_ROOM`], and how many they are; 0 is the end. Memory is
    /// [`CHUNK_ROOM`] + [`CHUNK_LEN`] bytes long.
    ///
    /// # Errors
    /// The reader's reason.
    fn exchange(&mut self, used: Vec<u8>) -> io::Result<(Vec<u8>, usize)>;
}

impl<R: Read> Chunks for R {
    fn exchange(&mut self, mut used: Vec<u8>) -> io::Result<(Vec<u8>, usize)> {
        used.resize(CHUNK_ROOM + CHUNK_LEN, 0);
        loop {
            match self.read(&mut used[CHUNK_ROOM..]) {
                Ok(read) => return Ok((used, read)),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}

/// Free bytes in front of a chunk: what is left of the one before goes there. A multiple of a
/// page, and more than the longest block.
pub const CHUNK_ROOM: usize = 384 << 10;

/// Most bytes in a chunk: fits the second level of most processors' caches.
pub const CHUNK_LEN: usize = 256 << 10;

/// A window onto what is read, in bounded memory.
pub(super) struct Buffer<S> {
    source: S,
    memory: Vec<u8>,
    /// Memory to be exchanged for the next chunk.
    spare: Vec<u8>,
    start: usize,
    end: usize,
    /// Of `start`, from the start of the file.
    offset: u64,
    ended: bool,
}

impl<S> std::fmt::Debug for Buffer<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Buffer").field("offset", &self.offset).finish_non_exhaustive()
    }
}

impl<S: Chunks> Buffer<S> {
    pub(super) fn new(source: S) -> Self {
        let (memory, spare) = (Vec::new(), Vec::new());
        Self { source, memory, spare, start: 0, end: 0, offset: 0, ended: false }
    }

    /// Reads until `need` bytes are there; false where the file ends before, or where they are
    /// more than [`CHUNK_ROOM`].
    #[inline]
    pub(super) fn fill(&mut self, need: usize) -> io::Result<bool> {
        if self.end - self.start >= need {
            return Ok(true);
        }
        self.read_more(need)
    }

    fn read_more(&mut self, need: usize) -> io::Result<bool> {
        if need > CHUNK_ROOM {
            return Ok(false);
        }
        while self.end - self.start < need && !self.ended {
            let (mut chunk, len) = self.source.exchange(std::mem::take(&mut self.spare))?;
            if len == 0 || chunk.len() < CHUNK_ROOM + len {
                self.ended = true;
                break;
            }
            // Less than `need`, so it fits.
            let rest = &self.memory[self.start..self.end];
            let start = CHUNK_ROOM - rest.len();
            chunk[start..CHUNK_ROOM].copy_from_slice(rest);
            self.spare = std::mem::replace(&mut self.memory, chunk);
            (self.start, self.end) = (start, CHUNK_ROOM + len);
        }
        Ok(self.end - self.start >= need)
    }

    /// What is there.
    #[inline]
    pub(super) fn bytes(&self) -> &[u8] {
        &self.memory[self.start..self.end]
    }

    /// Goes on behind the next `len` bytes that are there.
    #[inline]
    pub(super) fn consume(&mut self, len: usize) {
        let len = len.min(self.end - self.start);
        self.start += len;
        self.offset += len as u64;
    }

    /// Goes on behind the next `len` bytes, there or not; false where the file ends before.
    pub(super) fn skip(&mut self, mut len: u64) -> io::Result<bool> {
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
}
