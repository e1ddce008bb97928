//! Rules as sentences.
//!
//! ```text
//! rule      = "drop" packets | "duplicate" packets ["after" time] | "mark" packets
//!           | "damage" ["bit" number "of"] packets | "delay" packets "by" time
//!           | "hold" packets ("behind" number ["packets"] | "until" packets)
//! packets   = [way] (kind range | kind | "every" [nth] [way] kind | percentage ["of" [way] kind]) owner place
//! place     = ["on rail" number] ["from" time [("to" | "for") time]]
//! way       = "sent" | "received"
//! ```
//!
//! A kind alone stands in front of a place. `range`, `nth`, `owner` and `time` are those of all
//! [sentences](crate::sentence).

use core::fmt::{self, Display, Formatter};
use core::time::Duration;

use roce_wire::KnownOpcode;
use roce_wire::management::CmAttribute;

use super::{FaultAction, FaultDirection, FaultRule, PacketKind, PacketSelector};
use crate::sentence::{FaultRuleError, Owner, Result, Time, Which, Words, is_name};
use crate::window::Window;

impl FaultRule {
    /// Parses a sentence.
    ///
    /// # Errors
    /// [`FaultRuleError`] with the first word that is wrong.
    pub fn parse(text: &str) -> Result<'_, Self> {
        let mut words = Words::of(text);
        let rule = words.rule()?;
        words.end()?;
        Ok(rule)
    }
}

impl<'a> Words<'a> {
    fn rule(&mut self) -> Result<'a, FaultRule> {
        let verb = self.next();
        let (action, packets) = match verb {
            "drop" => (FaultAction::Drop, self.packets()?),
            "mark" => (FaultAction::Mark, self.packets()?),
            "duplicate" => {
                let packets = self.packets()?;
                let lag = if self.takes("after") { self.time()? } else { Duration::ZERO };
                (FaultAction::Duplicate(lag), packets)
            }
            "damage" => {
                let mut bit = None;
                if self.takes("bit") {
                    bit = Some(self.bit()?);
                    self.need("of", "\"of\"")?;
                }
                (FaultAction::Damage(bit), self.packets()?)
            }
            "delay" => {
                let packets = self.packets()?;
                self.need("by", "\"by\" and a time")?;
                (FaultAction::Delay(self.time()?), packets)
            }
            "hold" => {
                let packets = self.packets()?;
                let action = match self.next() {
                    "until" => FaultAction::HoldUntil(self.packets()?),
                    "behind" => {
                        let count = self.number(1)?;
                        let _word = self.takes("packets") || self.takes("packet");
                        FaultAction::HoldBehind(count)
                    }
                    word => {
                        let expected = "\"until\" or \"behind\"";
                        return Err(FaultRuleError { word, expected });
                    }
                };
                (action, packets)
            }
            word => {
                let expected = "drop, duplicate, delay, hold, damage or mark";
                return Err(FaultRuleError { word, expected });
            }
        };
        Ok(FaultRule { action, packets })
    }

    pub(crate) fn packets(&mut self) -> Result<'a, PacketSelector> {
        let mut direction = self.direction();
        let (kind, which) = if self.takes("every") {
            let step = self.step()?;
            direction = direction.or_else(|| self.direction());
            (self.kind()?, Which::Every(step))
        } else if let Some(share) = self.share()? {
            let mut ahead = self.clone();
            let has_kind = ahead.takes("of") && !matches!(ahead.peek(), "queue" | "rank");
            if has_kind {
                *self = ahead;
                direction = direction.or_else(|| self.direction());
            }
            let kind = if has_kind { self.kind()? } else { PacketKind::Any };
            (kind, Which::Share(share))
        } else {
            let kind = self.kind()?;
            let is_all = self.peek() == "on" || self.has_time_behind("from");
            (kind, if is_all { Which::Every(1) } else { self.range()? })
        };
        let Owner { queue_pair, rank } = self.owner()?;
        let rail = if self.takes("on") { Some(self.rail()?) } else { None };
        let window = Window::take(self)?;
        Ok(PacketSelector { kind, which, direction, queue_pair, rank, rail, window })
    }

    /// Takes the number of a rail.
    pub(crate) fn rail(&mut self) -> Result<'a, u32> {
        self.need("rail", "\"rail\" and its number")?;
        let expected = "the number of a rail, from 0";
        let refused = FaultRuleError { word: self.peek(), expected };
        self.number(0).map_err(|_| refused)
    }

    fn direction(&mut self) -> Option<FaultDirection> {
        let named = DIRECTIONS.iter().find(|(name, _)| self.takes(name));
        named.map(|(_, direction)| *direction)
    }

    fn kind(&mut self) -> Result<'a, PacketKind> {
        let word = self.next();
        let singular = word.strip_suffix('s').unwrap_or(word);
        let named = KINDS.iter().find(|(name, _)| *name == word || *name == singular);
        let management = || attribute(word).or_else(|| attribute(singular));
        let kind = named
            .map(|(_, kind)| *kind)
            .or_else(|| management().map(PacketKind::Management))
            .or_else(|| opcode(word).or_else(|| opcode(singular)).map(PacketKind::Opcode));
        kind.ok_or(FaultRuleError {
            word,
            expected: "packet, request, response, ack, nak, rnr-nak, cnp, send, write, read, \
                       read-response, atomic, a message of connection management such as req or \
                       sidr-rep, or an opcode such as rc-send-only",
        })
    }

    /// Takes the number of a bit that some frame has.
    fn bit(&mut self) -> Result<'a, u32> {
        let expected = "the number of a bit (from 0; the longest frame has 524424)";
        let refused = FaultRuleError { word: self.peek(), expected };
        self.number(0).ok().filter(|bit| *bit < MAX_FRAME_BITS).ok_or(refused)
    }
}

