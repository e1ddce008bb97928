//! The packets of a capture, sent to other hosts.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use roce_dissect::{Filter, Packet, Timestamp};
use roce_generator::{Change, Draft, DraftError, Rewriting};
use roce_wire::MacAddr;

use super::captures::for_each_packet;
use super::options::Options;
use super::pace::Pace;
use super::runner::Runner;
use crate::error::{CliError, Result};

/// A capture, and how its packets are changed.
#[derive(Debug)]
pub(super) struct Replay {
    file: PathBuf,
    filter: Option<Filter>,
    rewriting: Rewriting,
    changes: Vec<Change>,
    rate: Option<u32>,
    count: u32,
    is_dry: bool,
}

/// Packets of the capture by what became of them.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    sent: u32,
    filtered: u64,
    /// Not RoCEv2.
    others: u64,
    /// Not captured whole.
    cut: u64,
}

impl Replay {
    /// Returns the replay that the options describe.
    pub(super) fn new(options: &Options, file: &Path) -> Result<Self> {
        let changes = options.packet.set.clone();
        if let Some(change) = changes.iter().find(|change| change.is_series()) {
            let text = format!(
                "--set {}+=… rises from one packet to the next, and a replay has different ones",
                change.field().name()
            );
            return Err(CliError::new(text));
        }
        let replay = &options.replay;
        Ok(Self {
            file: file.to_owned(),
            filter: replay.filter.clone(),
            rewriting: Rewriting {
                addresses: replay.map_address.clone(),
                queue_pairs: replay.map_qp.clone(),
            },
            changes,
            rate: options.packet.rate,
            count: options.packet.count.unwrap_or(1),
            is_dry: options.output.dry_run,
        })
    }

    /// Sends the packets.
    pub(super) fn run(&self, runner: &mut Runner) -> Result {
        let mut counts = Counts::default();
        for _ in 0..self.count {
            self.run_once(runner, &mut counts)?;
        }
        runner.end_lines()?;
        for (count, what) in [
            (counts.others, "are not RoCEv2"),
            (counts.cut, "were not captured whole"),
            (counts.filtered, "do not pass the filter"),
        ] {
            if count > 0 {
                eprintln!("roce: {count} packets {what} and are left out");
            }
        }
        match counts.sent {
            0 => Err(CliError::new(format!("{} has no packet to send", self.file.display()))),
            _ => Ok(()),
        }
    }

    fn run_once(&self, runner: &mut Runner, counts: &mut Counts) -> Result {
        let mut first: Option<(Timestamp, Instant)> = None;
        let (pace, already_sent) = (self.rate.map(Pace::new), counts.sent);
        for_each_packet(&self.file, true, |packet| {
            let Some(mut draft) = self.draft(packet, counts)? else { return Ok(true) };
            // Finding the next hop takes a while.
            let to = self.direct(runner, &mut draft)?;
            let captured = packet.frame.time;
            let at = match (&pace, first) {
                (Some(pace), _) => pace.at(counts.sent - already_sent),
                (None, Some((first, start))) => {
                    start + Duration::from_nanos(captured.0.saturating_sub(first.0))
                }
                (None, None) => first.insert((captured, Instant::now())).1,
            };
            if !self.is_dry {
                runner.wait_until(at)?;
            }
            runner.send(&mut draft, Some(to))?;
            counts.sent = counts.sent.saturating_add(1);
            Ok(true)
        })
    }

    /// Returns the changed packet; `None` if it is left out.
    fn draft(&self, packet: &Packet<'_>, counts: &mut Counts) -> Result<Option<Draft>> {
        let mut draft = match Draft::of_packet(packet) {
            Ok(draft) => draft,
            Err(DraftError::Cut { .. }) => {
                counts.cut += 1;
                return Ok(None);
            }
            Err(_) => {
                counts.others += 1;
                return Ok(None);
            }
        };
        if self.filter.as_ref().is_some_and(|filter| !filter.matches(packet)) {
            counts.filtered += 1;
            return Ok(None);
        }
        self.rewriting.apply(&mut draft);
        draft.finish();
        Ok(Some(draft))
    }

    /// Writes the MAC addresses and the fields that are set, and returns the destination.
    fn direct(&self, runner: &mut Runner, draft: &mut Draft) -> Result<IpAddr> {
        let to = draft.destination();
        let is_set = |change: &Change| change.field().name() == "ethernet.destination";
        let next_hop = match self.changes.iter().any(is_set) {
            true => MacAddr([0; 6]),
            false => runner.route().next_hop(to)?,
        };
        draft.set_macs(runner.route().own_mac(to)?, next_hop);
        draft.change_known(&self.changes)?;
        runner.prepare(to)?;
        Ok(to)
    }
}
