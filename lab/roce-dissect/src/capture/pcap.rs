//! pcap: a header, then packets.

use std::io::Read;

use super::buffer::{Buffer, Halt};
use super::event::{Damage, DamageKind, Found, MAX_FRAME_LEN, Place};
use crate::{LinkType, Timestamp};

/// Parser of a pcap file.
#[derive(Debug)]
pub(super) struct Pcap {
    big_endian: bool,
    /// Nanoseconds per unit of the second time field.
    unit: u32,
    link: LinkType,
    /// Bytes of the lent frame, to be consumed next.
    lent: usize,
    /// Time of the last packet in seconds, to recognise packet headers after damage.
    last_seconds: Option<u32>,
}

struct Header {
    seconds: u32,
    fraction: u32,
    captured: usize,
    original: u32,
}

impl Pcap {
    pub(super) fn knows(magic: [u8; 4]) -> bool {
        order_and_unit(magic).is_some()
    }

    /// Returns `None` if the file ends within its header.
    pub(super) fn open<R: Read>(buffer: &mut Buffer<R>) -> Result<Option<Self>, Halt> {
        if !buffer.fill(FILE_HEADER_LEN)? {
            return Ok(None);
        }
        let bytes = buffer.bytes();
        let magic = [bytes[0], bytes[1], bytes[2], bytes[3]];
        let Some((big_endian, unit)) = order_and_unit(magic) else { return Ok(None) };
        let network = word(bytes, 20, big_endian);
        buffer.consume(FILE_HEADER_LEN);
        // The upper bits have the length of a frame check sequence after the packet.
        let link = LinkType::from_code(network & 0xffff);
        Ok(Some(Self { big_endian, unit, link, lent: 0, last_seconds: None }))
    }

    pub(super) fn find<R: Read>(
        &mut self,
        buffer: &mut Buffer<R>,
        number: u64,
    ) -> Result<Option<Found>, Halt> {
        buffer.consume(std::mem::take(&mut self.lent));
        if !buffer.fill(HEADER_LEN)? {
            return Ok(cut(buffer));
        }
        let header = self.header(buffer.bytes());
        if header.captured > MAX_FRAME_LEN {
            return self.find_next(buffer).map(Some);
        }
        let len = HEADER_LEN + header.captured;
        if !buffer.fill(len)? {
            return Ok(cut(buffer));
        }
        self.lent = len;
        self.last_seconds = Some(header.seconds);
        let nanos = u64::from(header.seconds) * 1_000_000_000
            + u64::from(header.fraction) * u64::from(self.unit);
        Ok(Some(Found::Frame(Place {
            number,
            time: Timestamp(nanos),
            link: self.link,
            original_len: header.original,
            at: buffer.start() + HEADER_LEN,
            len: header.captured,
        })))
    }

    fn header(&self, bytes: &[u8]) -> Header {
        let word = |at| word(bytes, at, self.big_endian);
        Header {
            seconds: word(0),
            fraction: word(4),
            captured: word(8) as usize,
            original: word(12),
        }
    }

    /// Searches for the next offset with two plausible packet headers in a row.
    fn find_next<R: Read>(&self, buffer: &mut Buffer<R>) -> Result<Found, Halt> {
        buffer.check_not_lent()?;
        let offset = buffer.offset();
        loop {
            buffer.consume(1);
            if !buffer.fill(HEADER_LEN)? {
                buffer.consume(HEADER_LEN);
                break;
            }
            let header = self.header(buffer.bytes());
            if !self.is_plausible(&header) {
                continue;
            }
            let next = HEADER_LEN + header.captured;
            let whole = buffer.fill(next + HEADER_LEN)?;
            let bytes = buffer.bytes();
            let fits = match bytes.get(next..) {
                Some(behind) if whole => self.is_plausible(&self.header(behind)),
                Some(behind) => behind.is_empty(),
                None => false,
            };
            if fits {
                break;
            }
        }
        let skipped = buffer.offset() - offset;
        Ok(Found::Damage(Damage { offset, kind: DamageKind::PacketHeader, skipped }))
    }

    fn is_plausible(&self, header: &Header) -> bool {
        let near = |last: u32| header.seconds.abs_diff(last) <= SECONDS_PER_DAY;
        (1..=MAX_FRAME_LEN).contains(&header.captured)
            && header.original as usize >= header.captured
            && header.original as usize <= MAX_FRAME_LEN
            && u64::from(header.fraction) * u64::from(self.unit) < 1_000_000_000
            && self.last_seconds.is_none_or(near)
    }
}

/// Handles the end of the file: after a packet, or within one.
fn cut<R: Read>(buffer: &mut Buffer<R>) -> Option<Found> {
    let (offset, skipped) = (buffer.offset(), buffer.bytes().len() as u64);
    buffer.consume(usize::MAX);
    let damage = Damage { offset, kind: DamageKind::Cut, skipped };
    (skipped > 0).then_some(Found::Damage(damage))
}

/// Returns byte order and nanoseconds per unit of time for a magic number.
fn order_and_unit(magic: [u8; 4]) -> Option<(bool, u32)> {
    match magic {
        [0xd4, 0xc3, 0xb2, 0xa1] => Some((false, 1000)),
        [0xa1, 0xb2, 0xc3, 0xd4] => Some((true, 1000)),
        [0x4d, 0x3c, 0xb2, 0xa1] => Some((false, 1)),
        [0xa1, 0xb2, 0x3c, 0x4d] => Some((true, 1)),
        _ => None,
    }
}

fn word(bytes: &[u8], at: usize, big_endian: bool) -> u32 {
    let bytes = [bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]];
    if big_endian { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) }
}

const FILE_HEADER_LEN: usize = 24;
const HEADER_LEN: usize = 16;
const SECONDS_PER_DAY: u32 = 86_400;
