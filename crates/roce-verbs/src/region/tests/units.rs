//! What other threads see of a region while a copy is under way: no unit in parts, and the last unit last.
//!
//! `ROCE_LOOKS` sets how many changes of each range are seen.

use core::sync::atomic::{AtomicBool, AtomicU16, AtomicU32, AtomicUsize};

use super::super::{copy, plain};
use super::*;

type Write = fn(&Mapping, usize, &[u8]);
type Read = fn(&Mapping, usize, &mut [u8]);

/// The ways into a region.
const WRITES: &[(&str, Write)] = &[
    ("write", |mapping, offset, bytes| mapping.write(offset, bytes).unwrap()),
    ("plain write", |mapping, offset, bytes| {
        let to = mapping.at(offset, bytes.len());
        // SAFETY: `at` checked the range.
        unsafe { plain::write(bytes.as_ptr(), to, bytes.len()) }.unwrap();
    }),
    #[cfg(target_arch = "x86_64")]
    ("write of a processor without vectors", |mapping, offset, bytes| {
        let to = mapping.at(offset, bytes.len());
        // SAFETY: `at` checked the range.
        let failed = unsafe { guarded::roce_verbs_guarded_write(to, bytes.as_ptr(), bytes.len()) };
        copy::outcome(failed).unwrap();
    }),
];

/// The ways out of a region.
const READS: &[(&str, Read)] = &[
    ("read", |mapping, offset, into| mapping.read(offset, into).unwrap()),
    ("summed read", |mapping, offset, into| {
        mapping.read_summed(offset, into).unwrap();
    }),
    ("plain read", |mapping, offset, into| {
        let from = mapping.at(offset, into.len());
        // SAFETY: `at` checked the range.
        unsafe { load_units(from, into) };
    }),
    #[cfg(target_arch = "x86_64")]
    ("read of a processor without vectors", |mapping, offset, into| {
        let from = mapping.at(offset, into.len());
        // SAFETY: `at` checked the range.
        let failed =
            unsafe { guarded::roce_verbs_guarded_read(into.as_mut_ptr(), from, into.len()) };
        copy::outcome(failed).unwrap();
    }),
];

/// Bytes of a region that no other range shares a line of the cache with.
struct Range {
    offset: usize,
    len: usize,
    /// The largest units in it: offset and size.
    units: Vec<(usize, usize)>,
}

/// Returns ranges of 1 to 64 bytes, and of some greater lengths, at all alignments of vectors; and the bytes of a
/// region that holds them.
fn ranges() -> (Vec<Range>, usize) {
    let short = (1..=64).flat_map(|len| (0..16).map(move |alignment| (alignment, len)));
    let long = [100, 255, 256, 257, 300, 1024, 4096];
    let long = long.into_iter().flat_map(|len| (0..32).map(move |alignment| (alignment, len)));
    let mut end = 0_usize;
    let ranges = short.chain(long).map(|(alignment, len)| {
        let offset = end + alignment;
        end = (offset + len).next_multiple_of(64);
        Range { offset, len, units: units(offset, len) }
    });
    (ranges.collect(), end)
}

fn units(offset: usize, len: usize) -> Vec<(usize, usize)> {
    let mut units = Vec::new();
    let mut at = offset;
    while at < offset + len {
        let fits = |size: &usize| at.is_multiple_of(*size) && at + size <= offset + len;
        let size = [8, 4, 2, 1].into_iter().find(fits).unwrap();
        units.push((at, size));
        at += size;
    }
    units
}

/// Loads a unit by one load.
fn load(mapping: &Mapping, (offset, size): (usize, usize)) -> u64 {
    let at = mapping.at(offset, size);
    // SAFETY: in range and aligned.
    unsafe {
        match size {
            8 => AtomicU64::from_ptr(at.cast()).load(Ordering::Acquire),
            4 => AtomicU32::from_ptr(at.cast()).load(Ordering::Acquire).into(),
            2 => AtomicU16::from_ptr(at.cast()).load(Ordering::Acquire).into(),
            _ => AtomicU8::from_ptr(at).load(Ordering::Acquire).into(),
        }
    }
}

/// Loads all units of a range, and returns the first one's value; or offset and value of one that holds different
/// bytes.
fn whole(range: &Range, load: impl Fn((usize, usize)) -> u64) -> Result<u64, (usize, u64)> {
    let mut first = None;
    for unit in &range.units {
        let value = load(*unit);
        if value != 0 && value != u64::MAX >> (64 - 8 * unit.1) {
            return Err((unit.0, value));
        }
        first = first.or(Some(value));
    }
    Ok(first.expect("no range is empty"))
}

/// Returns how many changes of each range are looked for.
fn changes() -> usize {
    std::env::var("ROCE_LOOKS").map_or(30, |it| it.parse().expect("ROCE_LOOKS is a number"))
}

