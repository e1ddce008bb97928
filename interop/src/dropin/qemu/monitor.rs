//! QEMU's machine protocol (QMP): a command and its reply are a line of JSON each.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::fault::Fault;

/// The time until QEMU listens, and that of a reply.
const LIMIT: Duration = Duration::from_secs(20);
/// The time between two looks for something that QEMU announces by no event.
pub(super) const PAUSE: Duration = Duration::from_millis(50);

/// The monitor of a QEMU.
#[derive(Debug)]
pub(super) struct Monitor {
    replies: BufReader<UnixStream>,
}

impl Monitor {
    /// Connects to the socket of a QEMU as soon as it listens there.
    pub(super) fn connect(path: &Path) -> Result<Self, Fault> {
        let deadline = Instant::now() + LIMIT;
        let stream = loop {
            match UnixStream::connect(path) {
                Ok(stream) => break stream,
                Err(error) if Instant::now() > deadline => {
                    return Err(Fault::ours("connect to QEMU's monitor")(error));
                }
                Err(_) => std::thread::sleep(PAUSE),
            }
        };
        stream.set_read_timeout(Some(LIMIT)).map_err(Fault::ours("limit the time of a reply"))?;
        let mut monitor = Self { replies: BufReader::new(stream) };
        let _greeting = monitor.line()?;
        monitor.execute("qmp_capabilities", &json!({}))?;
        Ok(monitor)
    }

    /// Runs a command, and returns what it returned.
    pub(super) fn execute(&mut self, command: &str, arguments: &Value) -> Result<Value, Fault> {
        let line = json!({ "execute": command, "arguments": arguments }).to_string() + "\n";
        let stream = self.replies.get_mut();
        stream.write_all(line.as_bytes()).map_err(Fault::ours("ask QEMU"))?;
        loop {
            let reply = self.line()?;
            if let Some(returned) = reply.get("return") {
                return Ok(returned.clone());
            }
            // Events lie between.
            if reply.get("event").is_none() {
                return Err(Fault::Wrong(format!("QEMU refused {command}: {reply}")));
            }
        }
    }

    fn line(&mut self) -> Result<Value, Fault> {
        let mut line = String::new();
        self.replies.read_line(&mut line).map_err(Fault::ours("read QEMU's reply"))?;
        serde_json::from_str(&line).map_err(Fault::ours("understand QEMU's reply"))
    }
}
