//! What the hub knows and says, without any I/O.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use roce_ring::{Line, LineError};

use crate::hello;
use crate::lane_lines::{LaneOffer, LanePeer};
use crate::report::Report;

/// A connection's number.
pub(crate) type Seat = u64;

/// What the hub is to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Out {
    /// Send a line.
    Say(Seat, Line),
    /// Close the connection when all is sent.
    Close(Seat),
    /// Hand this to rank 0's program.
    Report(Report),
}

/// How far the group has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Waiting for ranks to say HELLO.
    Gathering,
    /// Waiting for LANEs.
    Offering,
    /// Waiting for READYs.
    Connecting,
    /// The group works.
    Running,
    /// It has ended, well or not.
    Over,
}

/// Who is there, and how far they are.
#[derive(Debug)]
pub(crate) struct Roll {
    size: u32,
    lanes: u32,
    phase: Phase,
    ranks: BTreeMap<Seat, u32>,
    members: BTreeMap<u32, Member>,
    /// What everybody was told last; late comers are told it too.
    last_word: Option<Line>,
    /// Ranks that came when all was over.
    late: BTreeSet<u32>,
    out: VecDeque<Out>,
}

#[derive(Debug)]
struct Member {
    seat: Seat,
    hello: Line,
    offers: BTreeMap<u32, LaneOffer>,
    is_ready: bool,
    said_bye: bool,
}

impl Roll {
    pub(crate) fn new(size: u32) -> Self {
        Self {
            size,
            lanes: 0,
            phase: Phase::Gathering,
            ranks: BTreeMap::new(),
            members: BTreeMap::new(),
            last_word: None,
            late: BTreeSet::new(),
            out: VecDeque::new(),
        }
    }

    pub(crate) fn phase(&self) -> Phase {
        self.phase
    }

    /// Whether every rank has come at some time.
    pub(crate) fn is_complete(&self) -> bool {
        self.members.len() as u64 + self.late.len() as u64 == u64::from(self.size)
    }

    pub(crate) fn poll_out(&mut self) -> Option<Out> {
        self.out.pop_front()
    }

    /// A line came.
    pub(crate) fn handle_line(&mut self, seat: Seat, line: Result<Line, LineError>) {
        let said = line.and_then(|line| match self.ranks.get(&seat).copied() {
            None => self.hello(seat, line),
            Some(rank) => self.word(rank, &line),
        });
        if let Err(error) = said {
            match self.ranks.get(&seat).copied() {
                Some(rank) => self.abort(rank, &error.to_string()),
                // A stranger: none of the group's business.
                None => self.dismiss(seat, Line::new("REFUSE").with("reason", error)),
            }
        }
    }

    /// A connection has ended.
    pub(crate) fn handle_gone(&mut self, seat: Seat) {
        let Some(rank) = self.ranks.remove(&seat) else { return };
        if self.members.get(&rank).is_some_and(|member| !member.said_bye) {
            self.abort(rank, "gone");
        }
    }

    /// The time allowed for this phase is over: `seconds`.
    pub(crate) fn handle_timeout(&mut self, seconds: u64) {
        match self.phase {
            Phase::Gathering => {
                let missing = (0..self.size).filter(|rank| !self.members.contains_key(rank));
                let names = name_ranks(missing);
                self.refuse(format!("{names} did not arrive within {seconds} s"));
            }
            Phase::Offering | Phase::Connecting => {
                let late = self.members.iter().find(|(_, member)| !member.is_ready);
                let rank = late.map_or(0, |(rank, _)| *rank);
                self.abort(rank, &format!("was not ready within {seconds} s"));
            }
            Phase::Running | Phase::Over => {}
        }
    }

    /// The group is over, since `rank` failed.
    pub(crate) fn abort(&mut self, rank: u32, reason: &str) {
        let reason: String = reason.chars().take(MOST_REASON).collect();
        self.end(Line::new("ABORT").with("rank", rank).with("reason", reason));
    }

    /// The group never came to be.
    fn refuse(&mut self, reason: String) {
        self.end(Line::new("REFUSE").with("reason", reason));
    }

    fn end(&mut self, line: Line) {
        if self.phase != Phase::Over {
            self.say_all(&line);
            self.phase = Phase::Over;
            self.out.extend(self.ranks.keys().map(|seat| Out::Close(*seat)));
            self.last_word = Some(line);
        }
    }

