//! Links of private hosts that go down and come back, as sentences say.
//!
//! The links of a rail end at the ports of its bridge or switch, in a namespace of its own. A port that is set down
//! takes the carrier of the host's interface, which keeps its addresses.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::fd::AsFd;
use std::path::Path;
use std::thread;
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use roce_faults::LinkRule;
use roce_io::{FaultEventOf, FaultLog, monotonic};
use roce_netns::{Host, port_name};
use roce_verbs::{FaultEvent, FaultSentence};

use crate::error::Result;
use crate::faults::Faults;
use crate::run::outcome::fault_log;
use crate::switch::interconnect::Interconnect;

/// The links of a run, and the sentences about them.
pub(super) struct LinkFaults {
    rules: Vec<Rule>,
    /// Where the ports of each rail are: port N is that of rank N.
    rails: Vec<Host>,
    /// Ports that are down, by rail and rank.
    down: Vec<(u32, u32)>,
    ranks: u32,
    /// When the run began: see [`monotonic`].
    began: Duration,
    log: FaultLog,
    events: Events,
}

/// A sentence, and how far it is.
struct Rule {
    rule: LinkRule,
    /// Its place in the script.
    place: usize,
    /// When its packet came by the last time.
    met: Option<Duration>,
    is_down: bool,
    outages: u64,
}

impl LinkFaults {
    /// Prepares the sentences about links of a run; `None` if there are none.
    pub(super) fn new(
        faults: &Faults,
        rails: &[Interconnect],
        ranks: u32,
        began: Duration,
        folder: &Path,
    ) -> Result<Option<Self>> {
        let script = faults.script();
        let rules = script.iter().enumerate().filter_map(|(place, sentence)| match sentence {
            FaultSentence::Links(rule) => {
                Some(Rule { rule: *rule, place, met: None, is_down: false, outages: 0 })
            }
            _ => None,
        });
        let rules: Vec<_> = rules.collect();
        if rules.is_empty() {
            return Ok(None);
        }
        let path = fault_log::path(folder);
        Ok(Some(Self {
            rules,
            rails: rails.iter().map(|rail| rail.host().clone()).collect(),
            down: Vec::new(),
            ranks,
            began,
            log: FaultLog::open(Some(&path), None),
            events: Events::of(&path)?,
        }))
    }

    /// Starts the thread that sets ports down and up. It ends with the process.
    pub(super) fn start(mut self) -> Result {
        thread::Builder::new().name("links".to_owned()).spawn(move || {
            loop {
                self.apply();
                if let Err(error) = self.wait() {
                    eprintln!("roce: the links stay as they are: {error}");
                    return;
                }
            }
        })?;
        Ok(())
    }

    /// Brings the ports to where they are to be now.
    fn apply(&mut self) {
        let now = monotonic().saturating_sub(self.began);
        for rule in &mut self.rules {
            let is_down = rule.rule.is_down(now, rule.met);
            if is_down == rule.is_down {
                continue;
            }
            rule.is_down = is_down;
            rule.outages += u64::from(is_down);
            let name = name_of(&rule.rule);
            let (kind, state) = match is_down {
                true => (FaultEventOf::LinkDown, "down"),
                false => (FaultEventOf::LinkUp, "up"),
            };
            // Before the ports change: what packets then meet stands behind it.
            self.log.note_of(kind, rule.place, rule.outages, || format!("{name} is {state}"));
        }
        for (rail, host) in (0..).zip(&self.rails) {
            for rank in 0..self.ranks {
                let is_of = |rule: &&Rule| {
                    let LinkRule { rail: of, rank: whose, .. } = rule.rule;
                    of == rail && whose.is_none_or(|whose| whose == rank)
                };
                let is_down = self.rules.iter().filter(is_of).any(|rule| rule.is_down);
                let was_down = self.down.contains(&(rail, rank));
                if is_down == was_down {
                    continue;
                }
                let port = port_name(rank);
                let set = if is_down { host.set_down(&port) } else { host.set_up(&port) };
                if let Err(error) = set {
                    eprintln!("roce: rail {rail} of rank {rank}: {error}");
                }
                self.down.retain(|link| *link != (rail, rank));
                if is_down {
                    self.down.push((rail, rank));
                }
            }
        }
    }

    /// Waits until a link changes, or a rank has met the packet of a sentence.
    fn wait(&mut self) -> io::Result<()> {
        let now = monotonic().saturating_sub(self.began);
        let next = self.rules.iter().filter_map(|rule| rule.rule.next_change(now, rule.met)).min();
        for event in self.events.wait(next.map(|next| next - now))? {
            let Some(rule) = self.rules.iter_mut().find(|rule| rule.place == event.rule) else {
                continue;
            };
            // What a link that is down has lost begins nothing new.
            let is_met = matches!(event.kind, FaultEventOf::Rule | FaultEventOf::Outage);
            if !rule.is_down && is_met {
                rule.met = Some(monotonic().saturating_sub(self.began));
            }
        }
        Ok(())
    }
}

fn name_of(rule: &LinkRule) -> String {
    match rule.rank {
        None => format!("rail {}", rule.rail),
        Some(rank) => format!("rail {} of rank {rank}", rule.rail),
    }
}

/// The events that processes of a run append to its log of faults.
struct Events {
    file: File,
    watch: Inotify,
    /// The begin of a line that is not complete.
    rest: Vec<u8>,
}

impl Events {
    fn of(path: &Path) -> io::Result<Self> {
        let watch = Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK)?;
        watch.add_watch(path, AddWatchFlags::IN_MODIFY)?;
        let mut file = File::open(path)?;
        file.seek(SeekFrom::End(0))?;
        Ok(Self { file, watch, rest: Vec::new() })
    }

    /// Returns new events as soon as there are some, or after a time.
    fn wait(&mut self, time: Option<Duration>) -> io::Result<Vec<FaultEvent>> {
        // Rounded up: a link that is looked at too early would be looked at again.
        let time = time.map(|time| time.as_micros().div_ceil(1000));
        let timeout = match time {
            Some(millis) => PollTimeout::try_from(millis).unwrap_or(PollTimeout::MAX),
            None => PollTimeout::NONE,
        };
        match poll(&mut [PollFd::new(self.watch.as_fd(), PollFlags::POLLIN)], timeout) {
            Ok(0) | Err(nix::errno::Errno::EINTR) => return Ok(Vec::new()),
            Ok(_) => {}
            Err(errno) => return Err(errno.into()),
        }
        while self.watch.read_events().is_ok_and(|events| !events.is_empty()) {}
        let mut bytes = std::mem::take(&mut self.rest);
        (&self.file).take(MAX_READ).read_to_end(&mut bytes)?;
        let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        self.rest = bytes.split_off(whole);
        self.rest.truncate(MAX_LINE);
        Ok(String::from_utf8_lossy(&bytes).lines().filter_map(FaultEvent::parse).collect())
    }
}

/// Most bytes of a log that are read at once.
const MAX_READ: u64 = 1 << 20;
/// Longest line: a program may write what it likes.
const MAX_LINE: usize = 1 << 10;
