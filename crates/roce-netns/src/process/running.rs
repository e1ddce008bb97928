//! A program that runs.

use std::io::{self, PipeReader, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ChildStdin, Command, ExitStatus};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::signal::{self, Signal};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::Pid;

use super::error::ProcessError;
use super::launch::Launch;
use super::outcome::Outcome;
use super::readiness::Readiness;
use super::streams::{State, StreamKind, Streams};
use crate::Host;

/// A program that runs.
///
/// Threads read its output, so it never waits for space in a pipe. Dropping it ends the program: by SIGTERM and,
/// after [`Launch::grace`], by SIGKILL. It is reaped then or by [`wait`](Self::wait), not before, so its process
/// id stays its own.
#[derive(Debug)]
pub struct Running {
    name: String,
    child: Child,
    process: Pid,
    stdin: Option<ChildStdin>,
    streams: Arc<Streams>,
    grace: Duration,
    is_reaped: bool,
}

impl Launch {
    /// Starts the program in the network namespace of this process.
    ///
    /// # Errors
    /// [`ProcessError::Start`].
    pub fn start(&self) -> Result<Running, ProcessError> {
        Running::start(self, |mut command| command.spawn())
    }

    /// Starts the program in a host.
    ///
    /// # Errors
    /// [`ProcessError::Start`].
    pub fn start_in(&self, host: &Host) -> Result<Running, ProcessError> {
        Running::start(self, |command| host.spawn(command))
    }
}

impl Running {
    fn start(
        launch: &Launch,
        spawn: impl FnOnce(Command) -> io::Result<Child>,
    ) -> Result<Self, ProcessError> {
        let refused = |source| ProcessError::Start { program: launch.name(), source };
        let mut command = launch.command();
        let joined = launch.joins_stderr.then(|| join_streams(&mut command));
        let joined = joined.transpose().map_err(refused)?;
        let mut child = spawn(command).map_err(refused)?;
        let process = Pid::from_raw(child.id().cast_signed());
        let streams = Arc::<Streams>::default();
        if let Some(pipe) = child.stdout.take() {
            streams.read(StreamKind::Stdout, pipe, launch.stdout.clone());
        }
        if let Some(pipe) = child.stderr.take() {
            streams.read(StreamKind::Stderr, pipe, launch.stderr.clone());
        }
        if let Some(pipe) = joined {
            streams.read(StreamKind::Stdout, pipe, launch.stdout.clone());
        }
        let waiting = Arc::clone(&streams);
        thread::spawn(move || {
            while status_of(process, WaitPidFlag::empty()) == Err(Errno::EINTR) {}
            waiting.note_exit();
        });
        Ok(Self {
            name: launch.name(),
            process,
            stdin: child.stdin.take(),
            child,
            streams,
            grace: launch.grace,
            is_reaped: false,
        })
    }

    /// Returns its process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Returns its exit status, or `None` if it runs.
    pub fn exit_status(&self) -> Option<ExitStatus> {
        status_of(self.process, WaitPidFlag::WNOHANG).ok().flatten()
    }

    /// Waits for its end, at most so long, and returns its exit status. It does not wait for its output.
    pub fn wait_for_exit(&self, limit: Duration) -> Option<ExitStatus> {
        self.streams.wait(limit, |state| state.has_exited.then_some(()))?;
        self.exit_status()
    }

    /// Returns true if it has ended. Processes that it has started may still have its output.
    pub fn has_ended(&self) -> bool {
        // An error: there is no such child, or a real-time signal has ended it.
        status_of(self.process, WaitPidFlag::WNOHANG) != Ok(None)
    }

    /// Sends it a signal. A program that has ended gets none.
    pub fn signal(&self, signal: Signal) {
        // It was not reaped, so the id is not another process's; if it has ended there is nothing to do.
        let _ = signal::kill(self.process, signal);
    }

    /// Takes the next line of its standard output, without the newline. `None` at the end.
    ///
    /// # Errors
    /// [`ProcessError::Silent`] if there is no whole line within `limit`.
    pub fn read_line(&self, limit: Duration) -> Result<Option<String>, ProcessError> {
        let line = self.streams.wait(limit, |state| state.stdout.take_line());
        line.ok_or_else(|| {
            let (program, printed) = (self.name.clone(), self.last_lines());
            ProcessError::Silent { program, limit, printed }
        })
    }

    /// Writes a line to its standard input.
    ///
    /// # Errors
    /// The system's, if it does not read any more; [`io::ErrorKind::BrokenPipe`] if it was started without
    /// [`Launch::with_stdin`] or its input was closed.
    pub fn write_line(&mut self, line: &str) -> io::Result<()> {
        let stdin = self.stdin.as_mut().ok_or(io::ErrorKind::BrokenPipe)?;
        stdin.write_all(format!("{line}\n").as_bytes())
    }

