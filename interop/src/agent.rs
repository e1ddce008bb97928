//! A program that owns one end of connections and takes commands for it.
//!
//! There are two that understand the same commands: `rxe_agent` in the guest, on libibverbs and the
//! kernel's `rdma_rxe`, and `roce_agent` here, on `roce-verbs`. `interop/README.md` lists the
//! commands. A case of the matrix is therefore written once, for a requester and a responder.

use std::collections::HashMap;
use std::ffi::OsString;
use std::process::Command;
use std::time::Duration;

use roce_guest::{Guest, GuestProcess, Image};
use roce_netns::Host;
use roce_netns::process::{Launch, Output, Running};
use roce_verbs::exchange::QpDest;
use roce_verbs::{Gid, Psn, Qpn, Service};

use super::params::{
    ConnectionParams, Family, Operation, Pair, Post, Queue, Region, Rights, WaitMode,
    WorkCompletion,
};
use super::{Fault, World, rxe_agent};

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
    Here(Running),
}

/// The words `key=value` of an reply.
type Reply = HashMap<String, String>;

impl Agent {
    /// Compiles the guest's program and puts it there; once for each guest.
    ///
    /// # Errors
    /// When there is no compiler, or the guest is gone.
    pub fn install(image: &Image, guest: &Guest) -> Result<(), Fault> {
        rxe_agent::install(image, guest)
    }

    /// Starts an agent for rxe.
    ///
    /// # Errors
    /// When the guest has no rxe device.
    pub fn rxe(world: &World) -> Result<Self, Fault> {
        Self::started(RXE, Process::InGuest(world.guest.spawn(rxe_agent::PROGRAM)?))
    }

    /// Starts an agent for our stack; `arguments` follow the interface's name.
    ///
    /// # Errors
    /// When the device cannot be opened.
    pub fn ours(world: &World, arguments: &[OsString]) -> Result<Self, Fault> {
        Self::on(&world.host, super::world::INTERFACE, arguments)
    }

    /// As [`ours`](Self::ours), on an interface of any host.
    ///
    /// # Errors
    /// When the device cannot be opened.
    pub fn on(host: &Host, interface: &str, arguments: &[OsString]) -> Result<Self, Fault> {
        let mut command = Command::new(super::world::program("roce_agent")?);
        command.arg(interface).args(arguments);
        let launch = Launch::from(command).with_stdin().stderr(Output::Inherit);
        let started = launch.grace(Duration::ZERO).start_in(host);
        let running = started.map_err(Fault::ours("start roce_agent"))?;
        Self::started("ours", Process::Here(running))
    }

