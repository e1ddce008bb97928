//! A process with connection management that does what lines on its standard input say.
//!
//! | line | what it does |
//! |---|---|
//! | `listen ADDRESS:PORT` | waits for requests |
//! | `bind ADDRESS:PORT` | binds an identifier and destroys it; says `bound` or `in use` |
//! | `hold ADDRESS:PORT` | binds an identifier and keeps it; says `held` or `in use` |
//! | `release` | destroys that |
//! | `connect ADDRESS:PORT` | sends a request |
//! | `accept`, `establish`, `disconnect` | does so with the last connection |
//! | `exit`, `exec` | exits, or becomes `cat`, which ends with its standard input |
//!
//! It prints its number, and a line for each event. Connections are written down as the plan of
//! the run says.

use std::error::Error;
use std::io::BufRead;
use std::net::SocketAddr;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::mpsc::{self, Receiver, TryRecvError};
use std::time::Duration;

use roce_tests::fixtures::device_config;
use roce_verbs::cm::{
    ConnectionParameters, Error as CmError, Event, EventChannel, EventKind, Id, PortSpace,
};
use roce_verbs::{DeviceConfig, QueuePair, environment};

type Outcome<T = ()> = Result<T, Box<dyn Error>>;

/// Time in which the process drives its devices before it looks for a line.
const STEP: Duration = Duration::from_millis(2);

struct Process {
    channel: EventChannel,
    listener: Option<Id>,
    held: Option<Id>,
    connection: Option<Id>,
    queue_pairs: Vec<QueuePair>,
}

fn main() -> Outcome {
    let plan = environment::run_plan()?;
    let connection_file = plan.map(|plan| plan.connection_file("eth0"));
    let config = DeviceConfig { connection_file, ..device_config() };
    let mut process = Process {
        channel: EventChannel::new(config)?,
        listener: None,
        held: None,
        connection: None,
        queue_pairs: Vec::new(),
    };
    println!("process {}", std::process::id());
    let lines = lines();
    loop {
        match lines.try_recv() {
            Ok(line) => process.obey(&line)?,
            Err(TryRecvError::Disconnected) => return Ok(()),
            Err(TryRecvError::Empty) => {}
        }
        if let Some(event) = process.channel.next(Some(STEP))? {
            process.tell(event)?;
        }
    }
}

/// Returns the lines of standard input.
fn lines() -> Receiver<String> {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                break;
            }
        }
    });
    receiver
}

impl Process {
    fn obey(&mut self, line: &str) -> Outcome {
        let (word, argument) = line.split_once(' ').unwrap_or((line, ""));
        let address = || argument.parse::<SocketAddr>();
        match word {
            "listen" => {
                let id = self.channel.create_id(PortSpace::TCP, 0)?;
                id.bind(address()?)?;
                id.listen(8)?;
                self.listener = Some(id);
                println!("listening");
            }
            "bind" | "hold" => {
                let id = self.channel.create_id(PortSpace::TCP, 0)?;
                match id.bind(address()?) {
                    Ok(()) if word == "hold" => {
                        self.held = Some(id);
                        println!("held");
                    }
                    Ok(()) => println!("bound"),
                    Err(CmError::AddressInUse { .. } | CmError::AddressOverlaps { .. }) => {
                        println!("in use")
                    }
                    Err(error) => return Err(error.into()),
                }
            }
            "release" => {
                self.held = None;
                println!("released");
            }
            "connect" => {
                let id = self.channel.create_id(PortSpace::TCP, 0)?;
                id.resolve_addr(None, address()?, Duration::from_secs(4))?;
                self.connection = Some(id);
            }
            "accept" => {
                let id = self.last()?;
                let parameters = self.parameters(&id)?;
                id.accept(&parameters)?;
            }
            "establish" => self.last()?.establish()?,
            "disconnect" => self.last()?.disconnect()?,
            "exit" => std::process::exit(0),
            "exec" => return Err(Command::new("cat").exec().into()),
            _ => return Err(format!("no such line: {line}").into()),
        }
        Ok(())
    }

    fn last(&self) -> Outcome<Id> {
        Ok(self.connection.clone().ok_or("no connection")?)
    }

    /// Makes a queue pair, whose number no other has.
    fn parameters(&mut self, id: &Id) -> Outcome<ConnectionParameters<'static>> {
        let device = id.device().ok_or("no device")?;
        let cq = device.create_cq(4, None)?;
        let made = device.alloc_pd()?.queue_pair(&cq, &cq).build()?;
        let parameters = ConnectionParameters::new(made.number());
        self.queue_pairs.push(made);
        Ok(parameters)
    }

    fn tell(&mut self, event: Event) -> Outcome {
        let name = match &event.kind {
            EventKind::AddressResolved => return Ok(event.id.resolve_route()?),
            EventKind::RouteResolved => {
                let parameters = self.parameters(&event.id)?;
                event.id.connect(&parameters)?;
                "connecting"
            }
            EventKind::ConnectRequest(_) => {
                self.connection = Some(event.id.clone());
                "request"
            }
            EventKind::ConnectResponse(_) => "response",
            EventKind::Established(_) => "established",
            EventKind::Disconnected => "disconnected",
            EventKind::Rejected { .. } => "rejected",
            EventKind::TimewaitExit => return Ok(()),
            other => return Err(format!("{other:?}").into()),
        };
        println!("{name}");
        Ok(())
    }
}
