//! Programs in a host of the network: started, read, and ended.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io::{self, Read};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use roce_netns::Host;

/// A program with its arguments, and where it is to run.
///
/// ```
/// use roce_bench::suite::Launch;
/// let launch = Launch::new("iperf3").args(["-s", "-1"]).on_cpu(1);
/// assert_eq!(launch.in_words(), "taskset -c 1 iperf3 -s -1");
/// ```
#[derive(Clone, Debug)]
pub struct Launch {
    program: OsString,
    arguments: Vec<OsString>,
    environment: Vec<(OsString, OsString)>,
    cpu: Option<usize>,
}

impl Launch {
    /// A program, by name or path.
    pub fn new(program: impl AsRef<OsStr>) -> Self {
        Self {
            program: program.as_ref().to_owned(),
            arguments: Vec::new(),
            environment: Vec::new(),
            cpu: None,
        }
    }

    /// What a command starts.
    pub fn from_command(command: &Command) -> Self {
        let set = command.get_envs().filter_map(|(name, value)| Some((name, value?)));
        Self {
            program: command.get_program().to_owned(),
            arguments: command.get_args().map(OsStr::to_owned).collect(),
            environment: set.map(|(name, value)| (name.to_owned(), value.to_owned())).collect(),
            cpu: None,
        }
    }

    /// More arguments.
    #[must_use]
    pub fn args<A: AsRef<OsStr>>(mut self, arguments: impl IntoIterator<Item = A>) -> Self {
        self.arguments.extend(arguments.into_iter().map(|each| each.as_ref().to_owned()));
        self
    }

    /// One more argument.
    #[must_use]
    pub fn arg(self, argument: impl AsRef<OsStr>) -> Self {
        self.args([argument])
    }

    /// A variable of its environment.
    #[must_use]
    pub fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.environment.push((name.into(), value.as_ref().to_owned()));
        self
    }

    /// On one processor only, with all its threads.
    #[must_use]
    pub fn on_cpu(mut self, cpu: usize) -> Self {
        self.cpu = Some(cpu);
        self
    }

    /// As one would type it.
    pub fn in_words(&self) -> String {
        let mut words: Vec<String> = Vec::new();
        for (name, value) in &self.environment {
            words.push(format!("{}={}", name.display(), value.display()));
        }
        if let Some(cpu) = self.cpu {
            words.push(format!("taskset -c {cpu}"));
        }
        words.push(self.program.display().to_string());
        words.extend(self.arguments.iter().map(|each| each.display().to_string()));
        words.join(" ")
    }

    fn command(&self) -> Command {
        // However we end, what we started ends too; the option survives both `exec`s.
        let [program, options @ ..] = WITH_ITS_PARENT;
        let mut command = Command::new(program);
        command.args(options);
        if let Some(cpu) = self.cpu {
            command.args(["taskset", "-c", &cpu.to_string()]);
        }
        command.arg(&self.program).args(&self.arguments);
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }
}

/// The program that starts others such that they end with their parent.
const WITH_ITS_PARENT: [&str; 4] = ["setpriv", "--pdeathsig", "KILL", "--"];

/// A program that runs; dropping it ends it.
#[derive(Debug)]
pub struct Running {
    name: String,
    child: Child,
    output: Receiver<(Stream, Vec<u8>)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stream {
    Output,
    Errors,
}

impl Running {
    /// Starts a program in a host.
    ///
    /// # Errors
    /// The system's reason, naming the program.
    pub fn start(host: &Host, launch: &Launch) -> Result<Self, String> {
        let name = launch.program.display().to_string();
        let name = name.rsplit('/').next().unwrap_or(&name).to_owned();
        let spawned = host.spawn(launch.command());
        let mut child = spawned.map_err(|error| format!("start {name}: {error}"))?;
        let (tell, output) = mpsc::channel();
        if let Some(pipe) = child.stdout.take() {
            listen(pipe, Stream::Output, tell.clone());
        }
        if let Some(pipe) = child.stderr.take() {
            listen(pipe, Stream::Errors, tell);
        }
        Ok(Self { name, child, output })
    }

    /// Its process.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Whether it has ended.
    pub fn has_ended(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(Some(_)) | Err(_))
    }

    /// Waits for its end and returns what it printed.
    ///
    /// # Errors
    /// It took longer than `timeout` and was ended, or did not end well; the text has what it
    /// said.
    pub fn finish(mut self, timeout: Duration) -> Result<String, String> {
        let deadline = Instant::now() + timeout;
        let (mut said, mut complained) = (Vec::new(), Vec::new());
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.output.recv_timeout(left) {
                Ok((Stream::Output, bytes)) => said = bytes,
                Ok((Stream::Errors, bytes)) => complained = bytes,
                // Both pipes are closed: it ends, or its last child has.
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => {
                    self.terminate();
                    let seconds = timeout.as_secs_f32();
                    return Err(format!("{} did not end within {seconds:.0} s", self.name));
                }
            }
        }
        let said = String::from_utf8_lossy(&said).into_owned();
        let status = self.child.wait().map_err(|error| format!("{}: {error}", self.name))?;
        if status.success() {
            return Ok(said);
        }
        Err(failure_message(&self.name, status, &String::from_utf8_lossy(&complained), &said))
    }
}