    fn dismiss(&mut self, seat: Seat, line: Line) {
        self.out.extend([Out::Say(seat, line), Out::Close(seat)]);
    }

    fn say_all(&mut self, line: &Line) {
        self.out.extend(self.ranks.keys().map(|seat| Out::Say(*seat, line.clone())));
    }

    fn hello(&mut self, seat: Seat, line: Line) -> Result<(), LineError> {
        if line.word() != "HELLO" {
            return Err(LineError::BadWord(line.word().to_owned()));
        }
        if let Some(last_word) = &self.last_word {
            let last_word = last_word.clone();
            self.dismiss(seat, last_word);
            let rank = line.number_as("rank")?;
            if rank < self.size && !self.members.contains_key(&rank) {
                self.late.insert(rank);
            }
            return Ok(());
        }
        let wrong = hello::judge(&line, self.size)?;
        let rank: u32 = line.number_as("rank")?;
        self.ranks.insert(seat, rank);
        if let Some(reason) = wrong {
            self.refuse(reason);
            return Ok(());
        }
        if let Some(other) = self.members.get(&rank) {
            let (first, second) = (whereabouts(&other.hello), whereabouts(&line));
            self.refuse(format!("rank {rank} came twice, from {first} and from {second}"));
            return Ok(());
        }
        let member =
            Member { seat, hello: line, offers: BTreeMap::new(), is_ready: false, said_bye: false };
        self.members.insert(rank, member);
        let compared = match (rank, self.members.get(&0)) {
            (0, Some(root)) => {
                self.members.values().find_map(|one| hello::difference(&one.hello, &root.hello))
            }
            (_, Some(root)) => hello::difference(&self.members[&rank].hello, &root.hello),
            (_, None) => None,
        };
        if let Some(reason) = compared {
            self.refuse(reason);
        } else if self.is_complete() {
            self.lanes = self.members[&0].hello.number_as("ring.lanes")?;
            self.say_all(&Line::new("WELCOME"));
            self.phase = if self.size == 1 { Phase::Connecting } else { Phase::Offering };
        }
        Ok(())
    }

    /// What a rank says after its HELLO.
    fn word(&mut self, rank: u32, line: &Line) -> Result<(), LineError> {
        let Some(member) = self.members.get_mut(&rank) else { return Ok(()) };
        match (line.word(), self.phase) {
            (_, Phase::Over) => {}
            ("ABORT", _) => {
                let culprit = line.number_as("rank").ok().filter(|culprit| *culprit < self.size);
                let reason = line.value("reason").unwrap_or("gives no reason").to_owned();
                self.abort(culprit.unwrap_or(rank), &reason);
            }
            ("REPORT", Phase::Running) => {
                self.out.push_back(Out::Report(Report::from_line(rank, line)));
            }
            ("LANE", Phase::Offering) => {
                let offer = LaneOffer::from_line(line)?;
                if offer.lane >= self.lanes || member.offers.insert(offer.lane, offer).is_some() {
                    self.abort(rank, &format!("offered lane {} out of place", offer.lane));
                } else {
                    self.introduce_neighbours();
                }
            }
            ("READY", Phase::Connecting) if !member.is_ready => {
                member.is_ready = true;
                if self.members.values().all(|member| member.is_ready) {
                    self.say_all(&Line::new("GO"));
                    self.phase = Phase::Running;
                }
            }
            ("BYE", Phase::Running) if !member.said_bye => {
                member.said_bye = true;
                if self.members.values().all(|member| member.said_bye) {
                    self.end(Line::new("BYE"));
                }
            }
            (word, _) => self.abort(rank, &format!("said {word} out of place")),
        }
        Ok(())
    }

    /// Tells everybody about the neighbours, once all have offered all lanes.
    fn introduce_neighbours(&mut self) {
        let lanes = self.lanes as usize;
        if self.members.values().any(|member| member.offers.len() < lanes) {
            return;
        }
        for (rank, member) in &self.members {
            let next = &self.members[&((rank + 1) % self.size)];
            let previous = &self.members[&((rank + self.size - 1) % self.size)];
            for (lane, mine) in &member.offers {
                let next = LanePeer::next_of(mine, &next.offers[lane]);
                let previous = LanePeer::previous_of(mine, &previous.offers[lane]);
                self.out.extend([Out::Say(member.seat, next), Out::Say(member.seat, previous)]);
            }
        }
        self.phase = Phase::Connecting;
    }
}

