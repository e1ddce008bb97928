//! The state of the bootstrap server, without I/O.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::message::{Message, MessageError};

use super::lane_messages::{LaneOffer, LanePeer};
use super::progress::{self, Departure};
use crate::bootstrap::hello;
use crate::report::Report;

/// The number of a connection.
pub(crate) type ConnId = u64;

/// An action of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Output {
    /// Send a message.
    Send(ConnId, Message),
    /// Close the connection once all messages are sent.
    Close(ConnId),
    /// Deliver a report to rank 0's program.
    Report(Report),
}

/// The phase of the group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Waiting for `HELLO` of all ranks.
    Gathering,
    /// Waiting for `LANE` of all lanes.
    Offering,
    /// Waiting for `READY` of all ranks.
    Connecting,
    /// The group performs operations.
    Running,
    /// The group has ended, with success or failure.
    Over,
}

/// The ranks that have joined, and their progress.
#[derive(Debug)]
pub(crate) struct Membership {
    size: u32,
    lanes: u32,
    phase: Phase,
    ranks: BTreeMap<ConnId, u32>,
    members: BTreeMap<u32, Member>,
    /// The final message to all ranks; ranks that arrive later get it too.
    final_message: Option<Message>,
    /// Ranks that arrived after the end.
    late_ranks: BTreeSet<u32>,
    output: VecDeque<Output>,
}

#[derive(Debug)]
struct Member {
    conn: ConnId,
    hello: Message,
    offers: BTreeMap<u32, LaneOffer>,
    is_ready: bool,
    has_said_bye: bool,
    /// It takes and sends the messages of [`progress`].
    has_progress: bool,
    /// The missing ranks that it was told.
    told_missing: String,
    /// The operation in which it last said that it waits.
    waits_in: Option<u64>,
    /// The operation, of this number, that it calls where a neighbour calls another.
    calls: Option<(u64, String)>,
    /// The operations that it called before it left, if it has said so.
    operations: Option<u64>,
}

impl Membership {
    pub(crate) fn new(size: u32) -> Self {
        Self {
            size,
            lanes: 0,
            phase: Phase::Gathering,
            ranks: BTreeMap::new(),
            members: BTreeMap::new(),
            final_message: None,
            late_ranks: BTreeSet::new(),
            output: VecDeque::new(),
        }
    }

    pub(crate) fn phase(&self) -> Phase {
        self.phase
    }

    /// Returns true if every rank has connected at some time.
    pub(crate) fn is_complete(&self) -> bool {
        self.members.len() as u64 + self.late_ranks.len() as u64 == u64::from(self.size)
    }

    pub(crate) fn poll_output(&mut self) -> Option<Output> {
        self.output.pop_front()
    }

    /// Handles a message.
    pub(crate) fn handle_message(&mut self, conn: ConnId, message: Result<Message, MessageError>) {
        let handled = message.and_then(|message| match self.ranks.get(&conn).copied() {
            None => self.handle_hello(conn, message),
            Some(rank) => self.handle_member_message(rank, &message),
        });
        if let Err(error) = handled {
            match self.ranks.get(&conn).copied() {
                Some(rank) => self.abort(rank, &error.to_string()),
                // The connection belongs to no rank: the group is not affected.
                None => self.close_with(conn, Message::new("REFUSE").with("reason", error)),
            }
        }
    }

    /// Handles the end of a connection.
    pub(crate) fn handle_disconnect(&mut self, conn: ConnId) {
        let Some(rank) = self.ranks.remove(&conn) else { return };
        if self.members.get(&rank).is_some_and(|member| !member.has_said_bye) {
            self.abort(rank, "gone");
        }
    }

    /// Handles the expiry of the phase's timeout of `seconds`.
    pub(crate) fn handle_timeout(&mut self, seconds: u64) {
        match self.phase {
            Phase::Gathering => {
                let missing = (0..self.size).filter(|rank| !self.members.contains_key(rank));
                let names = name_ranks(missing);
                self.refuse(format!("{names} did not arrive within {seconds} s"));
            }
            Phase::Offering | Phase::Connecting => {
                let late_ranks = self.members.iter().find(|(_, member)| !member.is_ready);
                let rank = late_ranks.map_or(0, |(rank, _)| *rank);
                self.abort(rank, &format!("was not ready within {seconds} s"));
            }
            Phase::Running | Phase::Over => {}
        }
    }

