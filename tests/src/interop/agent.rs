//! A program that has one end of connections and takes orders for it.
//!
//! There are two that understand the same orders: `rxe_agent` in the guest, on libibverbs and the
//! kernel's `rdma_rxe`, and `roce_agent` here, on `roce-verbs`. `interop/README.md` lists the
//! orders. A cell of the matrix is therefore written once, for a requester and a responder.

use std::collections::HashMap;
use std::ffi::OsString;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::Duration;

use roce_guest::{Guest, GuestProcess, Image};
use roce_verbs::exchange::QpDest;
use roce_verbs::{Gid, Psn, Qpn};

use super::terms::{Done, Family, Manner, Operation, Pair, Post, Queue, Region, Rights, Settings};
use super::{Fault, World};

/// One end of connections.
///
/// Handles of regions and pairs mean nothing to another agent. Every method fails with a
/// [`Fault`] when the program refuses or is not there any more. Dropping it kills the program.
#[derive(Debug)]
pub struct Agent {
    name: &'static str,
    process: Process,
    next_handle: u32,
}

/// Where an agent runs.
#[derive(Debug)]
enum Process {
    InGuest(GuestProcess),
    Here { child: Child, stdin: ChildStdin, lines: Receiver<String> },
}

/// The words `key=value` of an answer.
type Answer = HashMap<String, String>;

impl Agent {
    /// Compiles the guest's program and puts it there; once for each guest.
    ///
    /// # Errors
    /// When there is no compiler, or the guest is gone.
    pub fn install(image: &Image, guest: &Guest) -> Result<(), Fault> {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../interop/rxe_agent");
        let program = image.compile(&[&source], &["ibverbs"])?;
        let bytes = std::fs::read(&program)
            .map_err(|error| Fault::Wrong(format!("{}: {error}", program.display())))?;
        Ok(guest.push(PROGRAM, &bytes, 0o755)?)
    }

    /// Starts an agent for rxe.
    ///
    /// # Errors
    /// When the guest has no rxe device.
    pub fn rxe(world: &World) -> Result<Self, Fault> {
        Self::started(RXE, Process::InGuest(world.guest.spawn(PROGRAM)?))
    }

    /// Starts an agent for our stack; `arguments` follow the interface's name.
    ///
    /// # Errors
    /// When the device cannot be opened.
    pub fn ours(world: &World, arguments: &[OsString]) -> Result<Self, Fault> {
        let mut command = Command::new(super::world::program("roce_agent")?);
        command.arg(super::world::INTERFACE).args(arguments);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = world.host.spawn(command).map_err(Fault::ours("start roce_agent"))?;
        let stdin = child.stdin.take().expect("it was asked for");
        let stdout = BufReader::new(child.stdout.take().expect("it was asked for"));
        let (sender, lines) = mpsc::channel();
        // Ends with the program, or with the first line that nobody wants.
        std::thread::spawn(move || {
            stdout.lines().map_while(Result::ok).try_for_each(|line| sender.send(line))
        });
        Self::started("ours", Process::Here { child, stdin, lines })
    }

    fn started(name: &'static str, process: Process) -> Result<Self, Fault> {
        let mut agent = Self { name, process, next_handle: 0 };
        agent.answer("start", ORDER_LIMIT)?;
        Ok(agent)
    }

    /// `ours` or `rxe`.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Kills the program with SIGKILL; returns once the system has cleaned up behind it.
    ///
    /// # Errors
    /// When the guest is gone.
    pub fn kill(mut self) -> Result<(), Fault> {
        match &mut self.process {
            Process::InGuest(process) => {
                process.kill(9)?;
                process.wait(ORDER_LIMIT)?;
            }
            Process::Here { child, .. } => {
                let killed = child.kill().and_then(|()| child.wait());
                killed.map_err(Fault::ours("be killed"))?;
            }
        }
        Ok(())
    }

    /// Registers `size` bytes.
    ///
    /// # Errors
    /// See [`Agent`].
    pub fn register(&mut self, size: usize, rights: Rights) -> Result<Region, Fault> {
        let handle = self.handle();
        let answer = self.order(&format!("mr m{handle} size={size} rights={rights}"))?;
        region(handle, &answer)
    }

    /// Registers `size` bytes under a key that gives the peer of `pair` all rights and that a
    /// SEND with invalidate ends.
    ///
    /// # Errors
    /// See [`Agent`].
    pub fn lend(&mut self, pair: u32, size: usize) -> Result<Region, Fault> {
        let handle = self.handle();
        let answer = self.order(&format!("lend m{handle} qp=q{pair} size={size}"))?;
        region(handle, &answer)
    }

    /// Writes the pattern of `seed` to `offset..offset + len`.
    ///
    /// # Errors
    /// See [`Agent`].
    pub fn fill(&mut self, region: u32, offset: u64, len: usize, seed: u64) -> Result<(), Fault> {
        self.order(&format!("fill m{region} offset={offset} len={len} seed={seed}")).map(drop)
    }

