//! Output of a program, read by threads while it runs.

use std::io::{BufRead, BufReader, Read};
use std::mem;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::launch::Output;

/// What is known of a program that runs.
#[derive(Debug, Default)]
pub(super) struct Streams {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) has_exited: bool,
    pub(super) stdout: Stream,
    pub(super) stderr: Stream,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum StreamKind {
    Stdout,
    Stderr,
}

/// A stream of a program.
#[derive(Debug, Default)]
pub(super) struct Stream {
    /// Bytes that were not taken yet.
    kept: Vec<u8>,
    /// The last lines that were taken.
    taken: Vec<String>,
    is_open: bool,
}

impl State {
    /// Returns true if the program has ended, and all processes that had its output.
    pub(super) fn is_complete(&self) -> bool {
        self.has_exited && !self.stdout.is_open && !self.stderr.is_open
    }

    /// Returns the last lines of standard error, or else of standard output: some programs report errors
    /// there.
    pub(super) fn last_lines(&self) -> String {
        let lines = self.stderr.last_lines();
        if lines.is_empty() { self.stdout.last_lines() } else { lines }
    }

    fn stream(&mut self, kind: StreamKind) -> &mut Stream {
        match kind {
            StreamKind::Stdout => &mut self.stdout,
            StreamKind::Stderr => &mut self.stderr,
        }
    }
}

impl Stream {
    /// Takes a line without its newline; the inner `None` is the end of the stream. `None` if the next line is
    /// not complete.
    pub(super) fn take_line(&mut self) -> Option<Option<String>> {
        let len = match self.kept.iter().position(|byte| *byte == b'\n') {
            Some(at) => at + 1,
            None if self.is_open => return None,
            None if self.kept.is_empty() => return Some(None),
            None => self.kept.len(),
        };
        let line: Vec<u8> = self.kept.drain(..len).collect();
        let line = text(line.strip_suffix(b"\n").unwrap_or(&line));
        self.note(&line);
        Some(Some(line))
    }

    /// Takes all that is left.
    pub(super) fn take_rest(&mut self) -> String {
        text(&mem::take(&mut self.kept))
    }

    fn note(&mut self, line: &str) {
        if self.taken.len() == MAX_LINES {
            self.taken.remove(0);
        }
        self.taken.push(line.to_owned());
    }

    fn last_lines(&self) -> String {
        let kept = text(&self.kept);
        let lines = self.taken.iter().map(String::as_str).chain(kept.lines());
        // Rules and frames say nothing.
        let lines: Vec<String> = lines
            .map(str::trim)
            .filter(|line| line.contains(char::is_alphabetic))
            .map(|line| line.chars().filter(|letter| !letter.is_control()).collect())
            .collect();
        lines[lines.len().saturating_sub(MAX_LINES)..].join(" / ")
    }
}

impl Streams {
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until `found` returns a value, at most so long.
    pub(super) fn wait<T>(
        &self,
        limit: Duration,
        mut found: impl FnMut(&mut State) -> Option<T>,
    ) -> Option<T> {
        // `None`: longer than there are instants.
        let deadline = Instant::now().checked_add(limit);
        let mut state = self.lock();
        loop {
            if let Some(value) = found(&mut state) {
                return Some(value);
            }
            let left = deadline.map(|at| at.saturating_duration_since(Instant::now()));
            state = match left {
                Some(Duration::ZERO) => return None,
                Some(left) => {
                    let waited = self.changed.wait_timeout(state, left);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
                None => self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
            };
        }
    }

    pub(super) fn note_exit(&self) {
        self.lock().has_exited = true;
        self.changed.notify_all();
    }

    /// Reads a stream to its end, on a thread.
    pub(super) fn read(
        self: &Arc<Self>,
        kind: StreamKind,
        pipe: impl Read + Send + 'static,
        output: Output,
    ) {
        self.lock().stream(kind).is_open = true;
        let reader = Reader { streams: Arc::clone(self), kind };
        thread::spawn(move || match output {
            Output::EachLine(see) => reader.see_lines(pipe, &*see),
            _ => reader.keep(pipe),
        });
    }
}

/// A thread's side of a stream; dropping it closes the stream.
struct Reader {
    streams: Arc<Streams>,
    kind: StreamKind,
}

impl Reader {
    fn keep(&self, mut pipe: impl Read) {
        let mut buffer = [0; 1 << 13];
        loop {
            let len = match pipe.read(&mut buffer) {
                Ok(0) => return,
                Ok(len) => len,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                // Output before an error counts.
                Err(_) => return,
            };
            let mut state = self.streams.lock();
            let kept = &mut state.stream(self.kind).kept;
            // The program must not stop for a full pipe, so what is too much is read all the same.
            let room = MAX_KEPT.saturating_sub(kept.len());
            kept.extend_from_slice(&buffer[..len.min(room)]);
            drop(state);
            self.streams.changed.notify_all();
        }
    }

    fn see_lines(&self, pipe: impl Read, see: &dyn Fn(&str)) {
        let mut pipe = BufReader::new(pipe);
        let mut line = Vec::new();
        while pipe.read_until(b'\n', &mut line).is_ok_and(|len| len > 0) {
            let seen = text(line.strip_suffix(b"\n").unwrap_or(&line));
            line.clear();
            self.streams.lock().stream(self.kind).note(&seen);
            see(&seen);
        }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.streams.lock().stream(self.kind).is_open = false;
        self.streams.changed.notify_all();
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Number of last lines in an error: programs print the reason of a failure last.
const MAX_LINES: usize = 4;
/// Bytes of a stream that are kept.
const MAX_KEPT: usize = 16 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_lines_with_words_are_those_of_an_error() {
        let of = |errors: &str, output: &str| {
            let stream = |text: &str| Stream { kept: text.into(), ..Stream::default() };
            let (stdout, stderr) = (stream(output), stream(errors));
            State { has_exited: true, stdout, stderr }.last_lines()
        };
        assert_eq!(of("----\nno route\n\n", "x"), "no route");
        assert_eq!(of("1st\n2nd\n3rd\n4th\n5th\n------\n", ""), "2nd / 3rd / 4th / 5th");
        assert_eq!(of("", "on stdout\n"), "on stdout");
        assert_eq!(of("", ""), "");
    }

    #[test]
    fn lines_that_were_taken_are_among_the_last() {
        let mut stream =
            Stream { kept: b"one\ntwo\nthr".to_vec(), is_open: true, ..Stream::default() };
        assert_eq!(stream.take_line(), Some(Some("one".to_owned())));
        assert_eq!(stream.take_line(), Some(Some("two".to_owned())));
        assert_eq!(stream.take_line(), None);
        assert_eq!(stream.last_lines(), "one / two / thr");
        stream.is_open = false;
        assert_eq!(stream.take_line(), Some(Some("thr".to_owned())));
        assert_eq!(stream.take_line(), Some(None));
    }
}