    /// Handles the end of a second in which ranks were waited for: those that have arrived are told which are
    /// missing, if that has changed.
    pub(crate) fn handle_patience(&mut self) {
        if self.phase != Phase::Gathering {
            return;
        }
        let missing = name_ranks((0..self.size).filter(|rank| !self.members.contains_key(rank)));
        let told = Message::new("MISSING").with("ranks", &missing);
        let listening = self.members.values_mut().filter(|member| member.has_progress);
        for member in listening.filter(|member| member.told_missing != missing) {
            member.told_missing.clone_from(&missing);
            self.output.push_back(Output::Send(member.conn, told.clone()));
        }
    }

    /// Handles a rank that gives up an operation, or leaving if it has said `BYE`: ends the group because of
    /// the ranks that are not known to wait in it, too.
    fn handle_late(&mut self, rank: u32, number: u64, seconds: &str) {
        let is_leaving = self.members.get(&rank).is_some_and(|member| member.has_said_bye);
        let is_late = |other: &u32, member: &Member| {
            let is_there =
                if is_leaving { member.has_said_bye } else { member.waits_in == Some(number) };
            *other != rank && !is_there
        };
        let late = |known: bool| -> Vec<u32> {
            let members = self.members.iter().filter(|(_, member)| member.has_progress == known);
            members
                .filter(|(other, member)| is_late(other, member))
                .map(|(other, _)| *other)
                .collect()
        };
        // A rank that does not tell where it is comes second.
        let late = Some(late(true)).filter(|late| !late.is_empty()).unwrap_or_else(|| late(false));
        let Some(&first) = late.first() else {
            let what = if is_leaving { "leaving".into() } else { format!("operation {number}") };
            self.abort(rank, &format!("it waited {seconds} s in {what}, as all others do"));
            return;
        };
        let names = match late.len() {
            1 => "it".to_owned(),
            _ => name_ranks(late.into_iter()),
        };
        let what = match is_leaving {
            true => "leave".to_owned(),
            false => format!("call operation {number} (counted from 0)"),
        };
        self.abort(first, &format!("{names} did not {what}; rank {rank} waited {seconds} s"));
    }

    /// Handles what a rank calls where a neighbour calls another operation: ends the group if another rank
    /// has said so of the same operation, and otherwise asks the others.
    fn handle_calls(&mut self, rank: u32, number: u64, text: String) {
        let others = || self.members.iter().filter(|(other, _)| **other != rank);
        let different = others().find_map(|(other, member)| match &member.calls {
            Some((theirs, what)) if *theirs == number && *what != text => Some((*other, what)),
            _ => None,
        });
        if let Some((other, what)) = different {
            let reason = format!(
                "it called {what} as operation {number} (counted from 0), but rank {rank} called {text}"
            );
            self.abort(other, &reason);
            return;
        }
        let asked = others().filter(|(_, member)| member.has_progress);
        self.output
            .extend(asked.map(|(_, member)| Output::Send(member.conn, progress::asks(number))));
        if let Some(member) = self.members.get_mut(&rank) {
            member.calls = Some((number, text));
        }
    }

    /// Handles a rank that leaves after so many operations.
    fn handle_bye(&mut self, rank: u32, operations: Option<u64>) {
        let Some(member) = self.members.get_mut(&rank) else { return };
        (member.has_said_bye, member.operations) = (true, operations);
        if let Some(operations) = operations {
            let others = self.members.iter();
            let other = others
                .filter_map(|(other, member)| Some((*other, member.operations?)))
                .find(|(_, theirs)| *theirs != operations);
            if let Some((other, theirs)) = other {
                let early = if operations < theirs { rank } else { other };
                let (few, many) = (operations.min(theirs), operations.max(theirs));
                self.abort(
                    early,
                    &format!("it left after {few} operations, another rank after {many}"),
                );
                return;
            }
            let left = Departure { rank, operations }.to_message();
            let staying = self.members.values().filter(|one| one.has_progress && !one.has_said_bye);
            self.output.extend(staying.map(|one| Output::Send(one.conn, left.clone())));
        }
        if self.members.values().all(|member| member.has_said_bye) {
            self.end(Message::new("BYE"));
        }
    }

    /// Ends the group because `rank` failed.
    pub(crate) fn abort(&mut self, rank: u32, reason: &str) {
        let reason: String = reason.chars().take(MAX_REASON_CHARS).collect();
        self.end(Message::new("ABORT").with("rank", rank).with("reason", reason));
    }

    /// Ends the group before it is complete.
    fn refuse(&mut self, reason: String) {
        self.end(Message::new("REFUSE").with("reason", reason));
    }

