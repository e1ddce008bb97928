//! The messages that describe lanes: queue pairs and memory of a rank.

use std::net::{IpAddr, Ipv6Addr};

use crate::message::{Message, MessageError};
use roce_verbs::exchange::QpDest;
use roce_verbs::{Gid, PathMtu, Psn, Qpn, RemoteAddr};

/// A rank's end of a lane to one neighbour: a queue pair, and the memory that the neighbour writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LaneEndpoint {
    pub(crate) dest: QpDest,
    pub(crate) staging: RemoteAddr,
    /// The window record, which only the next rank writes.
    pub(crate) record: Option<RemoteAddr>,
}

/// A rank's ends of one lane: `LANE`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LaneOffer {
    pub(crate) lane: u32,
    pub(crate) mtu: PathMtu,
    /// The queue pairs can report gaps, and take reports.
    pub(crate) gap_reports: bool,
    /// The end towards the next rank, with the window record.
    pub(crate) next: LaneEndpoint,
    /// The end towards the previous rank.
    pub(crate) previous: LaneEndpoint,
}

/// A neighbour's end of one lane: `NEXT` or `PREV`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LanePeer {
    pub(crate) lane: u32,
    pub(crate) mtu: PathMtu,
    /// Both queue pairs report gaps.
    pub(crate) gap_reports: bool,
    pub(crate) endpoint: LaneEndpoint,
}

/// Names of address and key in messages.
const RECORD: (&str, &str) = ("window", "window_key");
const STAGING: (&str, &str) = ("slots", "key");

impl LaneOffer {
    pub(crate) fn to_message(self) -> Message {
        let message = Message::new("LANE").with("lane", self.lane).with("mtu", self.mtu.bytes());
        let message = write_gap_reports(message, self.gap_reports);
        let message = write_endpoint(message, "next.", &self.next);
        write_endpoint(message, "prev.", &self.previous)
    }

    pub(crate) fn from_message(message: &Message) -> Result<Self, MessageError> {
        Ok(Self {
            lane: message.number_as("lane")?,
            mtu: read_mtu(message)?,
            gap_reports: reads_gap_reports(message),
            next: read_endpoint(message, "next.", true)?,
            previous: read_endpoint(message, "prev.", false)?,
        })
    }
}

impl LanePeer {
    /// Returns the message to a rank with offer `mine` about its next rank, whose offer is `next`.
    pub(crate) fn next_of(mine: &LaneOffer, next: &LaneOffer) -> Message {
        let message = Self::head("NEXT", mine, next);
        write_endpoint(message, "", &next.previous)
    }

    /// Returns the message to a rank with offer `mine` about its previous rank, with offer
    /// `previous`.
    pub(crate) fn previous_of(mine: &LaneOffer, previous: &LaneOffer) -> Message {
        let message = Self::head("PREV", mine, previous);
        write_endpoint(message, "", &previous.next)
    }

    fn head(word: &str, mine: &LaneOffer, theirs: &LaneOffer) -> Message {
        let mtu = mine.mtu.min(theirs.mtu).bytes();
        let message = Message::new(word).with("lane", mine.lane).with("mtu", mtu);
        write_gap_reports(message, mine.gap_reports && theirs.gap_reports)
    }

    /// Parses a `NEXT` or `PREV`.
    pub(crate) fn from_message(message: &Message) -> Result<Self, MessageError> {
        let has_record = message.word() == "PREV";
        Ok(Self {
            lane: message.number_as("lane")?,
            mtu: read_mtu(message)?,
            gap_reports: reads_gap_reports(message),
            endpoint: read_endpoint(message, "", has_record)?,
        })
    }
}

/// A rank that knows no gap reports leaves the field out, and ignores it.
fn write_gap_reports(message: Message, agreed: bool) -> Message {
    if agreed { message.with("reports", 1) } else { message }
}

fn reads_gap_reports(message: &Message) -> bool {
    message.value("reports") == Some("1")
}

fn write_endpoint(message: Message, prefix: &str, endpoint: &LaneEndpoint) -> Message {
    let LaneEndpoint { dest, staging, record } = endpoint;
    let message = message
        .with(&format!("{prefix}gid"), Ipv6Addr::from(dest.gid.0))
        .with(&format!("{prefix}qpn"), format_args!("{:#x}", dest.qpn.get()))
        .with(&format!("{prefix}psn"), format_args!("{:#x}", dest.psn.get()));
    let spans = [(STAGING, Some(*staging)), (RECORD, *record)];
    spans.into_iter().filter_map(|(names, span)| Some((names, span?))).fold(
        message,
        |message, (names, span)| {
            message
                .with(&format!("{prefix}{}", names.0), format_args!("{:#x}", span.addr))
                .with(&format!("{prefix}{}", names.1), format_args!("{:#x}", span.rkey))
        },
    )
}

