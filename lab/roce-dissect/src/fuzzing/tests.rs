//! The corpora of the fuzz targets, replayed.

use std::fs;
use std::path::Path;

use roce_fuzz_support::{Script, check_seed, random_seed, replay};

use super::frames::Frames;
use super::{capture_file, dissect};

#[test]
fn every_capture_in_the_corpus_is_read_to_its_end() {
    replay("capture_file", 1, capture_file);
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
    replay("dissect", 1, dissect);
}

#[test]
fn the_stored_seeds_are_the_generated_ones() {
    for seed in 0..16 {
        check_seed("dissect", &format!("dice_{seed}"), &random_seed(seed));
    }
}

#[test]
fn the_capture_seeds_hold_the_frames_of_the_generator() {
    for (seed, order) in [(0, u32::to_le_bytes as fn(u32) -> [u8; 4]), (1, u32::to_be_bytes)] {
        let script = random_seed(seed);
        let mut frames = Frames::new(Script::new(&script));
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