    fn end(&mut self, message: Message) {
        if self.phase != Phase::Over {
            self.send_all(&message);
            self.phase = Phase::Over;
            self.output.extend(self.ranks.keys().map(|conn| Output::Close(*conn)));
            self.final_message = Some(message);
        }
    }

    fn close_with(&mut self, conn: ConnId, message: Message) {
        self.output.extend([Output::Send(conn, message), Output::Close(conn)]);
    }

    fn send_all(&mut self, message: &Message) {
        self.output.extend(self.ranks.keys().map(|conn| Output::Send(*conn, message.clone())));
    }

    fn handle_hello(&mut self, conn: ConnId, message: Message) -> Result<(), MessageError> {
        if message.word() != "HELLO" {
            return Err(MessageError::BadWord(message.word().to_owned()));
        }
        if let Some(final_message) = &self.final_message {
            let final_message = final_message.clone();
            self.close_with(conn, final_message);
            let rank = message.number_as("rank")?;
            if rank < self.size && !self.members.contains_key(&rank) {
                self.late_ranks.insert(rank);
            }
            return Ok(());
        }
        let wrong = hello::validate(&message, self.size)?;
        let rank: u32 = message.number_as("rank")?;
        self.ranks.insert(conn, rank);
        if let Some(reason) = wrong {
            self.refuse(reason);
            return Ok(());
        }
        if let Some(other) = self.members.get(&rank) {
            let (first, second) = (host_and_pid(&other.hello), host_and_pid(&message));
            self.refuse(format!("rank {rank} came twice, from {first} and from {second}"));
            return Ok(());
        }
        let member = Member {
            conn,
            has_progress: progress::is_spoken(&message),
            hello: message,
            offers: BTreeMap::new(),
            is_ready: false,
            has_said_bye: false,
            told_missing: String::new(),
            waits_in: None,
            calls: None,
            operations: None,
        };
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
            self.send_all(&Message::new("WELCOME").with(progress::KEY, 1));
            self.phase = if self.size == 1 { Phase::Connecting } else { Phase::Offering };
        }
        Ok(())
    }

    /// Handles a message of a rank after its `HELLO`.
    fn handle_member_message(&mut self, rank: u32, message: &Message) -> Result<(), MessageError> {
        let Some(member) = self.members.get_mut(&rank) else { return Ok(()) };
        match (message.word(), self.phase) {
            (_, Phase::Over) => {}
            ("ABORT", _) => {
                let culprit = message.number_as("rank").ok().filter(|culprit| *culprit < self.size);
                let reason = message.value("reason").unwrap_or("gives no reason").to_owned();
                self.abort(culprit.unwrap_or(rank), &reason);
            }
            ("REPORT", Phase::Running) => {
                self.output.push_back(Output::Report(Report::from_message(rank, message)));
            }
            ("LANE", Phase::Offering) => {
                let offer = LaneOffer::from_message(message)?;
                if offer.lane >= self.lanes || member.offers.insert(offer.lane, offer).is_some() {
                    self.abort(rank, &format!("offered lane {} out of place", offer.lane));
                } else {
                    self.send_neighbours();
                }
            }
            ("READY", Phase::Connecting) if !member.is_ready => {
                member.is_ready = true;
                if self.members.values().all(|member| member.is_ready) {
                    self.send_all(&Message::new("GO"));
                    self.phase = Phase::Running;
                }
            }
            ("BYE", Phase::Running) if !member.has_said_bye => {
                // Programs of before say only that they leave.
                let operations = message.number("operations").ok();
                self.handle_bye(rank, operations);
            }
            ("WAIT", Phase::Running) => member.waits_in = Some(message.number("operation")?),
            ("CALLS", Phase::Running) => {
                let text = message.text("text")?.to_owned();
                self.handle_calls(rank, message.number("operation")?, text);
            }
            ("LATE", Phase::Running) => {
                let seconds = message.text("seconds")?.to_owned();
                self.handle_late(rank, message.number("operation")?, &seconds);
            }
            (word, _) => self.abort(rank, &format!("said {word} out of place")),
        }
        Ok(())
    }

    /// Sends all ranks their neighbours, once all have offered all lanes.
    fn send_neighbours(&mut self) {
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
                self.output
                    .extend([Output::Send(member.conn, next), Output::Send(member.conn, previous)]);
            }
        }
        self.phase = Phase::Connecting;
    }
}

