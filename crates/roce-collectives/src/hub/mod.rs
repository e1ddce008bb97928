//! The hub: where ranks meet, in a thread of rank 0's process.

mod roll;

use std::collections::BTreeMap;
use std::io;
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use self::roll::{Out, Phase, Roll, Seat};
use crate::config::MAX_TIMEOUT;
use crate::error::Error;
use crate::lines::Lines;
use crate::report::Report;

/// Where the ranks of a group meet: it compares what they bring, tells them of their
/// neighbours, and passes on who fails.
///
/// A [`Group`](crate::Group) of rank 0 starts one by itself. It ends when the group does;
/// dropped before, it tells all ranks that rank 0 is gone.
#[derive(Debug)]
pub struct Hub {
    address: SocketAddr,
    reports: Receiver<Report>,
    /// Its end tells the thread to stop.
    stop: Option<UnixStream>,
    thread: Option<JoinHandle<()>>,
}

/// Reports that may wait for rank 0's program; more are dropped.
const MOST_REPORTS: usize = 1 << 16;
/// Connections beyond the ranks' own: strangers, and late comers.
const STRANGERS: usize = 64;
/// How long a hub stays when the group is over, so that everybody hears why: ranks that have not
/// come yet, too, even when rank 0's program has had enough of it.
const LINGER: Duration = Duration::from_secs(3);

impl Hub {
    /// Starts a hub for `size` ranks, which may take `timeout` to arrive and as long again
    /// to connect. A port of 0 takes any that is free: see [`address`](Self::address).
    ///
    /// # Errors
    /// [`Error::Listen`].
    pub fn start(root: &str, size: u32, timeout: Duration) -> Result<Self, Error> {
        let listen = || -> io::Result<(TcpListener, SocketAddr)> {
            let addresses: Vec<SocketAddr> = root.to_socket_addrs()?.collect();
            let listener = TcpListener::bind(addresses.as_slice())?;
            listener.set_nonblocking(true)?;
            let address = listener.local_addr()?;
            Ok((listener, address))
        };
        let (listener, address) =
            listen().map_err(|source| Error::Listen { address: root.to_owned(), source })?;
        let (sender, reports) = mpsc::sync_channel(MOST_REPORTS);
        let (stop, stopped) = UnixStream::pair()?;
        let desk = Desk {
            listener,
            stopped,
            roll: Roll::new(size),
            guests: BTreeMap::new(),
            next_seat: 0,
            most_guests: size as usize + STRANGERS,
            reports: sender,
            timeout: timeout.min(MAX_TIMEOUT),
        };
        let thread = std::thread::Builder::new().name("ring hub".into());
        let thread = Some(thread.spawn(move || desk.run())?);
        Ok(Self { address, reports, stop: Some(stop), thread })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The next report of any rank, waiting up to `timeout` for it.
    pub fn next_report(&self, timeout: Duration) -> Option<Report> {
        self.reports.recv_timeout(timeout).ok()
    }

    /// All reports that have come.
    pub fn reports(&self) -> Vec<Report> {
        self.reports.try_iter().collect()
    }
}

impl Drop for Hub {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            // A panic there has been printed by the runtime; there is nothing to add.
            let _ended = thread.join();
        }
    }
}

/// What the thread has.
#[derive(Debug)]
struct Desk {
    listener: TcpListener,
    stopped: UnixStream,
    roll: Roll,
    guests: BTreeMap<Seat, Guest>,
    next_seat: Seat,
    most_guests: usize,
    reports: SyncSender<Report>,
    timeout: Duration,
}

#[derive(Debug)]
struct Guest {
    lines: Lines,
    /// All is said; what is left is to be sent, and the other side to close.
    is_leaving: bool,
    is_shut: bool,
}

impl Desk {
    fn run(mut self) {
        let (mut phase, mut deadline) = (self.roll.phase(), Instant::now() + self.timeout);
        loop {
            let now = Instant::now();
            if self.roll.phase() != phase {
                // Lanes and readiness have one time allowance together.
                let same = self.roll.phase() == Phase::Connecting && phase == Phase::Offering;
                phase = self.roll.phase();
                if !same {
                    let span = if phase == Phase::Over { LINGER } else { self.timeout };
                    deadline = now + span;
                }
            }
            let limit = (phase != Phase::Running).then(|| deadline.saturating_duration_since(now));
            if phase == Phase::Over {
                let all_gone = self.guests.is_empty() && self.roll.is_complete();
                if all_gone || limit.is_some_and(|limit| limit.is_zero()) {
                    return;
                }
            } else if limit.is_some_and(|limit| limit.is_zero()) {
                self.roll.handle_timeout(self.timeout.as_secs());
            }
            self.serve();
            if self.roll.phase() == phase && self.wait(limit).is_err() {
                return;
            }
        }
    }

