//! Bytes read ahead, lent out without a copy.

use std::io::{self, Read};

/// A window onto what is read, in bounded memory.
pub(super) struct Buffer<R> {
    reader: R,
    memory: Vec<u8>,
    start: usize,
    end: usize,
    /// Of `start`, from the start of the file.
    offset: u64,
    ended: bool,
}

impl<R> std::fmt::Debug for Buffer<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Buffer").field("offset", &self.offset).finish_non_exhaustive()
    }
}

impl<R: Read> Buffer<R> {
    pub(super) fn new(reader: R) -> Self {
        Self { reader, memory: vec![0; CAPACITY], start: 0, end: 0, offset: 0, ended: false }
    }

    /// Reads until `need` bytes are there; false where the file ends before.
    ///
    /// Asking for more than [`CAPACITY`] finds as much as fits, and is false.
    #[inline]
    pub(super) fn fill(&mut self, need: usize) -> io::Result<bool> {
        if self.end - self.start >= need {
            return Ok(true);
        }
        self.read_more(need)
    }

    fn read_more(&mut self, need: usize) -> io::Result<bool> {
        if self.ended {
            return Ok(false);
        }
        // What is left is less than a frame. At the front, always the same memory is read into,
        // and stays in the processor's cache.
        self.memory.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        self.start = 0;
        while self.end < need && !self.ended && self.end < self.memory.len() {
            let most = self.memory.len().min(self.end + READ_LEN);
            match self.reader.read(&mut self.memory[self.end..most]) {
                Ok(0) => self.ended = true,
                Ok(read) => self.end += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
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

/// More than twice the longest block.
const CAPACITY: usize = 1 << 20;

/// Read at once: fits the second level of most processors' caches.
const READ_LEN: usize = 256 << 10;
