//! What both ends of a connection do, and what is lost meanwhile.

use roce_verbs::cm::{PortSpace, Timing};
use roce_verbs::{Device, DeviceConfig, FaultConfig, environment};

use crate::fault::{Fault, expect};
use crate::params::Family;

/// What happens on a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Script {
    /// A message in both directions; the client disconnects.
    ClientEnds,
    /// The same; the server disconnects.
    ServerEnds,
    /// The same; both disconnect at once.
    BothEnd,
    /// The same as the first, but the server's program asks only after the message whether the
    /// connection is established.
    DataFirst,
    /// The client's queue pair asks for a second connection, which ends both: REJ 10.
    Stale,
    /// The server's program refuses: REJ 28.
    Rejected,
    /// It refuses twice.
    RejectedAgain,
    /// Nothing listens: REJ 8.
    NoListener,
    /// The guest's program is killed: its kernel disconnects.
    Killed,
    /// The client asks for a datagram service, and sends a datagram there.
    Datagram,
}

impl Script {
    /// The scripts in which nothing is lost or delayed.
    pub const PLAIN: [Self; 7] = [
        Self::ClientEnds,
        Self::ServerEnds,
        Self::Stale,
        Self::Rejected,
        Self::NoListener,
        Self::Killed,
        Self::Datagram,
    ];

    /// Returns its name, which is the guest's program's too.
    pub const fn name(self) -> &'static str {
        match self {
            Self::ClientEnds => "client-ends",
            Self::ServerEnds => "server-ends",
            Self::BothEnd => "both-end",
            Self::DataFirst => "data-first",
            Self::Stale => "stale",
            Self::Rejected => "reject",
            Self::RejectedAgain => "reject-again",
            Self::NoListener => "no-listener",
            Self::Killed => "killed",
            Self::Datagram => "datagram",
        }
    }

    pub(super) const fn space(self) -> PortSpace {
        match self {
            Self::Datagram => PortSpace::UDP,
            _ => PortSpace::TCP,
        }
    }
}

/// A connection: what its ends do, and what is lost or delayed.
#[derive(Clone, Copy, Debug)]
pub struct Exchange {
    /// What the ends do.
    pub script: Script,
    /// IPv4 or IPv6.
    pub family: Family,
    /// What both ends must agree on, in bytes.
    pub path_mtu: usize,
    /// Scripted faults of our device, each of which must happen.
    pub faults: &'static [&'static str],
    /// How long our end waits, as `ROCE_CM` has it; the guest's waits so long for an RTU, too.
    pub timing: &'static str,
}

/// Times of a second or less, so that our end repeats soon.
const SHORT: &str = "response_timeout=17,packet_life_time=14";

impl Exchange {
    /// An exchange without faults.
    pub const fn new(script: Script, family: Family, path_mtu: usize) -> Self {
        Self { script, family, path_mtu, faults: &[], timing: "" }
    }

    /// Returns exchanges in which our end, as the client, loses each message once that it sends or
    /// receives, with the message's name.
    ///
    /// The kernel takes a repeated REQ whose REJ was lost for a new one.
    pub fn losses_of_client() -> [(&'static str, Self); 6] {
        let lost = |script, faults| {
            let timing = SHORT;
            Self { faults, timing, ..Self::new(script, Family::V4, 1024) }
        };
        [
            ("REQ", lost(Script::ClientEnds, &["drop sent req 1"])),
            ("REP", lost(Script::ClientEnds, &["drop received rep 1"])),
            ("RTU", lost(Script::ClientEnds, &["drop sent rtu 1"])),
            ("REJ", lost(Script::RejectedAgain, &["drop received rej 1"])),
            ("DREQ", lost(Script::ClientEnds, &["drop sent dreq 1"])),
            ("DREP", lost(Script::ClientEnds, &["drop received drep 1"])),
        ]
    }

    /// Returns the same for our end as the server. The kernel as the client repeats its messages after 6 s,
    /// and has the server wait for 4 s.
    pub fn losses_of_server() -> [(&'static str, Self); 6] {
        let lost = |script, faults| Self { faults, ..Self::new(script, Family::V4, 1024) };
        [
            ("REQ", lost(Script::ClientEnds, &["drop received req 1"])),
            ("REP", lost(Script::ClientEnds, &["drop sent rep 1"])),
            ("RTU", lost(Script::ClientEnds, &["drop received rtu 1"])),
            ("REJ", lost(Script::Rejected, &["drop sent rej 1"])),
            ("DREQ", lost(Script::ClientEnds, &["drop received dreq 1"])),
            ("DREP", lost(Script::ClientEnds, &["drop sent drep 1"])),
        ]
    }

    /// Returns exchanges in which data arrives before the RTU, which is lost at first: with our end as the
    /// client and as the server.
    pub const fn data_first() -> [Self; 2] {
        let exchange = Self::new(Script::DataFirst, Family::V4, 1024);
        [
            // The kernel's end repeats its REP after 2 s.
            Self { faults: &["drop sent rtu 1"], timing: "response_timeout=19", ..exchange },
            Self { faults: &["drop received rtu 1"], ..exchange },
        ]
    }

    /// Returns exchanges in which both ends disconnect and the DREQs cross: which end gets the other's DREQ
    /// while it waits for the answer to its own. Each end answers the other's.
    pub const fn crossings() -> [(&'static str, Self); 2] {
        let exchange = Self::new(Script::BothEnd, Family::V4, 1024);
        let ours = &[
            "delay received dreq 1 by 300ms",
            "delay sent dreq 1 by 1s",
            "delay sent drep 1 by 1ms",
            "delay received drep 1 by 1ms",
        ];
        let theirs = &[
            "delay sent dreq 1 by 300ms",
            "delay received dreq 1 by 1s",
            "delay sent drep 1 by 1ms",
            "delay received drep 1 by 1ms",
        ];
        [
            ("at ours", Self { faults: ours, ..exchange }),
            ("at rxe", Self { faults: theirs, ..exchange }),
        ]
    }

    /// Returns the configuration of our device.
    pub(super) fn config(&self) -> Result<DeviceConfig, Fault> {
        let faults = match self.faults {
            [] => None,
            faults => {
                let config: FaultConfig =
                    faults.join(",").parse().map_err(Fault::ours("read the faults"))?;
                Some(config)
            }
        };
        let connection_timing = match self.timing {
            "" => Timing::default(),
            timing => timing.parse().map_err(Fault::ours("read the times"))?,
        };
        let backend = environment::backend().map_err(Fault::ours("choose a back end"))?;
        Ok(DeviceConfig { backend, faults, connection_timing, ..DeviceConfig::default() })
    }

    /// Fails unless each fault has happened.
    pub(super) fn expect_faults(&self, device: &Device) -> Result<(), Fault> {
        let events = device.fault_events();
        for (rule, fault) in self.faults.iter().enumerate() {
            let has_happened = events.iter().any(|it| it.rule == rule && it.obstacle.is_none());
            expect(has_happened, || format!("{fault}: never happened"))?;
        }
        Ok(())
    }
}
