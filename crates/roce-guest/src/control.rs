//! The control channel: many commands over one virtio serial port.
//!
//! qemu is a child of the standard library and no `roce_netns::process::Running`, whose streams are text: its pipes
//! carry frames of bytes.
//!
//! The frames are described at the top of `guest/guestd.c`, which is the other end.

use std::collections::HashMap;
use std::fs;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::GuestError;

/// Event of a command.
#[derive(Debug)]
pub(crate) enum Event {
    Stdout(Vec<u8>),
    Stderr(Vec<u8>),
    Ended(u32),
}

/// Local end of the channel: two pipes to qemu.
#[derive(Debug)]
pub(crate) struct Control {
    to_guest: Mutex<Option<ChildStdin>>,
    commands: Mutex<Commands>,
    qemu: Mutex<Child>,
    console: PathBuf,
}

#[derive(Debug, Default)]
struct Commands {
    last_number: u32,
    /// `None` once the guest is gone.
    listeners: Option<HashMap<u32, Sender<Event>>>,
}

impl Control {
    /// Uses qemu's pipes. The receiver gets a message once the guest is ready for commands.
    pub(crate) fn new(mut qemu: Child, console: PathBuf) -> (Arc<Self>, Receiver<()>) {
        let from_guest = qemu.stdout.take().expect("qemu is started with a pipe for this");
        let to_guest = qemu.stdin.take().expect("qemu is started with a pipe for this");
        let commands = Commands { last_number: 0, listeners: Some(HashMap::new()) };
        let control = Arc::new(Self {
            to_guest: Mutex::new(Some(to_guest)),
            commands: Mutex::new(commands),
            qemu: Mutex::new(qemu),
            console,
        });
        let (ready, is_ready) = mpsc::channel();
        let reader = Arc::clone(&control);
        std::thread::spawn(move || {
            reader.read_frames(from_guest, &ready);
            // Dropping the senders wakes the threads that wait for a command.
            lock(&reader.commands).listeners = None;
        });
        (control, is_ready)
    }

    /// Runs a shell command in the guest. Returns its number and its events.
    pub(crate) fn run(&self, command: &str) -> Result<(u32, Receiver<Event>), GuestError> {
        let (news, listener) = mpsc::channel();
        let number = {
            let mut commands = lock(&self.commands);
            commands.last_number += 1;
            let number = commands.last_number;
            let Some(listeners) = &mut commands.listeners else {
                drop(commands);
                return Err(self.gone());
            };
            listeners.insert(number, news);
            number
        };
        self.send(b'R', number, command.as_bytes())?;
        Ok((number, listener))
    }

    pub(crate) fn input(&self, number: u32, bytes: &[u8]) -> Result<(), GuestError> {
        bytes.chunks(MAX_PAYLOAD).try_for_each(|chunk| self.send(b'I', number, chunk))
    }

    pub(crate) fn close_input(&self, number: u32) -> Result<(), GuestError> {
        self.send(b'C', number, &[])
    }

    pub(crate) fn kill(&self, number: u32, signal: u8) -> Result<(), GuestError> {
        self.send(b'K', number, &[signal])
    }

    /// Discards further events of a command.
    pub(crate) fn forget(&self, number: u32) {
        if let Some(listeners) = &mut lock(&self.commands).listeners {
            listeners.remove(&number);
        }
    }

    /// Closes the channel, so the guest powers off.
    pub(crate) fn close(&self) {
        lock(&self.to_guest).take();
    }

    /// Returns the qemu process.
    pub(crate) fn qemu(&self) -> MutexGuard<'_, Child> {
        lock(&self.qemu)
    }

    pub(crate) fn gone(&self) -> GuestError {
        let qemu = match self.qemu().try_wait() {
            Ok(Some(status)) => status.to_string(),
            Ok(None) => "still running".into(),
            Err(error) => error.to_string(),
        };
        GuestError::Gone { qemu, log: self.console.clone(), console: tail(&self.console) }
    }

    pub(crate) fn timed_out(&self, what: &str, limit: Duration) -> GuestError {
        GuestError::TimedOut { what: what.to_owned(), limit, console: tail(&self.console) }
    }

    fn send(&self, kind: u8, number: u32, payload: &[u8]) -> Result<(), GuestError> {
        let mut frame = Vec::with_capacity(HEADER + payload.len());
        frame.push(kind);
        frame.extend_from_slice(&number.to_le_bytes());
        let len = u32::try_from(payload.len()).unwrap_or(u32::MAX);
        frame.extend_from_slice(&len.to_le_bytes());
        frame.extend_from_slice(payload);
        let sent = match &mut *lock(&self.to_guest) {
            Some(pipe) => pipe.write_all(&frame),
            None => Err(io::ErrorKind::BrokenPipe.into()),
        };
        sent.map_err(|_| self.gone())
    }

    /// Dispatches frames until the pipe ends or a frame is invalid.
    fn read_frames(&self, mut from_guest: ChildStdout, ready: &Sender<()>) {
        while let Ok((kind, number, payload)) = read_frame(&mut from_guest) {
            let event = match kind {
                b'H' => {
                    let _ = ready.send(()); // the receiver may be gone
                    continue;
                }
                b'O' => Event::Stdout(payload),
                b'E' => Event::Stderr(payload),
                b'S' => match payload.try_into() {
                    Ok(code) => Event::Ended(u32::from_le_bytes(code)),
                    Err(_) => return,
                },
                _ => return,
            };
            let mut commands = lock(&self.commands);
            if let Some(listener) =
                commands.listeners.as_mut().and_then(|listeners| listeners.get(&number))
            {
                let _ = listener.send(event); // the process may have been dropped
            }
        }
    }
}

fn read_frame(from: &mut impl Read) -> io::Result<(u8, u32, Vec<u8>)> {
    let mut header = [0; HEADER];
    from.read_exact(&mut header)?;
    let [kind, n0, n1, n2, n3, l0, l1, l2, l3] = header;
    let len = u32::from_le_bytes([l0, l1, l2, l3]) as usize;
    if len > MAX_PAYLOAD {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut payload = vec![0; len];
    from.read_exact(&mut payload)?;
    Ok((kind, u32::from_le_bytes([n0, n1, n2, n3]), payload))
}

/// Returns the last lines of a console log, for errors.
pub(crate) fn tail(log: &Path) -> String {
    let text = fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().rev().take(15).collect();
    lines.into_iter().rev().map(|line| format!("  {}\n", line.trim_end())).collect()
}

/// Locks, also after a panic of another thread: no panic leaves the data half changed.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

const HEADER: usize = 9;
/// Maximum payload, as in `guestd.c`; a larger value means that the stream is out of step.
const MAX_PAYLOAD: usize = 1 << 20;