    /// Takes what has come, and sends what is to be sent.
    fn serve(&mut self) {
        while self.guests.len() < self.most_guests
            && let Ok((stream, _)) = self.listener.accept()
        {
            if let Ok(lines) = Lines::new(stream) {
                let guest = Guest { lines, is_leaving: false, is_shut: false };
                self.guests.insert(self.next_seat, guest);
                self.next_seat += 1;
            }
        }
        for (seat, guest) in &mut self.guests {
            while let Some(line) = guest.lines.next_line() {
                self.roll.handle_line(*seat, line);
            }
            if guest.lines.has_ended() {
                self.roll.handle_gone(*seat);
            }
        }
        while let Some(out) = self.roll.poll_out() {
            self.carry_out(out);
        }
        for (seat, guest) in &mut self.guests {
            if guest.lines.flush().is_err() {
                self.roll.handle_gone(*seat);
                guest.is_leaving = true;
                guest.is_shut = true;
            } else if guest.is_leaving && guest.lines.is_flushed() && !guest.is_shut {
                guest.lines.shut();
                guest.is_shut = true;
            }
        }
        self.guests.retain(|_, guest| !guest.lines.has_ended());
    }

    fn carry_out(&mut self, out: Out) {
        match out {
            Out::Say(seat, line) => {
                if let Some(guest) = self.guests.get_mut(&seat)
                    && guest.lines.say(&line).is_err()
                {
                    self.roll.handle_gone(seat);
                }
            }
            Out::Close(seat) => {
                if let Some(guest) = self.guests.get_mut(&seat) {
                    guest.is_leaving = true;
                }
            }
            Out::Report(report) => {
                // A program that fetches none must not fill the memory.
                let _kept = self.reports.try_send(report);
            }
        }
    }