fn host_and_pid(hello: &Message) -> String {
    let field = |key| hello.value(key).unwrap_or("?");
    format!("process {} on {}", field("pid"), field("host"))
}

/// Lists up to 16 ranks, and counts the others.
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

/// The most characters of a reason, which must fit into a message.
const MAX_REASON_CHARS: usize = 1000;

#[cfg(test)]
mod tests {
    use super::super::lane_messages::tests::offer;
    use super::*;
    use crate::config::GroupConfig;

    fn hello(rank: u32, size: u32) -> Message {
        hello::message(&GroupConfig::new(rank, size, "localhost:1"))
    }

    /// Returns all outputs as text.
    fn outputs(membership: &mut Membership) -> Vec<String> {
        let mut all = Vec::new();
        while let Some(output) = membership.poll_output() {
            all.push(match output {
                Output::Send(conn, message) => format!("{conn}: {message}"),
                Output::Close(conn) => format!("{conn} closed"),
                Output::Report(report) => format!("report of {}", report.rank),
            });
        }
        all
    }

    /// Returns a welcomed group of two with connections 10 and 11.
    fn two_welcomed() -> Membership {
        let mut membership = Membership::new(2);
        membership.handle_message(11, Ok(hello(1, 2)));
        assert!(outputs(&mut membership).is_empty());
        membership.handle_message(10, Ok(hello(0, 2)));
        assert_eq!(outputs(&mut membership), ["10: WELCOME progress=1", "11: WELCOME progress=1"]);
        membership
    }

    /// Returns the same group in operation.
    fn two_running() -> Membership {
        let mut membership = two_welcomed();
        membership.handle_message(10, Ok(offer(0, 0).to_message()));
        membership.handle_message(11, Ok(offer(0, 1).to_message()));
        assert_eq!(outputs(&mut membership).len(), 4);
        membership.handle_message(11, Ok(Message::new("READY")));
        assert!(outputs(&mut membership).is_empty());
        membership.handle_message(10, Ok(Message::new("READY")));
        assert_eq!(outputs(&mut membership), ["10: GO", "11: GO"]);
        membership
    }

    #[test]
    fn a_group_forms_and_takes_leave_together() {
        let mut membership = two_running();
        assert_eq!(membership.phase(), Phase::Running);
        membership.handle_message(10, Ok(Message::new("BYE")));
        membership.handle_message(11, Ok(Message::new("REPORT").with("kind", "time")));
        assert_eq!(outputs(&mut membership), ["report of 1"]);
        membership.handle_message(11, Ok(Message::new("BYE")));
        assert_eq!(outputs(&mut membership), ["10: BYE", "11: BYE", "10 closed", "11 closed"]);
        membership.handle_disconnect(10);
        membership.handle_disconnect(11);
        assert!(outputs(&mut membership).is_empty());
    }

    #[test]
    fn each_rank_learns_the_next_ranks_staging_and_the_previous_ranks_record() {
        let mut membership = Membership::new(3);
        (0..3).for_each(|rank| membership.handle_message(u64::from(rank), Ok(hello(rank, 3))));
        outputs(&mut membership);
        (0..3).for_each(|rank: u8| {
            membership.handle_message(u64::from(rank), Ok(offer(0, rank).to_message()));
        });
        let heard = outputs(&mut membership);
        assert_eq!(heard.len(), 6);
        assert!(
            heard[0].starts_with("0: NEXT lane=0 mtu=1024 reports=1 gid=::ffff:10.0.0.1 qpn=0x101")
        );
        assert!(
            heard[1].starts_with("0: PREV lane=0 mtu=1024 reports=1 gid=::ffff:10.0.0.2 qpn=0x100")
        );
        assert!(
            heard[2].starts_with("1: NEXT lane=0 mtu=4096 reports=1 gid=::ffff:10.0.0.2 qpn=0x101")
        );
    }

    #[test]
    fn a_rank_that_goes_without_a_word_is_named_to_all_others_once() {
        let mut membership = two_running();
        membership.handle_disconnect(11);
        assert_eq!(outputs(&mut membership), ["10: ABORT rank=1 reason=gone", "10 closed"]);
        membership.handle_message(10, Ok(Message::new("ABORT").with("rank", 0)));
        membership.handle_disconnect(10);
        assert!(outputs(&mut membership).is_empty());
    }

