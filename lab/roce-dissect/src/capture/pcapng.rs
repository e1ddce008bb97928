//! pcapng: sections of blocks; some blocks are packets.

use std::io::Read;

use super::buffer::{Buffer, Halt};
use super::event::{Damage, DamageKind, Found, MAX_FRAME_LEN, Place};
use crate::{LinkType, Timestamp};

/// Parser of a pcapng file, with the state of the current section.
#[derive(Debug, Default)]
pub(super) struct PcapNg {
    big_endian: bool,
    interfaces: Vec<Interface>,
    /// Bytes of the block of the lent frame, to be consumed next.
    lent: usize,
    last_time: Timestamp,
}

#[derive(Clone, Copy, Debug)]
struct Interface {
    link: LinkType,
    snaplen: u32,
    ticks: Ticks,
    /// Seconds to add to each timestamp.
    offset: i64,
}

/// Unit of the timestamps.
#[derive(Clone, Copy, Debug)]
enum Ticks {
    /// Nanoseconds per unit.
    Nanos(u64),
    /// Units per second.
    PerSecond(u64),
}

/// A parsed block.
enum Block {
    Frame { interface: usize, time: Option<u64>, original: u32, at: usize, len: usize },
    Nothing,
}

impl PcapNg {
    pub(super) fn find<R: Read>(
        &mut self,
        buffer: &mut Buffer<R>,
        number: u64,
    ) -> Result<Option<Found>, Halt> {
        buffer.consume(std::mem::take(&mut self.lent));
        loop {
            let offset = buffer.offset();
            if !buffer.fill(MIN_BLOCK_LEN)? {
                return Ok(cut(buffer, offset));
            }
            if buffer.bytes()[..4] == SECTION && !self.order(buffer.bytes()) {
                return self.find_next(buffer, DamageKind::Section).map(Some);
            }
            let (kind, len) = (self.word(buffer.bytes(), 0), self.word(buffer.bytes(), 4) as usize);
            if len < MIN_BLOCK_LEN || !len.is_multiple_of(4) {
                return self.find_next(buffer, DamageKind::BlockLength).map(Some);
            }
            if len > MAX_BLOCK_LEN {
                // Packets are never that long; other blocks may be.
                if matches!(kind, ENHANCED_PACKET | SIMPLE_PACKET | OLD_PACKET) || len > 1 << 30 {
                    return self.find_next(buffer, DamageKind::BlockLength).map(Some);
                }
                if !buffer.skip(len as u64)? {
                    return Ok(cut(buffer, offset));
                }
                continue;
            }
            if !buffer.fill(len)? {
                return Ok(cut(buffer, offset));
            }
            if self.word(buffer.bytes(), len - 4) as usize != len {
                return self.find_next(buffer, DamageKind::BlockLength).map(Some);
            }
            match self.block(kind, &buffer.bytes()[8..len - 4]) {
                Ok(Block::Nothing) => buffer.consume(len),
                Ok(Block::Frame { interface, time, original, at, len: frame_len }) => {
                    self.lent = len;
                    let interface = self.interfaces[interface];
                    self.last_time = time.map_or(self.last_time, |ticks| interface.time(ticks));
                    return Ok(Some(Found::Frame(Place {
                        number,
                        time: self.last_time,
                        link: interface.link,
                        original_len: original,
                        at: buffer.start() + 8 + at,
                        len: frame_len,
                    })));
                }
                Err(kind) => {
                    buffer.consume(len);
                    let damage = Damage { offset, kind, skipped: len as u64 };
                    return Ok(Some(Found::Damage(damage)));
                }
            }
        }
    }

    /// Reads the byte order of a section. Returns false if it is invalid.
    fn order(&mut self, bytes: &[u8]) -> bool {
        match bytes[8..12] {
            [0x1a, 0x2b, 0x3c, 0x4d] => self.big_endian = true,
            [0x4d, 0x3c, 0x2b, 0x1a] => self.big_endian = false,
            _ => return false,
        }
        true
    }

    fn block(&mut self, kind: u32, body: &[u8]) -> Result<Block, DamageKind> {
        match kind {
            SECTION_NUMBER => {
                if body.len() < 8 || self.half(body, 4) != 1 {
                    return Err(DamageKind::Section);
                }
                self.interfaces.clear();
                Ok(Block::Nothing)
            }
            INTERFACE => self.interface(body),
            ENHANCED_PACKET => {
                let head = body.get(..20).ok_or(DamageKind::BlockContent)?;
                self.packet(body, self.word(head, 0), 4, 20)
            }
            OLD_PACKET => {
                let head = body.get(..20).ok_or(DamageKind::BlockContent)?;
                self.packet(body, self.half(head, 0).into(), 4, 20)
            }
            SIMPLE_PACKET => {
                let head = body.get(..4).ok_or(DamageKind::BlockContent)?;
                let original = self.word(head, 0);
                let interface = self.interfaces.first().ok_or(DamageKind::Interface(0))?;
                let snaplen = if interface.snaplen == 0 { u32::MAX } else { interface.snaplen };
                let len = original.min(snaplen) as usize;
                if body.len() - 4 < len {
                    return Err(DamageKind::BlockContent);
                }
                Ok(Block::Frame { interface: 0, time: None, original, at: 4, len })
            }
            _ => Ok(Block::Nothing),
        }
    }

    fn packet(
        &self,
        body: &[u8],
        interface: u32,
        time_at: usize,
        at: usize,
    ) -> Result<Block, DamageKind> {
        let word = |at| self.word(body, at);
        let time = u64::from(word(time_at)) << 32 | u64::from(word(time_at + 4));
        let (len, original) = (word(time_at + 8) as usize, word(time_at + 12));
        if interface as usize >= self.interfaces.len() {
            return Err(DamageKind::Interface(interface));
        }
        if len > MAX_FRAME_LEN || body.len() - at < len {
            return Err(DamageKind::BlockContent);
        }
        let interface = interface as usize;
        Ok(Block::Frame { interface, time: Some(time), original, at, len })
    }

