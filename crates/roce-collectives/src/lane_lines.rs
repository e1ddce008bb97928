//! The bootstrap's lines about lanes: where queue pairs and memory of a rank are.

use std::net::{IpAddr, Ipv6Addr};

use roce_ring::{Line, LineError};
use roce_verbs::exchange::QpDest;
use roce_verbs::{Gid, PathMtu, Psn, Qpn, RemoteSpan};

/// One end of a lane's connection to one neighbour: a queue pair, and the memory of ours that
/// this neighbour writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LaneEnd {
    pub(crate) dest: QpDest,
    pub(crate) staging: RemoteSpan,
    /// The window record, which only the next rank writes.
    pub(crate) record: Option<RemoteSpan>,
}

/// What a rank offers on one lane: `LANE`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LaneOffer {
    pub(crate) lane: u32,
    pub(crate) mtu: PathMtu,
    /// Towards the next rank, with the window record.
    pub(crate) next: LaneEnd,
    /// Towards the previous rank.
    pub(crate) previous: LaneEnd,
}

/// What a rank learns about a neighbour on one lane: `NEXT` or `PREV`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LanePeer {
    pub(crate) lane: u32,
    pub(crate) mtu: PathMtu,
    pub(crate) end: LaneEnd,
}

/// How an end's memory is called in lines: address and key.
const RECORD: (&str, &str) = ("window", "window_key");
const STAGING: (&str, &str) = ("slots", "key");

impl LaneOffer {
    pub(crate) fn to_line(self) -> Line {
        let line = Line::new("LANE").with("lane", self.lane).with("mtu", self.mtu.bytes());
        let line = write_end(line, "next.", &self.next);
        write_end(line, "prev.", &self.previous)
    }

    pub(crate) fn from_line(line: &Line) -> Result<Self, LineError> {
        Ok(Self {
            lane: line.number_as("lane")?,
            mtu: read_mtu(line)?,
            next: read_end(line, "next.", true)?,
            previous: read_end(line, "prev.", false)?,
        })
    }
}

impl LanePeer {
    /// What a rank with `mine` is told about its next rank, whose offer is `next`.
    pub(crate) fn next_of(mine: &LaneOffer, next: &LaneOffer) -> Line {
        let line = Self::head("NEXT", mine, next);
        write_end(line, "", &next.previous)
    }

    /// What a rank with `mine` is told about its previous rank, whose offer is `previous`.
    pub(crate) fn previous_of(mine: &LaneOffer, previous: &LaneOffer) -> Line {
        let line = Self::head("PREV", mine, previous);
        write_end(line, "", &previous.next)
    }

    fn head(word: &str, mine: &LaneOffer, theirs: &LaneOffer) -> Line {
        Line::new(word).with("lane", mine.lane).with("mtu", mine.mtu.min(theirs.mtu).bytes())
    }

    /// Reads a `NEXT` or `PREV`.
    pub(crate) fn from_line(line: &Line) -> Result<Self, LineError> {
        let has_record = line.word() == "PREV";
        Ok(Self {
            lane: line.number_as("lane")?,
            mtu: read_mtu(line)?,
            end: read_end(line, "", has_record)?,
        })
    }
}

fn write_end(line: Line, prefix: &str, end: &LaneEnd) -> Line {
    let LaneEnd { dest, staging, record } = end;
    let line = line
        .with(&format!("{prefix}gid"), Ipv6Addr::from(dest.gid.0))
        .with(&format!("{prefix}qpn"), format_args!("{:#x}", dest.qpn.get()))
        .with(&format!("{prefix}psn"), format_args!("{:#x}", dest.psn.get()));
    let spans = [(STAGING, Some(*staging)), (RECORD, *record)];
    spans.into_iter().filter_map(|(names, span)| Some((names, span?))).fold(
        line,
        |line, (names, span)| {
            line.with(&format!("{prefix}{}", names.0), format_args!("{:#x}", span.address))
                .with(&format!("{prefix}{}", names.1), format_args!("{:#x}", span.key))
        },
    )
}