impl Running {
    /// Lets it end what it has started, as `mpirun` and `roce run` do; dropping it then ends it.
    pub(super) fn terminate(&mut self) {
        let id = self.child.id().to_string();
        let asked = Command::new("kill").args(["-TERM", &id]).status();
        let deadline = Instant::now() + EXIT_TIMEOUT;
        while asked.is_ok() && !self.has_ended() && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // If it has ended, all the better.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn listen(
    mut pipe: impl Read + Send + 'static,
    which: Stream,
    tell: mpsc::Sender<(Stream, Vec<u8>)>,
) {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        // Output before an error counts. A send fails only when the receiver is gone.
        let _ = pipe.by_ref().take(MAX_OUTPUT).read_to_end(&mut bytes);
        let _ = tell.send((which, bytes));
        // It must not stop for a full pipe.
        let _ = io::copy(&mut pipe, &mut io::sink());
    });
}

fn failure_message(name: &str, status: ExitStatus, errors: &str, output: &str) -> String {
    // Some programs say on their standard output what went wrong.
    let said = |text: &str| {
        let lines = text.lines().map(str::trim);
        // Rules and frames say nothing.
        let lines: Vec<String> = lines
            .filter(|line| line.contains(char::is_alphabetic))
            .map(|line| line.chars().filter(|letter| !letter.is_control()).collect())
            .collect();
        let last = lines.len().saturating_sub(MAX_LINES);
        lines.get(last..).filter(|lines| !lines.is_empty()).map(|lines| lines.join(" / "))
    };
    match said(errors).or_else(|| said(output)) {
        Some(text) => format!("{name}: {text} ({status})"),
        None => format!("{name}: {status}"),
    }
}

/// Lines of a complaint that are passed on; what went wrong is said last.
const MAX_LINES: usize = 4;
/// Bytes of output that are kept.
const MAX_OUTPUT: u64 = 1 << 20;

/// What both ends of a measurement printed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PairOutput {
    /// The end that listened.
    pub server: String,
    /// The end that began.
    pub client: String,
}

/// What shows that a server takes clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Readiness {
    /// It listens at this TCP port.
    Tcp(u16),
    /// It listens by rdma_cm, on our libibverbs.
    RdmaCm,
}

impl Readiness {
    /// Returns true if a program in the host of a process is ready.
    fn is_seen(self, process: u32) -> bool {
        match self {
            Self::Tcp(port) => roce_netns::is_listening(process, Some(port)),
            Self::RdmaCm => roce_netns::has_abstract_socket(process, "roce/cm-listening/"),
        }
    }
}

impl From<u16> for Readiness {
    fn from(port: u16) -> Self {
        Self::Tcp(port)
    }
}

impl fmt::Display for Readiness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(port) => write!(f, "at port {port}"),
            Self::RdmaCm => f.write_str("by rdma_cm"),
        }
    }
}

/// Runs a server and, as soon as it listens, a client; both have to end well.
///
/// # Errors
/// What the first of them that failed said; of the other, too, if it is known by then.
pub fn run_pair(
    (server_host, server): (&Host, &Launch),
    readiness: impl Into<Readiness>,
    (client_host, client): (&Host, &Launch),
    timeout: Duration,
) -> Result<PairOutput, String> {
    let mut serving = Running::start(server_host, server)?;
    wait_until_listening(&mut serving, readiness)
        .or_else(|why| if serving.has_ended() { Ok(()) } else { Err(why) })?;
    if serving.has_ended() {
        return match serving.finish(timeout) {
            Ok(_) => Err("the server ended before its client came".to_owned()),
            Err(why) => Err(why),
        };
    }
    let client = match Running::start(client_host, client)?.finish(timeout) {
        Ok(client) => client,
        Err(why) if serving.has_ended() => {
            return match serving.finish(EXIT_TIMEOUT) {
                Err(also) => Err(format!("{why}; {also}")),
                Ok(_) => Err(why),
            };
        }
        Err(why) => return Err(why),
    };
    Ok(PairOutput { server: serving.finish(EXIT_TIMEOUT)?, client })
}

/// Waits until a program in the host listens.
///
/// # Errors
/// The server ended, or takes too long.
pub(crate) fn wait_until_listening(
    server: &mut Running,
    readiness: impl Into<Readiness>,
) -> Result<(), String> {
    let readiness = readiness.into();
    let deadline = Instant::now() + START_TIMEOUT;
    while !readiness.is_seen(server.id()) {
        if server.has_ended() || Instant::now() > deadline {
            return Err(format!("{} does not listen {readiness}", server.name));
        }
        // Nothing is measured yet.
        thread::sleep(Duration::from_millis(3));
    }
    Ok(())
}

/// How long a server may take to listen.
const START_TIMEOUT: Duration = Duration::from_secs(10);
/// How long it may take to notice that its client is gone.
const EXIT_TIMEOUT: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;

    use super::*;

    #[test]
    fn a_program_that_fails_is_quoted() {
        let failed = ExitStatus::from_raw(0x100);
        let of = |errors, output| failure_message("iperf3", failed, errors, output);
        assert_eq!(of("----\nno route\n\n", "x"), "iperf3: no route (exit status: 1)");
        let long = of("1st\n2nd\n3rd\n4th\n5th\n------\n", "");
        assert_eq!(long, "iperf3: 2nd / 3rd / 4th / 5th (exit status: 1)");
        assert_eq!(of("", "on stdout\n"), "iperf3: on stdout (exit status: 1)");
        assert_eq!(of("", ""), "iperf3: exit status: 1");
    }

    #[test]
    fn a_command_becomes_a_launch_with_its_environment() {
        let mut command = Command::new("mpirun");
        command.args(["-n", "2"]).env("A", "1");
        assert_eq!(Launch::from_command(&command).in_words(), "A=1 mpirun -n 2");
    }
}