    #[test]
    fn an_abort_names_its_culprit_to_everybody() {
        let mut membership = two_running();
        membership.handle_message(
            11,
            Ok(Message::new("ABORT").with("rank", 0).with("reason", "too slow")),
        );
        let heard = outputs(&mut membership);
        assert_eq!(
            heard[..2],
            ["10: ABORT rank=0 reason=too%20slow", "11: ABORT rank=0 reason=too%20slow"]
        );
    }

    #[test]
    fn ranks_that_differ_come_twice_or_stay_away_are_refused_by_name() {
        let refusal = |first: Message, second: Message| {
            let mut membership = Membership::new(2);
            membership.handle_message(1, Ok(first));
            membership.handle_message(2, Ok(second));
            let reason = match membership.poll_output() {
                Some(Output::Send(1, message)) => message.text("reason").unwrap().to_owned(),
                other => panic!("{other:?}"),
            };
            (reason, membership)
        };
        let (reason, mut membership) = refusal(hello(1, 2), hello(0, 2).with("job.type", "float"));
        assert_eq!(reason, "rank 1 has no job.type, but rank 0 has job.type=float");
        outputs(&mut membership);
        membership.handle_message(3, Ok(hello(1, 2)));
        assert_eq!(outputs(&mut membership).len(), 2, "late comers are told as well");
        let (reason, _) = refusal(hello(1, 2), hello(1, 2));
        assert!(reason.starts_with("rank 1 came twice, from process "), "{reason}");
        let (reason, _) = refusal(hello(0, 2), hello(2, 3));
        assert_eq!(reason, "rank 2 has size=3, but rank 0 has size=2");

        let mut membership = Membership::new(20);
        membership.handle_message(1, Ok(hello(0, 20)));
        membership.handle_timeout(60);
        let Some(Output::Send(1, message)) = membership.poll_output() else { panic!() };
        let expected = "ranks 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16 and 3 more did \
                        not arrive within 60 s";
        assert_eq!(message.text("reason"), Ok(expected));
    }

    #[test]
    fn a_stranger_is_shown_the_door_and_the_group_does_not_notice() {
        let mut membership = Membership::new(2);
        membership.handle_message(1, Ok(hello(0, 2)));
        membership.handle_message(2, Message::parse("GET / HTTP/1.1"));
        membership.handle_message(3, Ok(Message::new("READY")));
        let heard = outputs(&mut membership);
        assert!(heard[0].starts_with("2: REFUSE") && heard[1] == "2 closed", "{heard:?}");
        assert!(heard[2].starts_with("3: REFUSE") && heard[3] == "3 closed", "{heard:?}");
        membership.handle_disconnect(2);
        assert_eq!(membership.phase(), Phase::Gathering);
        assert!(outputs(&mut membership).is_empty());
    }

    #[test]
    fn words_out_of_place_and_lanes_that_do_not_exist_end_the_group_by_name() {
        for (words, expected) in [
            (vec![Message::new("GO")], "said GO out of place"),
            (vec![Message::new("READY")], "said READY out of place"),
            (vec![offer(1, 1).to_message()], "offered lane 1 out of place"),
            (
                vec![offer(0, 1).to_message(), offer(0, 1).to_message()],
                "offered lane 0 out of place",
            ),
            (vec![Message::new("LANE")], "LANE lacks lane; use the same version on all ranks"),
        ] {
            let mut membership = two_welcomed();
            words.into_iter().for_each(|message| membership.handle_message(11, Ok(message)));
            let Some(Output::Send(10, message)) = membership.poll_output() else {
                panic!("{expected}")
            };
            assert_eq!(message.number("rank"), Ok(1));
            assert_eq!(message.text("reason"), Ok(expected));
        }
    }

    #[test]
    fn ranks_that_have_arrived_are_told_once_which_are_missing() {
        let mut membership = Membership::new(3);
        membership.handle_message(1, Ok(hello(0, 3)));
        membership.handle_patience();
        membership.handle_patience();
        assert_eq!(outputs(&mut membership), ["1: MISSING ranks=ranks%201,%202"]);
        membership.handle_message(2, Ok(hello(2, 3)));
        membership.handle_patience();
        let told = outputs(&mut membership);
        assert_eq!(told, ["1: MISSING ranks=rank%201", "2: MISSING ranks=rank%201"]);
        membership.handle_message(3, Ok(hello(1, 3)));
        membership.handle_patience();
        assert!(outputs(&mut membership).iter().all(|text| text.ends_with("WELCOME progress=1")));
    }