fn read_end(line: &Line, prefix: &str, has_record: bool) -> Result<LaneEnd, LineError> {
    let key = |name: &str| format!("{prefix}{name}");
    let bad = |name: &str| LineError::NotANumber {
        key: key(name),
        value: line.value(&key(name)).unwrap_or_default().to_owned(),
    };
    let address: Ipv6Addr = line.text(&key("gid"))?.parse().map_err(|_| bad("gid"))?;
    let qpn = Qpn::new(line.number_as(&key("qpn"))?).ok_or_else(|| bad("qpn"))?;
    let psn = Psn::new(line.number_as(&key("psn"))?).ok_or_else(|| bad("psn"))?;
    let span = |names: (&str, &str)| -> Result<RemoteSpan, LineError> {
        Ok(RemoteSpan { address: line.number(&key(names.0))?, key: line.number_as(&key(names.1))? })
    };
    Ok(LaneEnd {
        dest: QpDest { qpn, psn, gid: Gid::from(IpAddr::V6(address)) },
        staging: span(STAGING)?,
        record: has_record.then(|| span(RECORD)).transpose()?,
    })
}

fn read_mtu(line: &Line) -> Result<PathMtu, LineError> {
    let bytes: usize = line.number_as("mtu")?;
    let all = [PathMtu::B256, PathMtu::B512, PathMtu::B1024, PathMtu::B2048, PathMtu::B4096];
    all.into_iter().find(|mtu| mtu.bytes() == bytes).ok_or_else(|| LineError::NotANumber {
        key: "mtu".into(),
        value: line.value("mtu").unwrap_or_default().to_owned(),
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn offer(lane: u32, rank: u8) -> LaneOffer {
        let end = |number: u32, has_record: bool| LaneEnd {
            dest: QpDest {
                qpn: Qpn::new(0x100 + number).unwrap(),
                psn: Psn::new(0xabcdef).unwrap(),
                gid: Gid::from(IpAddr::from([10, 0, 0, rank])),
            },
            staging: RemoteSpan { address: 0x7000_0000_1000 + u64::from(rank), key: number },
            record: has_record
                .then(|| RemoteSpan { address: 0x7000_0000_2000 + u64::from(rank), key: number }),
        };
        let mtu = if rank == 0 { PathMtu::B1024 } else { PathMtu::B4096 };
        LaneOffer { lane, mtu, next: end(2 * lane, true), previous: end(2 * lane + 1, false) }
    }

    #[test]
    fn an_offer_is_read_as_it_was_written() {
        let line = offer(3, 7).to_line();
        assert_eq!(LaneOffer::from_line(&Line::parse(&line.to_string()).unwrap()), Ok(offer(3, 7)));
        assert_eq!(line.value("next.gid"), Some("::ffff:10.0.0.7"));
    }

    #[test]
    fn neighbours_are_told_the_end_that_faces_them_and_the_smaller_mtu() {
        let (mine, theirs) = (offer(1, 0), offer(1, 1));
        let next = LanePeer::from_line(&LanePeer::next_of(&mine, &theirs)).unwrap();
        assert_eq!(next, LanePeer { lane: 1, mtu: PathMtu::B1024, end: theirs.previous });
        let previous = LanePeer::from_line(&LanePeer::previous_of(&theirs, &mine)).unwrap();
        assert_eq!(previous, LanePeer { lane: 1, mtu: PathMtu::B1024, end: mine.next });
    }

    #[test]
    fn numbers_beyond_their_range_are_refused() {
        let good = offer(0, 1).to_line().to_string();
        for (from, to) in [("0xabcdef", "0x1000000"), ("mtu=4096", "mtu=4097"), ("::ffff:", "::x:")]
        {
            let bad = Line::parse(&good.replace(from, to)).unwrap();
            assert!(LaneOffer::from_line(&bad).is_err(), "{to}");
        }
    }
}
