//! Immediates on an unreliable connection, which no stock program sends: posted by `rxe_agent`, on
//! libibverbs and rxe alone.

use std::time::Duration;

use roce_guest::{Guest, GuestProcess};

use crate::world::World;
use crate::{Error, Family};

/// Crosses the end of the sequence.
const FIRST_PSN: u32 = 0xff_fffd;

/// SEND and RDMA WRITE with Immediate, of one packet and of three each.
pub(crate) fn play(world: &World, family: Family) -> Result<(), Error> {
    let mut client = Agent::start(world.client(), family)?;
    let mut server = Agent::start(world.server(), family)?;
    let (ours, theirs) = (client.dest.clone(), server.dest.clone());
    client.connect(&theirs)?;
    server.connect(&ours)?;
    let region = server.order("mr m size=4096 rights=lw")?;
    client.order("mr m size=4096 rights=l seed=7")?;
    server.order("recv q mr=m len=4096 count=4")?;
    let target = format!("raddr={} rkey={}", word(&region, "address")?, word(&region, "rkey")?);
    for (number, (operation, len)) in
        [("send_imm", 61), ("send_imm", 2500), ("write_imm", 61), ("write_imm", 2500)]
            .into_iter()
            .enumerate()
    {
        let imm = 0x0102_0300 + number;
        client.order(&format!("post q op={operation} mr=m len={len} imm={imm} {target}"))?;
        client.order("wait q send ms=10000")?;
        server.order("wait q recv ms=10000")?;
    }
    Ok(())
}

/// A program with one end of the connection.
struct Agent {
    process: GuestProcess,
    /// Its queue pair, in the words of its answer.
    dest: String,
}

impl Agent {
    fn start(guest: &Guest, family: Family) -> Result<Self, Error> {
        let process = guest.spawn(PROGRAM)?;
        let mut agent = Self { process, dest: String::new() };
        agent.answer("start")?;
        let family = match family {
            Family::V4 => 4,
            Family::V6 => 6,
        };
        let order = format!("qp q family={family} service=uc psn={FIRST_PSN} access=w");
        agent.dest = agent.order(&order)?;
        Ok(agent)
    }

    fn connect(&mut self, peer: &str) -> Result<(), Error> {
        let peer =
            ["qpn", "psn", "gid"].map(|key| word(peer, key).map(|value| format!("{key}={value}")));
        let [qpn, psn, gid] = peer;
        self.order(&format!("connect q {} {} {} mtu=1024", qpn?, psn?, gid?)).map(drop)
    }

    fn order(&mut self, order: &str) -> Result<String, Error> {
        self.process.write(format!("{order}\n").as_bytes())?;
        self.answer(order)
    }

    /// The words behind `ok`.
    fn answer(&mut self, order: &str) -> Result<String, Error> {
        while let Some(line) = self.process.read_line(LIMIT)? {
            match line.split_once(' ').unwrap_or((&line, "")) {
                ("wc", completion) if word(completion, "status")? == "0" => {}
                ("ok", answer) => return Ok(answer.to_owned()),
                _ => return Err(format!("rxe_agent: `{order}`: {line}").into()),
            }
        }
        Err(format!("rxe_agent ended: {}", self.process.stderr()).into())
    }
}

/// A word `key=value` of an answer.
fn word<'a>(answer: &'a str, key: &str) -> Result<&'a str, Error> {
    let words = answer.split_whitespace().filter_map(|word| word.split_once('='));
    let found = words.into_iter().find(|(name, _)| *name == key);
    found.map(|(_, value)| value).ok_or_else(|| format!("no {key} in {answer:?}").into())
}

/// Where the guests have the program.
const PROGRAM: &str = "/bin/rxe_agent";

const LIMIT: Duration = Duration::from_secs(30);