    /// The checksum of `offset..offset + len`.
    ///
    /// # Errors
    /// See [`Agent`].
    pub fn checksum(&mut self, region: u32, offset: u64, len: usize) -> Result<u32, Fault> {
        let answer = self.order(&format!("crc m{region} offset={offset} len={len}"))?;
        Ok(number(&answer, "crc")? as u32)
    }

    /// The eight bytes at `offset`, as the processor's own integer.
    ///
    /// # Errors
    /// See [`Agent`].
    pub fn word(&mut self, region: u32, offset: u64) -> Result<u64, Fault> {
        number(&self.order(&format!("get m{region} offset={offset}"))?, "value")
    }

    /// Sets the eight bytes at `offset`.
    ///
    /// # Errors
    /// See [`Agent`].
    pub fn set_word(&mut self, region: u32, offset: u64, value: u64) -> Result<(), Fault> {
        self.order(&format!("set m{region} offset={offset} value={value}")).map(drop)
    }

    /// Makes a queue pair with completion queues of its own, ready for receives to be posted.
    ///
    /// # Errors
    /// See [`Agent`].
    pub fn pair(&mut self, settings: &Settings) -> Result<Pair, Fault> {
        let handle = self.handle();
        let family = match settings.family {
            Family::V4 => 4,
            Family::V6 => 6,
        };
        let order = format!(
            "qp q{handle} family={family} send_wr={DEPTH} recv_wr={DEPTH} psn={}",
            settings.first_psn
        );
        let answer = self.order(&order)?;
        let dest = || {
            let gid = u128::from_str_radix(answer.get("gid")?, 16).ok()?;
            Some(QpDest {
                qpn: Qpn::new(number(&answer, "qpn").ok()? as u32)?,
                psn: Psn::new(number(&answer, "psn").ok()? as u32)?,
                gid: Gid(gid.to_be_bytes()),
            })
        };
        let dest = dest().ok_or_else(|| Fault::Refused {
            end: self.name,
            order,
            answer: format!("{answer:?}"),
        })?;
        Ok(Pair { handle, dest })
    }

    /// Connects a pair.
    ///
    /// # Errors
    /// See [`Agent`].
    pub fn connect(&mut self, pair: u32, peer: &QpDest, settings: &Settings) -> Result<(), Fault> {
        let gid: String = peer.gid.0.iter().map(|byte| format!("{byte:02x}")).collect();
        self.order(&format!(
            "connect q{pair} qpn={} psn={} gid={gid} mtu={} timeout={} retry={} \
             rnr_retry={} min_rnr_timer={} rd_atomic={rd} dest_rd_atomic={rd}",
            peer.qpn.get(),
            peer.psn.get(),
            settings.path_mtu,
            if self.name == RXE { settings.rxe_timeout } else { settings.timeout },
            settings.retry,
            settings.rnr_retry,
            settings.min_rnr_timer,
            rd = settings.rd_atomic,
        ))
        .map(drop)
    }

    /// Posts sends.
    ///
    /// # Errors
    /// See [`Agent`].
    pub fn post(&mut self, pair: u32, post: &Post) -> Result<(), Fault> {
        let (adds, swaps) = match post.operation {
            Operation::FetchAdd => (post.swap_or_add, 0),
            _ => (0, post.swap_or_add),
        };
        self.order(&format!(
            "post q{pair} op={} mr=m{} offset={} len={} sges={} raddr={} rkey={} imm={} inv={} \
             add={adds} swap={swaps} compare={} count={} step={}",
            post.operation.name(),
            post.region,
            post.offset,
            post.len,
            post.pieces,
            post.remote_address,
            post.remote_key,
            post.immediate,
            post.invalidate,
            post.compare,
            post.count,
            post.step,
        ))
        .map(drop)
    }

    /// Posts `count` receives of `len` bytes, side by side from `offset` on.
    ///
    /// # Errors
    /// See [`Agent`].
    pub fn receive(
        &mut self,
        pair: u32,
        region: u32,
        offset: u64,
        len: usize,
        count: usize,
    ) -> Result<(), Fault> {
        self.order(&format!(
            "recv q{pair} mr=m{region} offset={offset} len={len} count={count} step={len}"
        ))
        .map(drop)
    }

    /// Waits until `count` completions are there.
    ///
    /// # Errors
    /// [`Fault::TooFew`] when they do not come within `limit`; see [`Agent`].
    pub fn wait(
        &mut self,
        pair: u32,
        queue: Queue,
        count: usize,
        manner: Manner,
        limit: Duration,
    ) -> Result<Vec<Done>, Fault> {
        let queue = match queue {
            Queue::Send => "send",
            Queue::Receive => "recv",
        };
        let events = u8::from(manner == Manner::Events);
        let ms = limit.as_millis();
        let order = format!("wait q{pair} {queue} count={count} ms={ms} events={events}");
        self.say(&order)?;
        match self.answer(&order, limit + ORDER_LIMIT) {
            Ok((_, completions)) => Ok(completions),
            Err(Fault::Refused { answer, .. }) if answer.starts_with("error timeout: ") => {
                let seen = answer.split(' ').nth(2).and_then(|seen| seen.parse().ok());
                Err(Fault::TooFew { end: self.name, seen: seen.unwrap_or(0), wanted: count, limit })
            }
            Err(fault) => Err(fault),
        }
    }