fn whereabouts(hello: &Line) -> String {
    let field = |key| hello.value(key).unwrap_or("?");
    format!("process {} on {}", field("pid"), field("host"))
}

/// At most a few ranks by number, and how many more.
fn name_ranks(ranks: impl Iterator<Item = u32>) -> String {
    let ranks: Vec<u32> = ranks.collect();
    let named: Vec<String> = ranks.iter().take(16).map(u32::to_string).collect();
    let more = match ranks.len().saturating_sub(16) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let noun = if ranks.len() == 1 { "rank" } else { "ranks" };
    format!("{noun} {}{more}", named.join(", "))
}

/// Characters of a reason that are passed on: it must fit into a line.
const MOST_REASON: usize = 1000;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::GroupConfig;
    use crate::lane_lines::tests::offer;

    fn hello(rank: u32, size: u32) -> Line {
        hello::of(&GroupConfig::new(rank, size, "localhost:1"))
    }

    /// Everything that is to be done, as text.
    fn said(roll: &mut Roll) -> Vec<String> {
        let mut all = Vec::new();
        while let Some(out) = roll.poll_out() {
            all.push(match out {
                Out::Say(seat, line) => format!("{seat}: {line}"),
                Out::Close(seat) => format!("{seat} closed"),
                Out::Report(report) => format!("report of {}", report.rank),
            });
        }
        all
    }

    /// A group of two at seats 10 and 11 that has been welcomed.
    fn two_welcomed() -> Roll {
        let mut roll = Roll::new(2);
        roll.handle_line(11, Ok(hello(1, 2)));
        assert!(said(&mut roll).is_empty());
        roll.handle_line(10, Ok(hello(0, 2)));
        assert_eq!(said(&mut roll), ["10: WELCOME", "11: WELCOME"]);
        roll
    }

    /// The same, at work.
    fn two_running() -> Roll {
        let mut roll = two_welcomed();
        roll.handle_line(10, Ok(offer(0, 0).to_line()));
        roll.handle_line(11, Ok(offer(0, 1).to_line()));
        assert_eq!(said(&mut roll).len(), 4);
        roll.handle_line(11, Ok(Line::new("READY")));
        assert!(said(&mut roll).is_empty());
        roll.handle_line(10, Ok(Line::new("READY")));
        assert_eq!(said(&mut roll), ["10: GO", "11: GO"]);
        roll
    }

    #[test]
    fn a_group_forms_and_takes_leave_together() {
        let mut roll = two_running();
        assert_eq!(roll.phase(), Phase::Running);
        roll.handle_line(10, Ok(Line::new("BYE")));
        roll.handle_line(11, Ok(Line::new("REPORT").with("kind", "time")));
        assert_eq!(said(&mut roll), ["report of 1"]);
        roll.handle_line(11, Ok(Line::new("BYE")));
        assert_eq!(said(&mut roll), ["10: BYE", "11: BYE", "10 closed", "11 closed"]);
        roll.handle_gone(10);
        roll.handle_gone(11);
        assert!(said(&mut roll).is_empty());
    }

    #[test]
    fn each_rank_learns_the_next_ranks_staging_and_the_previous_ranks_record() {
        let mut roll = Roll::new(3);
        (0..3).for_each(|rank| roll.handle_line(u64::from(rank), Ok(hello(rank, 3))));
        said(&mut roll);
        (0..3).for_each(|rank: u8| {
            roll.handle_line(u64::from(rank), Ok(offer(0, rank).to_line()));
        });
        let heard = said(&mut roll);
        assert_eq!(heard.len(), 6);
        assert!(heard[0].starts_with("0: NEXT lane=0 mtu=1024 gid=::ffff:10.0.0.1 qpn=0x101"));
        assert!(heard[1].starts_with("0: PREV lane=0 mtu=1024 gid=::ffff:10.0.0.2 qpn=0x100"));
        assert!(heard[2].starts_with("1: NEXT lane=0 mtu=4096 gid=::ffff:10.0.0.2 qpn=0x101"));
    }

    #[test]
    fn a_rank_that_goes_without_a_word_is_named_to_all_others_once() {
        let mut roll = two_running();
        roll.handle_gone(11);
        assert_eq!(said(&mut roll), ["10: ABORT rank=1 reason=gone", "10 closed"]);
        roll.handle_line(10, Ok(Line::new("ABORT").with("rank", 0)));
        roll.handle_gone(10);
        assert!(said(&mut roll).is_empty());
    }

    #[test]
    fn an_abort_names_its_culprit_to_everybody() {
        let mut roll = two_running();
        roll.handle_line(11, Ok(Line::new("ABORT").with("rank", 0).with("reason", "too slow")));
        let heard = said(&mut roll);
        assert_eq!(
            heard[..2],
            ["10: ABORT rank=0 reason=too%20slow", "11: ABORT rank=0 reason=too%20slow"]
        );
    }

    #[test]
    fn ranks_that_differ_come_twice_or_stay_away_are_refused_by_name() {
        let refusal = |first: Line, second: Line| {
            let mut roll = Roll::new(2);
            roll.handle_line(1, Ok(first));
            roll.handle_line(2, Ok(second));
            let reason = match roll.poll_out() {
                Some(Out::Say(1, line)) => line.text("reason").unwrap().to_owned(),
                other => panic!("{other:?}"),
            };
            (reason, roll)
        };
        let (reason, mut roll) = refusal(hello(1, 2), hello(0, 2).with("job.type", "float"));
        assert_eq!(reason, "rank 1 has no job.type, but rank 0 has job.type=float");
        said(&mut roll);
        roll.handle_line(3, Ok(hello(1, 2)));
        assert_eq!(said(&mut roll).len(), 2, "late comers are told as well");
        let (reason, _) = refusal(hello(1, 2), hello(1, 2));
        assert!(reason.starts_with("rank 1 came twice, from process "), "{reason}");
        let (reason, _) = refusal(hello(0, 2), hello(2, 3));
        assert_eq!(reason, "rank 2 has size=3, but rank 0 has size=2");

        let mut roll = Roll::new(20);
        roll.handle_line(1, Ok(hello(0, 20)));
        roll.handle_timeout(60);
        let Some(Out::Say(1, line)) = roll.poll_out() else { panic!() };
        let expected = "ranks 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16 and 3 more did \
                        not arrive within 60 s";
        assert_eq!(line.text("reason"), Ok(expected));
    }

    #[test]
    fn a_stranger_is_shown_the_door_and_the_group_does_not_notice() {
        let mut roll = Roll::new(2);
        roll.handle_line(1, Ok(hello(0, 2)));
        roll.handle_line(2, Line::parse("GET / HTTP/1.1"));
        roll.handle_line(3, Ok(Line::new("READY")));
        let heard = said(&mut roll);
        assert!(heard[0].starts_with("2: REFUSE") && heard[1] == "2 closed", "{heard:?}");
        assert!(heard[2].starts_with("3: REFUSE") && heard[3] == "3 closed", "{heard:?}");
        roll.handle_gone(2);
        assert_eq!(roll.phase(), Phase::Gathering);
        assert!(said(&mut roll).is_empty());
    }

    #[test]
    fn words_out_of_place_and_lanes_that_do_not_exist_end_the_group_by_name() {
        for (words, expected) in [
            (vec![Line::new("GO")], "said GO out of place"),
            (vec![Line::new("READY")], "said READY out of place"),
            (vec![offer(1, 1).to_line()], "offered lane 1 out of place"),
            (vec![offer(0, 1).to_line(), offer(0, 1).to_line()], "offered lane 0 out of place"),
            (
                vec![Line::new("LANE")],
                "LANE lacks lane; does the other side speak the same version?",
            ),
        ] {
            let mut roll = two_welcomed();
            words.into_iter().for_each(|line| roll.handle_line(11, Ok(line)));
            let Some(Out::Say(10, line)) = roll.poll_out() else { panic!("{expected}") };
            assert_eq!(line.number("rank"), Ok(1));
            assert_eq!(line.text("reason"), Ok(expected));
        }
    }

    #[test]
    fn a_rank_that_is_never_ready_is_named() {
        let mut roll = two_welcomed();
        roll.handle_line(10, Ok(offer(0, 0).to_line()));
        roll.handle_line(11, Ok(offer(0, 1).to_line()));
        said(&mut roll);
        roll.handle_line(10, Ok(Line::new("READY")));
        roll.handle_timeout(5);
        assert_eq!(
            said(&mut roll)[0],
            "10: ABORT rank=1 reason=was%20not%20ready%20within%205%20s"
        );
    }
}
