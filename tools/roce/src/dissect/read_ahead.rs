//! Reading a file in a thread of its own, while another looks at what was read.

use std::fs::File;
use std::io;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

use roce_dissect::{CHUNK_LEN, CHUNK_ROOM, Chunks};

/// A file that is read a few chunks ahead.
#[derive(Debug)]
pub(super) struct ReadAhead {
    filled: Receiver<io::Result<(Vec<u8>, usize)>>,
    used: SyncSender<Vec<u8>>,
}

impl ReadAhead {
    /// Begins to read.
    pub(super) fn new(mut file: File) -> Self {
        let (fill, filled) = sync_channel(CHUNKS);
        let (used, empty) = sync_channel::<Vec<u8>>(2 * CHUNKS);
        for _ in 0..CHUNKS {
            // There is room: nobody has sent anything yet.
            let _ = used.try_send(vec![0; CHUNK_ROOM + CHUNK_LEN]);
        }
        // It ends when the file does, when reading fails, or when nobody wants more.
        thread::spawn(move || {
            while let Ok(memory) = empty.recv() {
                let chunk = file.exchange(memory);
                let is_last = !matches!(chunk, Ok((_, 1..)));
                if fill.send(chunk).is_err() || is_last {
                    break;
                }
            }
        });
        Self { filled, used }
    }
}

impl Chunks for ReadAhead {
    fn exchange(&mut self, used: Vec<u8>) -> io::Result<(Vec<u8>, usize)> {
        if !used.is_empty() {
            // The thread may have ended, and wants no more.
            let _ = self.used.try_send(used);
        }
        match self.filled.recv() {
            Ok(chunk) => chunk,
            // It told its last before it ended.
            Err(_) => Ok((Vec::new(), 0)),
        }
    }
}

/// Chunks in flight: enough for the two threads not to wait for each other.
const CHUNKS: usize = 4;
