//! The section header of a capture that several processes append to.
//!
//! A packet names its interface by the number of interface blocks before that interface's own, so that a
//! process that adds one has to know how many there are. The header has, in a comment of fixed length,
//! how many there are up to which byte; blocks behind that byte are counted.

use std::fs::File;
use std::io::{self, Write as _};
use std::os::unix::fs::FileExt;

/// Bytes of the section header block.
const HEADER_LEN: u64 = 96;
/// Bytes of the comment.
const COMMENT_LEN: usize = 52;
/// Where the text of the comment begins: behind the block's own fields, the name of the program and
/// the option's code and length.
const COMMENT_AT: u64 = 24 + 8 + 4;
const SECTION_HEADER: u32 = 0x0a0d_0d0a;
const INTERFACE_DESCRIPTION: u32 = 1;
/// Blocks are read in pieces of this many bytes while they are counted.
const PIECE: usize = 1 << 16;

/// Returns the section header of a file without interfaces.
pub(super) fn header() -> Vec<u8> {
    let mut block = Vec::with_capacity(HEADER_LEN as usize);
    block.extend(SECTION_HEADER.to_le_bytes());
    block.extend((HEADER_LEN as u32).to_le_bytes());
    block.extend(0x1a2b_3c4d_u32.to_le_bytes());
    block.extend(1u16.to_le_bytes());
    block.extend(0u16.to_le_bytes());
    // The length of the section is not known.
    block.extend((-1i64).to_le_bytes());
    option(&mut block, 4, b"roce");
    option(&mut block, 1, &comment(0, HEADER_LEN));
    option(&mut block, 0, &[]);
    block.extend((HEADER_LEN as u32).to_le_bytes());
    debug_assert_eq!(block.len() as u64, HEADER_LEN);
    block
}

/// Appends an option whose value needs no padding.
fn option(block: &mut Vec<u8>, code: u16, value: &[u8]) {
    block.extend(code.to_le_bytes());
    block.extend((value.len() as u16).to_le_bytes());
    block.extend(value);
}

fn comment(interfaces: u32, to: u64) -> [u8; COMMENT_LEN] {
    let mut text = [b' '; COMMENT_LEN];
    // It fits: the numbers have at most 10 and 20 digits.
    let _fits = write!(&mut text[..], "interfaces {interfaces:010} to byte {to:020}");
    text
}

fn parse_comment(text: &[u8]) -> Option<(u32, u64)> {
    let text = std::str::from_utf8(text).ok()?.trim_end().strip_prefix("interfaces ")?;
    let (interfaces, to) = text.split_once(" to byte ")?;
    Some((interfaces.parse().ok()?, to.parse().ok()?))
}

/// A file with one section, opened to read and to write anywhere.
#[derive(Debug)]
pub(super) struct Section {
    file: File,
}

impl Section {
    /// Takes a file, and begins the section if it is empty.
    pub(super) fn open(file: File) -> io::Result<Self> {
        let section = Self { file };
        section.locked(|file| {
            if file.metadata()?.len() == 0 {
                return file.write_all_at(&header(), 0);
            }
            let mut found = vec![0; HEADER_LEN as usize];
            file.read_exact_at(&mut found, 0).map_err(|_| foreign())?;
            let fixed = COMMENT_AT as usize;
            let behind = fixed + COMMENT_LEN;
            let own = header();
            let is_own = found[..fixed] == own[..fixed] && found[behind..] == own[behind..];
            if is_own { Ok(()) } else { Err(foreign()) }
        })?;
        Ok(section)
    }

    /// Adds an interface: `append` appends its block. Returns its number.
    pub(super) fn add_interface(&self, append: impl FnOnce() -> io::Result<()>) -> io::Result<u32> {
        self.locked(|file| {
            let end = file.metadata()?.len();
            let (count, at) = counted(file, end)?;
            if at < end {
                return Err(foreign());
            }
            append()?;
            // A process that is killed here leaves the comment as it was, and the next one counts more.
            file.write_all_at(&comment(count, at), COMMENT_AT)?;
            Ok(count)
        })
    }

    /// Counts the interfaces that the file has. Returns the byte behind the blocks that were counted, of which none
    /// is read again. A block that is being appended may be left to the next call.
    pub(super) fn count(&self) -> io::Result<u64> {
        self.locked(|file| {
            let (count, at) = counted(file, file.metadata()?.len())?;
            file.write_all_at(&comment(count, at), COMMENT_AT)?;
            Ok(at)
        })
    }

    fn locked<T>(&self, work: impl FnOnce(&File) -> io::Result<T>) -> io::Result<T> {
        self.file.lock()?;
        let outcome = work(&self.file);
        self.file.unlock()?;
        outcome
    }
}

/// Returns how many interface blocks begin before `end`, and the byte behind the last block that was looked at: it
/// is less than `end` if the start of a block is not in the file.
fn counted(file: &File, end: u64) -> io::Result<(u32, u64)> {
    let mut text = [0; COMMENT_LEN];
    file.read_exact_at(&mut text, COMMENT_AT)?;
    let (mut count, mut at) = parse_comment(&text).ok_or_else(foreign)?;
    let mut piece = vec![0; PIECE];
    while at < end {
        let read = file.read_at(&mut piece, at)?;
        let mut rest = &piece[..read];
        let mut passed = 0;
        while let Some((kind, len)) = start_of_block(rest) {
            if len < 12 || len % 4 != 0 {
                return Err(foreign());
            }
            count += u32::from(kind == INTERFACE_DESCRIPTION);
            passed += u64::from(len);
            rest = rest.get(len as usize..).unwrap_or_default();
        }
        if passed == 0 {
            break;
        }
        at += passed;
    }
    Ok((count, at))
}

/// Returns type and length of the block that begins here.
fn start_of_block(bytes: &[u8]) -> Option<(u32, u32)> {
    let (kind, rest) = bytes.split_first_chunk()?;
    Some((u32::from_le_bytes(*kind), u32::from_le_bytes(*rest.first_chunk()?)))
}

fn foreign() -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        "the file is not a capture that packets can be added to; remove it, or name another",
    )
}