fn opcode(word: &str) -> Option<KnownOpcode> {
    KnownOpcode::all().find(|opcode| is_name(opcode.name(), word))
}

fn attribute(word: &str) -> Option<CmAttribute> {
    CmAttribute::ALL.into_iter().find(|attribute| is_name(attribute.name(), word))
}

fn write_hyphenated(f: &mut Formatter<'_>, name: &str) -> fmt::Result {
    name.chars()
        .map(|letter| if letter == ' ' { '-' } else { letter.to_ascii_lowercase() })
        .try_for_each(|letter| write!(f, "{letter}"))
}

const DIRECTIONS: [(&str, FaultDirection); 2] =
    [("sent", FaultDirection::Sent), ("received", FaultDirection::Received)];

const KINDS: [(&str, PacketKind); 12] = [
    ("packet", PacketKind::Any),
    ("request", PacketKind::Request),
    ("response", PacketKind::Response),
    ("ack", PacketKind::Ack),
    ("nak", PacketKind::Nak),
    ("rnr-nak", PacketKind::RnrNak),
    ("cnp", PacketKind::Cnp),
    ("send", PacketKind::Send),
    ("write", PacketKind::Write),
    ("read", PacketKind::Read),
    ("read-response", PacketKind::ReadResponse),
    ("atomic", PacketKind::Atomic),
];

/// Bits of the longest frame: an IP packet of 65 535 bytes behind an Ethernet header with a VLAN tag.
const MAX_FRAME_BITS: u32 = (65_535 + 14 + 4) * 8;

impl Display for FaultRule {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let packets = self.packets;
        match self.action {
            FaultAction::Drop => write!(f, "drop {packets}"),
            FaultAction::Mark => write!(f, "mark {packets}"),
            FaultAction::Duplicate(Duration::ZERO) => write!(f, "duplicate {packets}"),
            FaultAction::Duplicate(lag) => write!(f, "duplicate {packets} after {}", Time(lag)),
            FaultAction::Damage(None) => write!(f, "damage {packets}"),
            FaultAction::Damage(Some(bit)) => write!(f, "damage bit {bit} of {packets}"),
            FaultAction::Delay(by) => write!(f, "delay {packets} by {}", Time(by)),
            FaultAction::HoldBehind(count) => write!(f, "hold {packets} behind {count} packets"),
            FaultAction::HoldUntil(other) => write!(f, "hold {packets} until {other}"),
        }
    }
}

impl Display for PacketSelector {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.which.write_before(f)?;
        let named = DIRECTIONS.iter().find(|(_, direction)| Some(*direction) == self.direction);
        if let Some((name, _)) = named {
            write!(f, "{name} ")?;
        }
        write!(f, "{}", self.kind)?;
        self.which.write_behind(f)?;
        let Self { queue_pair, rank, rail, window, .. } = *self;
        write!(f, "{}", Owner { queue_pair, rank })?;
        if let Some(rail) = rail {
            write!(f, " on rail {rail}")?;
        }
        write!(f, "{window}")
    }
}

impl Display for PacketKind {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Opcode(opcode) => return write_hyphenated(f, opcode.name()),
            Self::Management(attribute) => return write_hyphenated(f, attribute.name()),
            _ => {}
        }
        let name = KINDS.iter().find(|(_, kind)| kind == self).map(|(name, _)| *name);
        f.write_str(name.unwrap_or_default())
    }
}
