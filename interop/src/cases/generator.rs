//! Scripts of `roce send` against a responder: known faults of rxe, and our endpoint without them.

use std::net::IpAddr;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use roce_netns::{Host, Link, VirtualNetwork};
use roce_verbs::exchange::QpDest;
use roce_verbs::{Gid, Psn, Qpn};

use crate::Agent;
use crate::connection::BASE;
use crate::fault::{Fault, expect, expect_equal};
use crate::params::{ALL_RIGHTS, ConnectionParams, Family};
use crate::process;
use crate::world::{GUEST_ADDRESS, INTERFACE, OUR_ADDRESS, World, program};

/// What is sent to the responder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Provocation {
    /// A duplicate SEND before the responder has executed any.
    DuplicateSend,
    /// A READ of no bytes with an invalid key, twice.
    RepeatedRead,
    /// A SEND that is longer than its receive.
    LongSend,
}

/// Whose stack responds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Responder {
    /// rxe, in the guest.
    Rxe,
    /// Ours, on a host of its own.
    Ours,
}

impl Provocation {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::DuplicateSend, Self::RepeatedRead, Self::LongSend];

    /// Its name in the table, and that of its script.
    pub const fn name(self) -> &'static str {
        match self {
            Self::DuplicateSend => "duplicate-send",
            Self::RepeatedRead => "repeated-read",
            Self::LongSend => "long-send",
        }
    }

    /// The variable of the script by which it expects what rxe does wrong.
    const fn fault_of_rxe(self) -> &'static str {
        match self {
            Self::DuplicateSend => "acked=0xffffff",
            Self::RepeatedRead => "again=aeth.syndrome == 0x62",
            Self::LongSend => "syndrome=0x63",
        }
    }
}

/// Runs the script of a provocation against a responder. Ours does what is right. rxe does not: the
/// script fails as it is, and holds if it expects the fault.
///
/// # Errors
/// When it is not so; [`Fault::Lacking`] for rxe of another kernel, whose faults are others.
pub fn run(world: &World, provocation: Provocation, responder: Responder) -> Result<(), Fault> {
    match responder {
        Responder::Rxe => {
            let release = world.guest.run_ok("uname -r")?;
            if !release.starts_with("6.1.") {
                let text = "the faults that packets provoke are those of Linux 6.1";
                return Err(Fault::Lacking(text.to_owned()));
            }
            let mut agent = Agent::rxe(world)?;
            let fault = Some(provocation.fault_of_rxe());
            for (variable, holds) in [(None, false), (fault, true)] {
                let qpn = responding_pair(&mut agent, provocation)?;
                let sender = (&world.host, INTERFACE, GUEST_ADDRESS);
                expect_outcome(sender, provocation, qpn, variable, holds)?;
            }
            Ok(())
        }
        Responder::Ours => {
            let network = VirtualNetwork::new().map_err(Fault::ours("make a private network"))?;
            let mut hosts = Vec::new();
            for (name, address) in [("sender", OUR_ADDRESS), ("responder", GUEST_ADDRESS)] {
                let host = network.host(name).map_err(Fault::ours("make a private network"))?;
                hosts.push((host, format!("{address}/24")));
            }
            let [(sender, _), (responder, _)] = &hosts[..] else { unreachable!("two hosts") };
            let ends = ((sender, "eth0"), (responder, "eth0"));
            network.veth(ends.0, ends.1, Link { mtu: 1500 }).map_err(Fault::ours("make a link"))?;
            for (host, address) in &hosts {
                let address = address.parse().expect("an address with its prefix length");
                host.address("eth0", address).map_err(Fault::ours("set an address"))?;
            }
            let mut agent = Agent::on(responder, "eth0", &[])?;
            let qpn = responding_pair(&mut agent, provocation)?;
            expect_outcome((sender, "eth0", GUEST_ADDRESS), provocation, qpn, None, true)
        }
    }
}

/// Makes a queue pair whose peer is the sender of the script.
fn responding_pair(agent: &mut Agent, provocation: Provocation) -> Result<Qpn, Fault> {
    let settings = ConnectionParams::new(Family::V4, 1024);
    let pair = agent.pair(&settings)?;
    if provocation == Provocation::LongSend {
        let region = agent.register(2 * BASE as usize, ALL_RIGHTS)?;
        agent.receive(pair.handle, region.handle, BASE, 16, 1)?;
    }
    let address: IpAddr = OUR_ADDRESS.parse().expect("an address");
    let peer = QpDest { qpn: PEER, psn: FIRST_PSN, gid: Gid::from(address) };
    agent.connect(pair.handle, &peer, &settings)?;
    Ok(pair.dest.qpn)
}

/// Runs the script from a host, and expects it to hold or to find a fault.
fn expect_outcome(
    (host, interface, to): (&Host, &str, &str),
    provocation: Provocation,
    qpn: Qpn,
    variable: Option<&str>,
    holds: bool,
) -> Result<(), Fault> {
    let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/send");
    let script = scripts.join(provocation.name()).with_extension("roce");
    let mut command = Command::new(program("roce")?);
    command.args(["send", to, "-d", interface, "--script"]).arg(script);
    command.args(["--let", &format!("qp={:#08x}", qpn.get())]);
    command.args(["--let", &format!("psn={:#08x}", FIRST_PSN.get())]);
    command.args(variable.iter().flat_map(|variable| ["--let", variable]));
    let ended = process::wait(process::start(Some(host), command)?, LIMIT)?;
    let (text, wanted) = (ended.text(), Some(i32::from(!holds)));
    expect_equal(format!("exit code of:\n{text}"), ended.status.code(), wanted)?;
    let last: &[&str] = match holds {
        true => &["the expectation holds", "expectations hold"],
        false => &["1 of 1 expectations failed", "1 of 2 expectations failed"],
    };
    expect(last.iter().any(|words| text.contains(words)), || {
        format!("the script does not say how it ended: {text}")
    })
}

/// The queue pair that the responder takes the sender for.
const PEER: Qpn = Qpn::from_be_bytes([0x12, 0x34, 0x56]);
/// Not 0, so that the PSN before it is not 0xffffff.
const FIRST_PSN: Psn = Psn::wrapping(0x100);
const LIMIT: Duration = Duration::from_secs(20);