/// Looks at a range without a change after which the other thread is taken for one that does not run.
const IDLE_LOOKS: usize = 3000;

/// Lets `change` alternate the bytes of each range between zeros and ones while `look` looks at all its units. It
/// returns the value of the first, or the offset and value of one that it has seen in parts.
fn alternate(
    what: &str,
    change: impl Fn(&Mapping, &Range, u8) + Sync,
    mut look: impl FnMut(&Mapping, &Range) -> Result<u64, (usize, u64)>,
) {
    let (ranges, len) = ranges();
    let mapping = Mapping::allocate(len, false).unwrap();
    let (current, is_over) = (AtomicUsize::new(0), AtomicBool::new(false));
    let (torn, count) = std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut byte = 0_u8;
            while !is_over.load(Ordering::Relaxed) {
                byte = !byte;
                change(&mapping, &ranges[current.load(Ordering::Relaxed)], byte);
            }
        });
        let (mut torn, mut count, mut seen) = (None, 0_usize, 0_usize);
        'ranges: for (index, range) in ranges.iter().enumerate() {
            current.store(index, Ordering::Relaxed);
            let (mut changed, mut idle, mut before) = (0, 0, 0);
            while changed < changes() && idle < IDLE_LOOKS {
                count += range.units.len();
                match look(&mapping, range) {
                    Ok(first) if first == before => idle += 1,
                    Ok(first) => (changed, idle, before) = (changed + 1, 0, first),
                    Err((at, value)) => {
                        torn = Some((range.offset, range.len, at, value));
                        break 'ranges;
                    }
                }
            }
            seen += changed;
        }
        // Before anything can fail, or the other would go on for ever.
        is_over.store(true, Ordering::Relaxed);
        (torn, (count, seen))
    });
    println!("{what}: {} units looked at, {} changes", count.0, count.1);
    assert_eq!(torn, None, "{what}: offset and length of the range, offset and value of the unit");
    assert!(count.1 > 0, "{what}: nothing changed, so nothing was tested");
}

#[test]
fn no_aligned_unit_of_a_write_is_seen_in_parts() {
    for (what, write) in WRITES {
        let bytes = [[0; 4096 + 8], [0xff; 4096 + 8]];
        let change = |mapping: &Mapping, range: &Range, byte: u8| {
            // The frame has another alignment.
            let frame = &bytes[usize::from(byte & 1)][range.len % 7..];
            write(mapping, range.offset, &frame[..range.len]);
        };
        alternate(what, change, |mapping, range| whole(range, |unit| load(mapping, unit)));
    }
}

#[test]
fn no_aligned_unit_of_a_read_is_a_mix_of_two_stores() {
    for (what, read) in READS {
        let change = |mapping: &Mapping, range: &Range, byte: u8| {
            let value = u64::from_ne_bytes([byte; 8]);
            for offset in (range.offset & !7..range.offset + range.len).step_by(8) {
                mapping.word(offset).unwrap().store(value, Ordering::Relaxed);
            }
        };
        let mut frame = [0; 4096 + 8];
        alternate(what, change, |mapping, range| {
            let frame = &mut frame[range.len % 7..][..range.len];
            read(mapping, range.offset, frame);
            whole(range, |(offset, size)| {
                let mut value = [0; 8];
                value[..size].copy_from_slice(&frame[offset - range.offset..][..size]);
                u64::from_le_bytes(value)
            })
        });
    }
}

#[test]
fn the_last_byte_of_a_write_of_any_length_and_alignment_is_seen_last() {
    let (ranges, len) = ranges();
    // What both ends of a byte wait for: the writer for the reader's value, and that for the writer's.
    let wait_for = |is_there: &dyn Fn() -> bool| {
        let mut spins = 0_u32;
        while !is_there() {
            spins += 1;
            if spins.is_multiple_of(1000) {
                std::thread::yield_now();
            }
        }
    };
    let rounds = changes().div_ceil(30).min(200) as u8;
    for (what, write) in WRITES {
        let mapping = Mapping::allocate(len, false).unwrap();
        let seen = AtomicUsize::new(0);
        let early = std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut written = 0;
                for range in &ranges {
                    for value in 1..=rounds {
                        write(&mapping, range.offset, &[value; 4096][..range.len]);
                        written += 1;
                        wait_for(&|| seen.load(Ordering::Acquire) == written);
                    }
                }
            });
            let mut early = None;
            for range in &ranges {
                let last = range.offset + range.len - 1;
                for value in 1..=rounds {
                    wait_for(&|| mapping.load_u8(last) == value);
                    let is_early = |at: &usize| mapping.load_u8(*at) != value;
                    let at = (range.offset..last).rev().find(is_early);
                    early = early.or(at.map(|at| (range.offset, range.len, at)));
                    seen.fetch_add(1, Ordering::Release);
                }
            }
            early
        });
        assert_eq!(early, None, "{what}: offset and length of the range, offset of the early byte");
    }
}