    /// Sleeps until somebody says something, or wants to come in.
    fn wait(&mut self, limit: Option<Duration>) -> io::Result<()> {
        // One more millisecond, so that the time is really over afterwards.
        let timeout = limit.map_or(PollTimeout::NONE, |limit| {
            PollTimeout::try_from(limit + Duration::from_millis(1)).unwrap_or(PollTimeout::MAX)
        });
        // Once it is over, rank 0's program has no say: what was said must reach everybody.
        let all_heard = self.guests.values().all(|guest| guest.lines.is_flushed());
        let waits_for_others =
            self.roll.phase() == Phase::Over && !(self.roll.is_complete() && all_heard);
        let mut set = Vec::new();
        if !waits_for_others {
            set.push(PollFd::new(self.stopped.as_fd(), PollFlags::POLLIN));
        }
        if self.guests.len() < self.most_guests {
            set.push(PollFd::new(self.listener.as_fd(), PollFlags::POLLIN));
        }
        for guest in self.guests.values() {
            let waits = !guest.lines.is_flushed();
            let flags =
                if waits { PollFlags::POLLIN | PollFlags::POLLOUT } else { PollFlags::POLLIN };
            set.push(PollFd::new(guest.lines.as_fd(), flags));
        }
        match poll(&mut set, timeout) {
            Ok(_) | Err(nix::errno::Errno::EINTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        let stops = !waits_for_others && set[0].any().unwrap_or(true);
        if stops {
            // Rank 0's program has dropped the hub.
            if self.roll.phase() == Phase::Over {
                return Err(io::ErrorKind::Interrupted.into());
            }
            self.roll.abort(0, "gone");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::GroupConfig;
    use crate::hello;
    use std::io::{BufRead, BufReader, Write};
    use std::net::TcpStream;

    fn hub(size: u32, timeout: Duration) -> Hub {
        Hub::start("127.0.0.1:0", size, timeout).unwrap()
    }

    fn visit(hub: &Hub, text: &str) -> BufReader<TcpStream> {
        let mut stream = TcpStream::connect(hub.address()).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream.write_all(text.as_bytes()).unwrap();
        BufReader::new(stream)
    }

    fn hear(stream: &mut BufReader<TcpStream>) -> String {
        let mut line = String::new();
        stream.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    fn hello(rank: u32, size: u32) -> String {
        hello::of(&GroupConfig::new(rank, size, "x:1")).encode().unwrap()
    }

    #[test]
    fn a_group_of_one_comes_and_goes() {
        let hub = hub(1, Duration::from_secs(10));
        let mut rank = visit(&hub, &hello(0, 1));
        assert_eq!(hear(&mut rank), "WELCOME");
        rank.get_mut().write_all(b"READY\nREPORT kind=time size=8\n").unwrap();
        assert_eq!(hear(&mut rank), "GO");
        let report = hub.next_report(Duration::from_secs(10)).unwrap();
        assert_eq!(
            (report.rank, report.kind.as_str(), report.value("size")),
            (0, "time", Some("8"))
        );
        rank.get_mut().write_all(b"BYE\n").unwrap();
        assert_eq!(hear(&mut rank), "BYE");
        assert_eq!(hear(&mut rank), "", "the connection ends");
    }

    #[test]
    fn ranks_that_stay_away_are_named_to_those_who_came() {
        let hub = hub(3, Duration::from_millis(100));
        let mut rank = visit(&hub, &hello(1, 3));
        let expected = "REFUSE reason=ranks%200,%202%20did%20not%20arrive%20within%200%20s";
        assert_eq!(hear(&mut rank), expected);
    }

    #[test]
    fn a_connection_that_ends_without_a_word_is_told_to_the_others() {
        let hub = hub(2, Duration::from_secs(10));
        let mut first = visit(&hub, &hello(0, 2));
        let mut second = visit(&hub, &hello(1, 2));
        assert_eq!((hear(&mut first), hear(&mut second)), ("WELCOME".into(), "WELCOME".into()));
        drop(second);
        assert_eq!(hear(&mut first), "ABORT rank=1 reason=gone");
    }

    #[test]
    fn a_hub_that_is_dropped_says_that_rank_0_is_gone() {
        let hub = hub(2, Duration::from_secs(10));
        let mut rank = visit(&hub, &hello(1, 2));
        std::thread::scope(|scope| {
            scope.spawn(move || drop(hub));
            assert_eq!(hear(&mut rank), "ABORT rank=0 reason=gone");
            drop(rank);
        });
    }

    #[test]
    fn a_rank_that_comes_late_hears_of_the_refusal_though_rank_0_has_left() {
        let hub = hub(3, Duration::from_secs(10));
        let address = hub.address();
        let mut root = visit(&hub, &hello(0, 3));
        let other = GroupConfig { slots: 3, ..GroupConfig::new(1, 3, "x:1") };
        let mut rank = visit(&hub, &hello::of(&other).encode().unwrap());
        let why = hear(&mut root);
        assert!(why.starts_with("REFUSE reason=rank%201"), "{why}");
        assert_eq!(hear(&mut rank), why);
        drop((root, rank));
        std::thread::scope(|scope| {
            let leaving = scope.spawn(move || drop(hub));
            let mut late = TcpStream::connect(address).unwrap();
            late.write_all(hello(2, 3).as_bytes()).unwrap();
            let mut late = BufReader::new(late);
            assert_eq!(hear(&mut late), why);
            drop(late);
            leaving.join().unwrap();
        });
    }

    #[test]
    fn a_line_without_end_is_not_kept() {
        let hub = hub(2, Duration::from_secs(10));
        let mut stranger = visit(&hub, "");
        let heard = std::thread::scope(|scope| {
            let mut writer = stranger.get_ref().try_clone().unwrap();
            // The hub stops reading at some point: how much is written does not matter.
            scope.spawn(move || writer.write_all(&vec![b'A'; 8192]));
            hear(&mut stranger)
        });
        assert!(heard.starts_with("REFUSE reason=the%20line%20has%20more"), "{heard}");
    }

    #[test]
    fn more_strangers_than_seats_do_not_keep_the_ranks_out() {
        let hub = hub(1, Duration::from_secs(10));
        let crowd: Vec<_> = (0..STRANGERS + 10).map(|_| visit(&hub, "")).collect();
        drop(crowd);
        let mut rank = visit(&hub, &hello(0, 1));
        assert_eq!(hear(&mut rank), "WELCOME");
    }
}