    /// Closes its standard input.
    pub fn close_stdin(&mut self) {
        self.stdin = None;
    }

    /// Waits until the program, or another in its network namespace, listens at one of `places`.
    ///
    /// # Errors
    /// [`ProcessError::NotListening`] if it ends before or takes longer than `limit`.
    pub fn wait_until_listening(
        &self,
        places: &[Readiness],
        limit: Duration,
    ) -> Result<(), ProcessError> {
        let start = Instant::now();
        while !places.iter().any(|place| place.is_seen(self.id())) {
            if self.has_ended() || start.elapsed() > limit {
                let place: Vec<String> = places.iter().map(Readiness::to_string).collect();
                let (program, place) = (self.name.clone(), place.join(" or "));
                return Err(ProcessError::NotListening {
                    program,
                    place,
                    printed: self.last_lines(),
                });
            }
            thread::sleep(LISTENING_STEP);
        }
        Ok(())
    }

    /// Closes its standard input and waits for its end and that of its output, which processes that it has
    /// started may have. After `limit` it is ended; [`Outcome::exceeded`] tells.
    ///
    /// # Errors
    /// [`ProcessError::Wait`] if the system refuses.
    pub fn wait(mut self, limit: Duration) -> Result<Outcome, ProcessError> {
        self.close_stdin();
        let is_over = self.streams.wait(limit, |state| state.is_complete().then_some(())).is_some();
        if is_over {
            self.reap()?;
        } else {
            self.stop(State::is_complete)?;
            self.drain();
        }
        self.outcome((!is_over).then_some(limit))
    }

    /// Ends it as [`wait`](Self::wait) does after its limit.
    ///
    /// # Errors
    /// [`ProcessError::Wait`] if the system refuses.
    pub fn end(mut self) -> Result<Outcome, ProcessError> {
        self.stop(State::is_complete)?;
        self.drain();
        self.outcome(None)
    }

    /// Ends it: by SIGTERM if `is_over` returns true within the grace, and else by SIGKILL.
    fn stop(&mut self, is_over: impl Fn(&State) -> bool) -> Result<(), ProcessError> {
        if self.is_reaped {
            return Ok(());
        }
        if !self.grace.is_zero() {
            self.signal(Signal::SIGTERM);
            self.streams.wait(self.grace, |state| is_over(state).then_some(()));
        }
        self.signal(Signal::SIGKILL);
        self.reap().map(drop)
    }

    /// Lets the threads read what is left in the pipes.
    fn drain(&self) {
        self.streams.wait(DRAIN_TIMEOUT, |state| state.is_complete().then_some(()));
    }

    fn reap(&mut self) -> Result<ExitStatus, ProcessError> {
        self.is_reaped = true;
        let waited = self.child.wait();
        waited.map_err(|source| ProcessError::Wait { program: self.name.clone(), source })
    }

    fn outcome(&mut self, exceeded: Option<Duration>) -> Result<Outcome, ProcessError> {
        let status = self.reap()?;
        let mut state = self.streams.lock();
        let printed = state.last_lines();
        let (stdout, stderr) = (state.stdout.take_rest(), state.stderr.take_rest());
        Ok(Outcome { status, stdout, stderr, exceeded, program: self.name.clone(), printed })
    }

    fn last_lines(&self) -> String {
        self.streams.lock().last_lines()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Its output and status are not asked for.
        let _ = self.stop(|state| state.has_exited);
    }
}

/// Gives a program one pipe for both its streams, and returns the end to read.
fn join_streams(command: &mut Command) -> io::Result<PipeReader> {
    let (reader, writer) = io::pipe()?;
    command.stdout(writer.try_clone()?).stderr(writer);
    Ok(reader)
}

/// Returns the exit status of a child, which stays to be reaped; `None` if it runs.
fn status_of(process: Pid, flags: WaitPidFlag) -> Result<Option<ExitStatus>, Errno> {
    let flags = flags | WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT;
    Ok(match waitid(Id::Pid(process), flags)? {
        WaitStatus::Exited(_, code) => Some(ExitStatus::from_raw(code << 8)),
        WaitStatus::Signaled(_, signal, has_core) => {
            Some(ExitStatus::from_raw(signal as i32 | if has_core { 0x80 } else { 0 }))
        }
        _ => None,
    })
}

/// Time between two looks at a program that is to listen.
const LISTENING_STEP: Duration = Duration::from_millis(3);
/// Time in which the output of a program that was killed is read to its end.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(1);
