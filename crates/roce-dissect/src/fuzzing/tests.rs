//! The corpora of the fuzz targets, replayed.

use std::fs;
use std::path::{Path, PathBuf};

use super::frames::Frames;
use super::script::Script;
use super::{capture_file, dissect};

fn corpus_of(target: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target)
}

fn replay(target: &str, body: fn(&[u8])) {
    let mut replayed = 0;
    for entry in fs::read_dir(corpus_of(target)).unwrap() {
        let path = entry.unwrap().path();
        println!("{}", path.display()); // shown when it fails
        body(&fs::read(path).unwrap());
        replayed += 1;
    }
    assert!(replayed > 0, "{target} has no corpus");
}

#[test]
fn every_capture_in_the_corpus_is_read_to_its_end() {
    replay("capture_file", capture_file);
}

#[test]
fn every_capture_that_was_recorded_is_read_to_its_end() {
    let mut folders = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata")];
    let mut read = 0;
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            println!("{}", path.display()); // shown when it fails
            capture_file(&fs::read(path).unwrap());
            read += 1;
        }
    }
    assert!(read > 0, "nothing is recorded");
}

#[test]
fn every_frame_in_the_corpus_is_explained() {
    replay("dissect", dissect);
}

#[test]
fn the_seeds_are_those_that_the_dice_gave() {
    for seed in 0..16 {
        check_seed("dissect", &format!("dice_{seed}"), &dice(seed));
    }
}

#[test]
fn the_seeds_that_are_captures_hold_what_the_dice_gave() {
    for (seed, order) in [(0, u32::to_le_bytes as fn(u32) -> [u8; 4]), (1, u32::to_be_bytes)] {
        let dice = dice(seed);
        let mut frames = Frames::new(Script::new(&dice));
        let mut pcap = [0xa1b2_c3d4, 0, 0, 0, 65_535, 1].map(order).concat();
        let version = if order(1)[3] == 1 { [0, 2, 0, 4] } else { [2, 0, 4, 0] };
        pcap[4..8].copy_from_slice(&version);
        let mut pcapng = section(order);
        // Ethernet, and a clock that counts in 1/1024 of a second.
        let interface = if order(1)[3] == 1 { [0, 1, 0, 0] } else { [1, 0, 0, 0] };
        let option = order(if order(1)[3] == 1 { 9 << 16 | 1 } else { 1 << 16 | 9 });
        let interface = [&interface[..], &order(65_535), &option, &[0x8a, 0, 0, 0]].concat();
        pcapng.extend(block(1, &interface, order));
        while let Some(frame) = frames.next_frame() {
            let frame = frame.as_raw();
            let (seconds, len) = ((frame.time.0 >> 20) as u32, frame.bytes.len() as u32);
            pcap.extend([seconds, 5, len, frame.original_len].map(order).concat());
            pcap.extend(frame.bytes);
            let head = [0, 0, seconds, len, frame.original_len].map(order).concat();
            pcapng.extend(block(6, &[&head, frame.bytes].concat(), order));
        }
        check_seed("capture_file", &format!("pcap_{seed}"), &pcap);
        check_seed("capture_file", &format!("pcapng_{seed}"), &pcapng);
    }
}

fn section(order: fn(u32) -> [u8; 4]) -> Vec<u8> {
    let version = if order(1)[3] == 1 { [0, 1, 0, 0] } else { [1, 0, 0, 0] };
    block(0x0a0d_0d0a, &[&order(0x1a2b_3c4d)[..], &version, &[0xff; 8]].concat(), order)
}

fn block(kind: u32, body: &[u8], order: fn(u32) -> [u8; 4]) -> Vec<u8> {
    let padded = body.len().next_multiple_of(4);
    let len = order((padded + 12) as u32);
    let mut block = [&order(kind)[..], &len, body].concat();
    block.resize(8 + padded, 0);
    block.extend(len);
    block
}

/// Seeds by dice, so long that the fuzzer begins with whole scripts.
fn dice(seed: u8) -> Vec<u8> {
    let mut state = u64::from(seed);
    let mut throw = || {
        // splitmix64
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ mixed >> 31) as u8
    };
    (0..300).map(|_| throw()).collect()
}

/// `ROCE_WRITE_SEEDS=1` writes them anew.
fn check_seed(target: &str, name: &str, bytes: &[u8]) {
    let path = corpus_of(target).join(format!("seed_{name}"));
    if std::env::var_os("ROCE_WRITE_SEEDS").is_some() {
        fs::write(&path, bytes).unwrap();
    }
    let stored = fs::read(&path).unwrap_or_default();
    assert!(stored == bytes, "{} is not what it was made from", path.display());
}