fn read_endpoint(
    message: &Message,
    prefix: &str,
    has_record: bool,
) -> Result<LaneEndpoint, MessageError> {
    let key = |name: &str| format!("{prefix}{name}");
    let bad = |name: &str| MessageError::NotANumber {
        key: key(name),
        value: message.value(&key(name)).unwrap_or_default().to_owned(),
    };
    let address: Ipv6Addr = message.text(&key("gid"))?.parse().map_err(|_| bad("gid"))?;
    let qpn = Qpn::new(message.number_as(&key("qpn"))?).ok_or_else(|| bad("qpn"))?;
    let psn = Psn::new(message.number_as(&key("psn"))?).ok_or_else(|| bad("psn"))?;
    let span = |names: (&str, &str)| -> Result<RemoteAddr, MessageError> {
        Ok(RemoteAddr {
            addr: message.number(&key(names.0))?,
            rkey: message.number_as(&key(names.1))?,
        })
    };
    Ok(LaneEndpoint {
        dest: QpDest { qpn, psn, gid: Gid::from(IpAddr::V6(address)) },
        staging: span(STAGING)?,
        record: has_record.then(|| span(RECORD)).transpose()?,
    })
}

fn read_mtu(message: &Message) -> Result<PathMtu, MessageError> {
    let bytes: usize = message.number_as("mtu")?;
    PathMtu::from_bytes(bytes).ok_or_else(|| MessageError::NotANumber {
        key: "mtu".into(),
        value: message.value("mtu").unwrap_or_default().to_owned(),
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn offer(lane: u32, rank: u8) -> LaneOffer {
        let endpoint = |number: u32, has_record: bool| LaneEndpoint {
            dest: QpDest {
                qpn: Qpn::new(0x100 + number).unwrap(),
                psn: Psn::new(0xabcdef).unwrap(),
                gid: Gid::from(IpAddr::from([10, 0, 0, rank])),
            },
            staging: RemoteAddr { addr: 0x7000_0000_1000 + u64::from(rank), rkey: number },
            record: has_record
                .then(|| RemoteAddr { addr: 0x7000_0000_2000 + u64::from(rank), rkey: number }),
        };
        let mtu = if rank == 0 { PathMtu::B1024 } else { PathMtu::B4096 };
        LaneOffer {
            lane,
            mtu,
            gap_reports: true,
            next: endpoint(2 * lane, true),
            previous: endpoint(2 * lane + 1, false),
        }
    }

    #[test]
    fn an_offer_is_read_as_it_was_written() {
        let message = offer(3, 7).to_message();
        assert_eq!(
            LaneOffer::from_message(&Message::parse(&message.to_string()).unwrap()),
            Ok(offer(3, 7))
        );
        assert_eq!(message.value("next.gid"), Some("::ffff:10.0.0.7"));
    }

    #[test]
    fn neighbours_learn_the_end_that_faces_them_and_the_smaller_mtu() {
        let (mine, theirs) = (offer(1, 0), offer(1, 1));
        let next = LanePeer::from_message(&LanePeer::next_of(&mine, &theirs)).unwrap();
        let peer =
            |endpoint| LanePeer { lane: 1, mtu: PathMtu::B1024, gap_reports: true, endpoint };
        assert_eq!(next, peer(theirs.previous));
        let previous = LanePeer::from_message(&LanePeer::previous_of(&theirs, &mine)).unwrap();
        assert_eq!(previous, peer(mine.next));
    }

    #[test]
    fn neighbours_agree_on_gap_reports_only_if_both_offer_them() {
        for [mine, theirs] in [[true, true], [true, false], [false, true], [false, false]] {
            let offer = |gap_reports, rank| LaneOffer { gap_reports, ..offer(1, rank) };
            let (ours, other) = (offer(mine, 0), offer(theirs, 1));
            for message in [LanePeer::next_of(&ours, &other), LanePeer::previous_of(&other, &ours)]
            {
                let peer = LanePeer::from_message(&message).unwrap();
                assert_eq!(peer.gap_reports, mine && theirs);
            }
        }
        // That of a peer that knows none.
        let offer = offer(1, 0).to_message().to_string().replace(" reports=1", "");
        let read = LaneOffer::from_message(&Message::parse(&offer).unwrap()).unwrap();
        assert!(!read.gap_reports);
    }

    #[test]
    fn numbers_beyond_their_range_are_refused() {
        let good = offer(0, 1).to_message().to_string();
        for (from, to) in [("0xabcdef", "0x1000000"), ("mtu=4096", "mtu=4097"), ("::ffff:", "::x:")]
        {
            let bad = Message::parse(&good.replace(from, to)).unwrap();
            assert!(LaneOffer::from_message(&bad).is_err(), "{to}");
        }
    }
}