    /// The name of a pair's state: `RTS`, `ERROR`, ...
    ///
    /// # Errors
    /// See [`Agent`].
    pub fn state(&mut self, pair: u32) -> Result<String, Fault> {
        let answer = self.order(&format!("state q{pair}"))?;
        Ok(answer.get("state").cloned().unwrap_or_default())
    }

    /// A counter of the device, by rxe's name for it.
    ///
    /// # Errors
    /// See [`Agent`].
    pub fn counter(&mut self, name: &str) -> Result<u64, Fault> {
        number(&self.order(&format!("counter {name}"))?, "value")
    }

    fn order(&mut self, order: &str) -> Result<Answer, Fault> {
        self.say(order)?;
        self.answer(order, ORDER_LIMIT).map(|(answer, _)| answer)
    }

    fn say(&mut self, order: &str) -> Result<(), Fault> {
        let line = format!("{order}\n");
        match &mut self.process {
            Process::InGuest(process) => process.write(line.as_bytes())?,
            // A program that ended says more in its answer, which is then missing.
            Process::Here { stdin, .. } => drop(stdin.write_all(line.as_bytes())),
        }
        Ok(())
    }

    /// Reads up to the answering line; also returns the `wc` lines in front of it.
    fn answer(&mut self, order: &str, limit: Duration) -> Result<(Answer, Vec<Done>), Fault> {
        let mut completions = Vec::new();
        let refused = |end, answer| Fault::Refused { end, order: order.to_owned(), answer };
        loop {
            let Some(line) = self.read_line(limit)? else {
                return Err(refused(self.name, self.last_words()));
            };
            let (verb, rest) = line.split_once(' ').unwrap_or((&line, ""));
            match verb {
                "wc" => completions.push(done(&words(rest))),
                "ok" => return Ok((words(rest), completions)),
                _ => return Err(refused(self.name, line)),
            }
        }
    }

    /// The next line of the program, `None` after its end.
    fn read_line(&mut self, limit: Duration) -> Result<Option<String>, Fault> {
        match &mut self.process {
            Process::InGuest(process) => Ok(process.read_line(limit)?),
            Process::Here { lines, .. } => match lines.recv_timeout(limit) {
                Ok(line) => Ok(Some(line)),
                Err(RecvTimeoutError::Disconnected) => Ok(None),
                Err(RecvTimeoutError::Timeout) => Err(Fault::Silent { end: self.name, limit }),
            },
        }
    }

    fn last_words(&mut self) -> String {
        match &mut self.process {
            Process::InGuest(process) => format!("the program ended: {}", process.stderr()),
            Process::Here { child, .. } => match child.wait() {
                Ok(status) => format!("the program ended: {status}"),
                Err(error) => format!("the program ended: {error}"),
            },
        }
    }

    fn handle(&mut self) -> u32 {
        self.next_handle += 1;
        self.next_handle
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        if let Process::Here { child, .. } = &mut self.process {
            let _ = child.kill(); // it may have ended by itself
            let _ = child.wait();
        }
    }
}

fn region(handle: u32, answer: &Answer) -> Result<Region, Fault> {
    let (address, key) = (number(answer, "address")?, number(answer, "rkey")?);
    Ok(Region { handle, address, key: key as u32 })
}

fn words(line: &str) -> Answer {
    let pairs = line.split_whitespace().filter_map(|word| word.split_once('='));
    pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
}

fn number(answer: &Answer, key: &str) -> Result<u64, Fault> {
    let text = answer.get(key).map_or("", String::as_str);
    let parsed = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    };
    parsed.map_err(|_| Fault::Wrong(format!("an agent answered {key}={text:?}")))
}

fn done(words: &Answer) -> Done {
    let number = |key| number(words, key).ok();
    let small = |key| number(key).map(|value| value as u32);
    Done {
        id: number("id").unwrap_or_default(),
        status: small("status").unwrap_or(u32::MAX),
        opcode: small("opcode").unwrap_or_default(),
        len: small("len").unwrap_or_default(),
        immediate: small("imm"),
        invalidated: small("inv"),
    }
}

const RXE: &str = "rxe";

/// Where the guest has its program.
const PROGRAM: &str = "/bin/rxe_agent";

/// Work requests that each queue takes.
const DEPTH: usize = 256;

/// For orders that only compute.
const ORDER_LIMIT: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_completion_line_is_read_word_by_word() {
        let line = "id=3 status=0 opcode=128 len=17 imm=0xdead inv=0x10ff";
        let expected = Done {
            id: 3,
            status: 0,
            opcode: 128,
            len: 17,
            immediate: Some(0xdead),
            invalidated: Some(0x10ff),
        };
        assert_eq!(done(&words(line)), expected);
    }
}