    #[test]
    fn a_rank_that_leaves_is_told_to_those_that_go_on_and_counts_must_agree() {
        let bye = |operations: u64| Ok(Message::new("BYE").with("operations", operations));
        let mut membership = two_running();
        membership.handle_message(11, bye(3));
        assert_eq!(outputs(&mut membership), ["10: LEFT rank=1 operations=3"]);
        membership.handle_message(10, bye(3));
        assert_eq!(outputs(&mut membership)[0], "10: BYE");

        let mut membership = two_running();
        membership.handle_message(11, bye(3));
        outputs(&mut membership);
        membership.handle_message(10, bye(4));
        let expected = "10: ABORT rank=1 reason=it%20left%20after%203%20operations,%20another%20rank%20after%204";
        assert_eq!(outputs(&mut membership)[0], expected);
    }

    #[test]
    fn a_rank_that_waits_in_vain_names_the_ranks_that_do_not_wait_with_it() {
        let late = |number: u64| Message::parse(&format!("LATE operation={number} seconds=5"));
        let reason = |membership: &mut Membership| {
            let said = outputs(membership);
            Message::parse(said[0].split_once(": ").unwrap().1).unwrap()
        };
        let mut membership = two_running();
        membership.handle_message(10, Ok(Message::new("WAIT").with("operation", 6)));
        membership.handle_message(10, late(6));
        let told = reason(&mut membership);
        assert_eq!(told.value("rank"), Some("1"));
        let expected = "it did not call operation 6 (counted from 0); rank 0 waited 5 s";
        assert_eq!(told.value("reason"), Some(expected));

        let mut membership = two_running();
        for conn in [10, 11] {
            membership.handle_message(conn, Ok(Message::new("WAIT").with("operation", 6)));
        }
        membership.handle_message(11, late(6));
        let told = reason(&mut membership);
        assert_eq!(told.value("reason"), Some("it waited 5 s in operation 6, as all others do"));

        let mut membership = two_running();
        membership.handle_message(11, Ok(Message::new("BYE").with("operations", 2)));
        outputs(&mut membership);
        membership.handle_message(11, late(2));
        let told = reason(&mut membership);
        assert_eq!(told.value("reason"), Some("it did not leave; rank 1 waited 5 s"));
    }

    #[test]
    fn ranks_that_call_different_operations_are_told_what_each_calls() {
        let calls = |text: &str| Ok(Message::new("CALLS").with("operation", 4).with("text", text));
        let mut membership = two_running();
        membership.handle_message(10, calls("barrier"));
        assert_eq!(outputs(&mut membership), ["11: CALLS operation=4"]);
        membership.handle_message(11, calls("all_reduce"));
        let told = outputs(&mut membership).swap_remove(0);
        let told = Message::parse(told.split_once(": ").unwrap().1).unwrap();
        let expected =
            "it called barrier as operation 4 (counted from 0), but rank 1 called all_reduce";
        assert_eq!((told.value("rank"), told.value("reason")), (Some("0"), Some(expected)));
    }

    #[test]
    fn a_rank_that_knows_no_progress_is_sent_none() {
        let old = |rank: u32| {
            let text = hello(rank, 2).to_string().replace(" progress=1", "");
            Message::parse(&text)
        };
        let mut membership = Membership::new(2);
        membership.handle_message(10, old(0));
        membership.handle_patience();
        assert!(outputs(&mut membership).is_empty());
        membership.handle_message(11, Ok(hello(1, 2)));
        membership.handle_message(10, Ok(offer(0, 0).to_message()));
        membership.handle_message(11, Ok(offer(0, 1).to_message()));
        for conn in [10, 11] {
            membership.handle_message(conn, Ok(Message::new("READY")));
        }
        outputs(&mut membership);
        membership.handle_message(11, Ok(Message::new("BYE").with("operations", 3)));
        assert!(outputs(&mut membership).is_empty());
        membership.handle_message(10, Ok(Message::new("BYE")));
        assert_eq!(outputs(&mut membership)[0], "10: BYE");
    }

    #[test]
    fn a_rank_that_is_never_ready_is_named() {
        let mut membership = two_welcomed();
        membership.handle_message(10, Ok(offer(0, 0).to_message()));
        membership.handle_message(11, Ok(offer(0, 1).to_message()));
        outputs(&mut membership);
        membership.handle_message(10, Ok(Message::new("READY")));
        membership.handle_timeout(5);
        assert_eq!(
            outputs(&mut membership)[0],
            "10: ABORT rank=1 reason=was%20not%20ready%20within%205%20s"
        );
    }
}