    fn started(name: &'static str, process: Process) -> Result<Self, Fault> {
        let mut agent = Self { name, process, next_handle: 0 };
        agent.reply("start", COMMAND_TIMEOUT)?;
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
    pub fn kill(self) -> Result<(), Fault> {
        match self.process {
            Process::InGuest(mut process) => {
                process.kill(9)?;
                process.wait(COMMAND_TIMEOUT)?;
            }
            Process::Here(running) => {
                running.end().map_err(Fault::ours("kill roce_agent"))?;
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
        let reply = self.execute(&format!("mr m{handle} size={size} rights={rights}"))?;
        region(handle, &reply)
    }

    /// Registers `size` bytes, and binds a window of type 1 or 2 to all of them through `pair`: its key
    /// gives peers all rights.
    ///
    /// # Errors
    /// See [`Agent`].
    pub fn lend(&mut self, pair: u32, size: usize, window_type: u8) -> Result<Region, Fault> {
        let handle = self.handle();
        let request = format!("lend m{handle} qp=q{pair} size={size} type={window_type}");
        region(handle, &self.execute(&request)?)
    }

    /// Binds the window of a lent region to `offset..offset + len` of it; returns that range.
    ///
    /// # Errors
    /// See [`Agent`].
    pub fn bind(&mut self, pair: u32, lent: u32, offset: u64, len: usize) -> Result<Region, Fault> {
        let request = format!("bind m{lent} qp=q{pair} offset={offset} len={len}");
        region(lent, &self.execute(&request)?)
    }

    /// Invalidates the key of a lent region's window through the send queue of `pair`.
    ///
    /// # Errors
    /// See [`Agent`].
    pub fn invalidate(&mut self, pair: u32, lent: u32) -> Result<(), Fault> {
        self.execute(&format!("invalidate m{lent} qp=q{pair}")).map(drop)
    }

    /// Writes the pattern of `seed` to `offset..offset + len`.
    ///
    /// # Errors
    /// See [`Agent`].
    pub fn fill(&mut self, region: u32, offset: u64, len: usize, seed: u64) -> Result<(), Fault> {
        self.execute(&format!("fill m{region} offset={offset} len={len} seed={seed}")).map(drop)
    }

    /// The checksum of `offset..offset + len`.
    ///
    /// # Errors
    /// See [`Agent`].
    pub fn checksum(&mut self, region: u32, offset: u64, len: usize) -> Result<u32, Fault> {
        let reply = self.execute(&format!("crc m{region} offset={offset} len={len}"))?;
        Ok(number(&reply, "crc")? as u32)
    }

    /// The eight bytes at `offset`, as the processor's own integer.
    ///
    /// # Errors
    /// See [`Agent`].
    pub fn word(&mut self, region: u32, offset: u64) -> Result<u64, Fault> {
        number(&self.execute(&format!("get m{region} offset={offset}"))?, "value")
    }

    /// Sets the eight bytes at `offset`.
    ///
    /// # Errors
    /// See [`Agent`].
    pub fn set_word(&mut self, region: u32, offset: u64, value: u64) -> Result<(), Fault> {
        self.execute(&format!("set m{region} offset={offset} value={value}")).map(drop)
    }

    /// Makes a shared receive queue of `max_wr` receives; [`Agent::receive`] takes its handle.
    ///
    /// # Errors
    /// See [`Agent`].
    pub fn shared_receive_queue(&mut self, max_wr: usize) -> Result<u32, Fault> {
        let handle = self.handle();
        self.execute(&format!("srq q{handle} max_wr={max_wr}")).map(|_| handle)
    }

    /// Makes a queue pair with completion queues of its own, ready for receives to be posted.
    ///
    /// # Errors
    /// See [`Agent`].
    pub fn pair(&mut self, settings: &ConnectionParams) -> Result<Pair, Fault> {
        self.pair_with("", settings)
    }

    /// Makes a queue pair whose receives come from a shared receive queue.
    ///
    /// # Errors
    /// See [`Agent`].
    pub fn pair_on(&mut self, srq: u32, settings: &ConnectionParams) -> Result<Pair, Fault> {
        self.pair_with(&format!(" srq=q{srq}"), settings)
    }

    fn pair_with(&mut self, more: &str, settings: &ConnectionParams) -> Result<Pair, Fault> {
        let handle = self.handle();
        let family = match settings.family {
            Family::V4 => 4,
            Family::V6 => 6,
        };
        let service = match settings.service {
            Service::Uc => "uc",
            Service::Ud => "ud",
            _ => "rc",
        };
        let newer = if settings.newer { " extended=1 access=wrag" } else { "" };
        let request = format!(
            "qp q{handle} service={service} family={family} send_wr={DEPTH} recv_wr={DEPTH} \
             psn={}{more}{newer}",
            settings.first_psn
        );
        let reply = self.execute(&request)?;
        let dest = || {
            let gid = u128::from_str_radix(reply.get("gid")?, 16).ok()?;
            Some(QpDest {
                qpn: Qpn::new(number(&reply, "qpn").ok()? as u32)?,
                psn: Psn::new(number(&reply, "psn").ok()? as u32)?,
                gid: Gid(gid.to_be_bytes()),
            })
        };
        let dest = dest().ok_or_else(|| Fault::Refused {
            end: self.name,
            request,
            reply: format!("{reply:?}"),
        })?;
        Ok(Pair { handle, dest })
    }

    /// Connects a pair, or names the destination of its datagrams.
    ///
    /// # Errors
    /// See [`Agent`].
    pub fn connect(
        &mut self,
        pair: u32,
        peer: &QpDest,
        settings: &ConnectionParams,
    ) -> Result<(), Fault> {
        let gid = digits(peer.gid);
        self.execute(&format!(
            "connect q{pair} qpn={} psn={} gid={gid} mtu={} timeout={} retry={} \
             rnr_retry={} min_rnr_timer={} rd_atomic={rd} dest_rd_atomic={rd} \
             max_rate={} tclass={}",
            peer.qpn.get(),
            peer.psn.get(),
            settings.path_mtu,
            if self.name == RXE { settings.rxe_timeout } else { settings.timeout },
            settings.retry,
            settings.rnr_retry,
            settings.min_rnr_timer,
            settings.max_rate.unwrap_or(0),
            settings.traffic_class,
            rd = settings.rd_atomic,
        ))
        .map(drop)
    }

    /// Makes a queue pair of datagrams a member of a multicast group.
    ///
    /// # Errors
    /// See [`Agent`].
    pub fn attach(&mut self, pair: u32, group: Gid) -> Result<(), Fault> {
        self.execute(&format!("attach q{pair} gid={}", digits(group))).map(drop)
    }

    /// Ends that membership.
    ///
    /// # Errors
    /// See [`Agent`].
    pub fn detach(&mut self, pair: u32, group: Gid) -> Result<(), Fault> {
        self.execute(&format!("detach q{pair} gid={}", digits(group))).map(drop)
    }

    /// The flags of the guest's device in `device_cap_flags_ex`.
    ///
    /// # Errors
    /// See [`Agent`].
    pub fn capabilities(&mut self) -> Result<u64, Fault> {
        number(&self.execute("capabilities")?, "flags")
    }

    /// What its reliable connections can do with memory that is paged in on demand, in `rc_odp_caps`.
    ///
    /// # Errors
    /// See [`Agent`].
    pub fn paging(&mut self) -> Result<u64, Fault> {
        number(&self.execute("capabilities")?, "paging")
    }

    /// The release of the guest's rdma-core.
    ///
    /// # Errors
    /// See [`Agent`].
    pub fn rdma_core_release(&mut self) -> Result<u64, Fault> {
        number(&self.execute("capabilities")?, "rdma_core")
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
        self.execute(&format!(
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

    /// Posts to a pair or a shared receive queue `count` receives of `len` bytes, side by side from
    /// `offset` on.
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
        self.execute(&format!(
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
        wait_mode: WaitMode,
        limit: Duration,
    ) -> Result<Vec<WorkCompletion>, Fault> {
        let queue = match queue {
            Queue::Send => "send",
            Queue::Receive => "recv",
        };
        let events = u8::from(wait_mode == WaitMode::Events);
        let ms = limit.as_millis();
        let request = format!("wait q{pair} {queue} count={count} ms={ms} events={events}");
        self.send(&request)?;
        match self.reply(&request, limit + COMMAND_TIMEOUT) {
            Ok((_, completions)) => Ok(completions),
            Err(Fault::Refused { reply, .. }) if reply.starts_with("error timeout: ") => {
                let seen = reply.split(' ').nth(2).and_then(|seen| seen.parse().ok());
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
        let reply = self.execute(&format!("state q{pair}"))?;
        Ok(reply.get("state").cloned().unwrap_or_default())
    }

    /// A counter of the device, by rxe's name for it.
    ///
    /// # Errors
    /// See [`Agent`].
    pub fn counter(&mut self, name: &str) -> Result<u64, Fault> {
        number(&self.execute(&format!("counter {name}"))?, "value")
    }

    fn execute(&mut self, request: &str) -> Result<Reply, Fault> {
        self.send(request)?;
        self.reply(request, COMMAND_TIMEOUT).map(|(reply, _)| reply)
    }

    fn send(&mut self, request: &str) -> Result<(), Fault> {
        match &mut self.process {
            Process::InGuest(process) => process.write(format!("{request}\n").as_bytes())?,
            // A program that ended says more in its reply, which is then missing.
            Process::Here(running) => drop(running.write_line(request)),
        }
        Ok(())
    }

    /// Reads up to the reply line; also returns the `wc` lines in front of it.
    fn reply(
        &mut self,
        request: &str,
        limit: Duration,
    ) -> Result<(Reply, Vec<WorkCompletion>), Fault> {
        let mut completions = Vec::new();
        let refused = |end, reply| Fault::Refused { end, request: request.to_owned(), reply };
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
            Process::Here(running) => {
                running.read_line(limit).map_err(|_| Fault::Silent { end: self.name, limit })
            }
        }
    }

    fn last_words(&mut self) -> String {
        match &mut self.process {
            Process::InGuest(process) => format!("the program ended: {}", process.stderr()),
            Process::Here(running) => match running.wait_for_exit(COMMAND_TIMEOUT) {
                Some(status) => format!("the program ended: {status}"),
                None => "the program closed its output".to_owned(),
            },
        }
    }

    fn handle(&mut self) -> u32 {
        self.next_handle += 1;
        self.next_handle
    }
}

fn digits(gid: Gid) -> String {
    gid.0.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn region(handle: u32, reply: &Reply) -> Result<Region, Fault> {
    let (address, key) = (number(reply, "address")?, number(reply, "rkey")?);
    Ok(Region { handle, address, key: key as u32 })
}

fn words(line: &str) -> Reply {
    let pairs = line.split_whitespace().filter_map(|word| word.split_once('='));
    pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
}

fn number(reply: &Reply, key: &str) -> Result<u64, Fault> {
    let text = reply.get(key).map_or("", String::as_str);
    let parsed = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    };
    parsed.map_err(|_| Fault::Wrong(format!("an agent replied {key}={text:?}")))
}

fn done(words: &Reply) -> WorkCompletion {
    let number = |key| number(words, key).ok();
    let small = |key| number(key).map(|value| value as u32);
    WorkCompletion {
        id: number("id").unwrap_or_default(),
        status: small("status").unwrap_or(u32::MAX),
        opcode: small("opcode").unwrap_or_default(),
        len: small("len").unwrap_or_default(),
        immediate: small("imm"),
        invalidated: small("inv"),
        source_qpn: small("src"),
    }
}

const RXE: &str = "rxe";

/// Work requests that each queue takes.
const DEPTH: usize = 256;

/// For commands that only compute.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_completion_line_is_read_word_by_word() {
        let line = "id=3 status=0 opcode=128 len=17 imm=0xdead inv=0x10ff src=0x11";
        let expected = WorkCompletion {
            id: 3,
            status: 0,
            opcode: 128,
            len: 17,
            immediate: Some(0xdead),
            invalidated: Some(0x10ff),
            source_qpn: Some(0x11),
        };
        assert_eq!(done(&words(line)), expected);
    }
}