    fn interface(&mut self, body: &[u8]) -> Result<Block, DamageKind> {
        let head = body.get(..8).ok_or(DamageKind::BlockContent)?;
        if self.interfaces.len() == MAX_INTERFACES {
            return Err(DamageKind::TooManyInterfaces);
        }
        let mut interface = Interface {
            link: LinkType::from_code(self.half(head, 0).into()),
            snaplen: self.word(head, 4),
            ticks: Ticks::Nanos(1000),
            offset: 0,
        };
        let mut options = &body[8..];
        while let Some((head, rest)) = options.split_at_checked(4) {
            let (code, len) = (self.half(head, 0), usize::from(self.half(head, 2)));
            let Some(value) = rest.get(..len) else { break };
            match (code, value) {
                (0, _) => break,
                (TIME_RESOLUTION, [resolution]) => interface.ticks = Ticks::from_code(*resolution),
                (TIME_OFFSET, value) if value.len() == 8 => {
                    let (a, b) = (self.word(value, 0), self.word(value, 4));
                    let (high, low) = if self.big_endian { (a, b) } else { (b, a) };
                    interface.offset = (u64::from(high) << 32 | u64::from(low)) as i64;
                }
                _ => {}
            }
            options = rest.get(len.next_multiple_of(4)..).unwrap_or_default();
        }
        self.interfaces.push(interface);
        Ok(Block::Nothing)
    }

    /// Searches for the next block of a known type with the same length at both ends.
    fn find_next<R: Read>(&self, buffer: &mut Buffer<R>, kind: DamageKind) -> Result<Found, Halt> {
        buffer.check_not_lent()?;
        let offset = buffer.offset();
        loop {
            buffer.consume(1);
            if !buffer.fill(MIN_BLOCK_LEN)? {
                buffer.consume(MIN_BLOCK_LEN);
                break;
            }
            let bytes = buffer.bytes();
            let is_section = bytes[..4] == SECTION
                && matches!(bytes[8..12], [0x1a, 0x2b, 0x3c, 0x4d] | [0x4d, 0x3c, 0x2b, 0x1a]);
            let (kind, len) = (self.word(bytes, 0), self.word(bytes, 4) as usize);
            let is_known = is_section || matches!(kind, 1..=6);
            if !is_known
                || !(MIN_BLOCK_LEN..=MAX_BLOCK_LEN).contains(&len)
                || !len.is_multiple_of(4)
            {
                if is_section {
                    break; // perhaps of another byte order; the next call decides
                }
                continue;
            }
            if buffer.fill(len)? && self.word(buffer.bytes(), len - 4) as usize == len {
                break;
            }
        }
        Ok(Found::Damage(Damage { offset, kind, skipped: buffer.offset() - offset }))
    }

    fn word(&self, bytes: &[u8], at: usize) -> u32 {
        let bytes = [bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]];
        if self.big_endian { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) }
    }

    fn half(&self, bytes: &[u8], at: usize) -> u16 {
        let bytes = [bytes[at], bytes[at + 1]];
        if self.big_endian { u16::from_be_bytes(bytes) } else { u16::from_le_bytes(bytes) }
    }
}

impl Interface {
    fn time(&self, ticks: u64) -> Timestamp {
        let nanos = match self.ticks {
            Ticks::Nanos(nanos) => ticks.saturating_mul(nanos),
            Ticks::PerSecond(per_second) => {
                let nanos = u128::from(ticks) * 1_000_000_000 / u128::from(per_second);
                u64::try_from(nanos).unwrap_or(u64::MAX)
            }
        };
        Timestamp(nanos.saturating_add_signed(self.offset.saturating_mul(1_000_000_000)))
    }
}

impl Ticks {
    /// Decodes `if_tsresol`: the upper bit selects a power of two or of ten.
    fn from_code(code: u8) -> Self {
        let power = u32::from(code & 0x7f);
        if code & 0x80 == 0 {
            match power {
                0..=9 => Self::Nanos(10u64.pow(9 - power)),
                _ => Self::PerSecond(10u64.checked_pow(power).unwrap_or(u64::MAX)),
            }
        } else {
            Self::PerSecond(1u64.checked_shl(power).unwrap_or(u64::MAX))
        }
    }
}

fn cut<R: Read>(buffer: &mut Buffer<R>, offset: u64) -> Option<Found> {
    let skipped = buffer.offset() - offset + buffer.bytes().len() as u64;
    buffer.consume(usize::MAX);
    let damage = Damage { offset, kind: DamageKind::Cut, skipped };
    (skipped > 0).then_some(Found::Damage(damage))
}

/// The first bytes of a section header, the same in either byte order.
pub(super) const SECTION: [u8; 4] = [0x0a, 0x0d, 0x0d, 0x0a];
const SECTION_NUMBER: u32 = 0x0a0d_0d0a;
const INTERFACE: u32 = 1;
const OLD_PACKET: u32 = 2;
const SIMPLE_PACKET: u32 = 3;
const ENHANCED_PACKET: u32 = 6;

const TIME_RESOLUTION: u16 = 9;
const TIME_OFFSET: u16 = 14;

const MIN_BLOCK_LEN: usize = 12;
/// Maximum length of a block: the longest frame, and options.
const MAX_BLOCK_LEN: usize = MAX_FRAME_LEN + (64 << 10);
const MAX_INTERFACES: usize = 65_536;
