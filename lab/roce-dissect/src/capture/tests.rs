use std::io::Read;

use proptest::prelude::*;

use super::*;
use crate::LinkType;

/// Frames and damage as text, the same one by one and in batches.
fn read(file: &[u8]) -> Vec<String> {
    let events = read_from(file);
    assert_eq!(read_in_batches(file), events);
    events
}

fn read_from(reader: impl Read) -> Vec<String> {
    let mut capture = match Capture::open(reader) {
        Ok(capture) => capture,
        Err(error) => return vec![error.to_string()],
    };
    let mut seen = Vec::new();
    while let Some(event) = capture.next_event().unwrap() {
        seen.push(words(&event));
    }
    seen
}

fn read_in_batches(reader: impl Read) -> Vec<String> {
    let mut capture = match Capture::open(reader) {
        Ok(capture) => capture,
        Err(error) => return vec![error.to_string()],
    };
    let mut seen = Vec::new();
    // Two batches in turn, as with two threads: one keeps its content while the other is filled.
    let mut batches = [Batch::new(), Batch::new()];
    let mut before = 0;
    while capture.next_batch(&mut batches[0]).unwrap() {
        let [batch, other] = &mut batches;
        let again: Vec<String> = other.events().map(|event| words(&event)).collect();
        assert_eq!(again, seen[before..]);
        before = seen.len();
        seen.extend(batch.events().map(|event| words(&event)));
        assert_eq!(batch.offset(), capture.offset());
        batches.swap(0, 1);
    }
    seen
}

fn words(event: &Event<'_>) -> String {
    match event {
        Event::Frame(frame) => format!(
            "#{} {} {} {:02x?} of {}",
            frame.number, frame.time, frame.link, frame.bytes, frame.original_len
        ),
        Event::Damage(damage) => damage.to_string(),
    }
}

type Order = fn(u32) -> [u8; 4];

fn pcap_header(magic: u32, link: u32, order: Order) -> Vec<u8> {
    [magic, 0x0004_0002, 0, 0, 65_535, link].map(order).concat()
}

fn pcap_packet(seconds: u32, fraction: u32, bytes: &[u8], order: Order) -> Vec<u8> {
    let len = bytes.len() as u32;
    let mut packet = [seconds, fraction, len, len].map(order).concat();
    packet.extend(bytes);
    packet
}

fn block(kind: u32, body: &[u8], order: Order) -> Vec<u8> {
    let padded = body.len().next_multiple_of(4);
    let len = (padded + 12) as u32;
    let mut block = [kind, len].map(order).concat();
    block.extend(body);
    block.resize(8 + padded, 0);
    block.extend(order(len));
    block
}

fn section(order: Order) -> Vec<u8> {
    let version = match order(1)[3] {
        1 => [0, 1, 0, 0],
        _ => [1, 0, 0, 0],
    };
    let body = [&order(0x1a2b_3c4d)[..], &version, &[0xff; 8]].concat();
    block(SECTION_NUMBER, &body, order)
}

fn interface(link: u16, options: &[u8], order: Order) -> Vec<u8> {
    let link = match order(1)[3] {
        1 => link.to_be_bytes(),
        _ => link.to_le_bytes(),
    };
    let body = [&link[..], &[0, 0], &order(65_535), options].concat();
    block(1, &body, order)
}

fn enhanced(interface: u32, ticks: u64, bytes: &[u8], order: Order) -> Vec<u8> {
    let len = bytes.len() as u32;
    let words = [interface, (ticks >> 32) as u32, ticks as u32, len, len + 100];
    let mut body = words.map(order).concat();
    body.extend(bytes);
    block(6, &body, order)
}

const SECTION_NUMBER: u32 = 0x0a0d_0d0a;
const LITTLE: Order = u32::to_le_bytes;
const BIG: Order = u32::to_be_bytes;

#[test]
fn pcap_is_read_in_either_byte_order_and_either_unit_of_time() {
    for order in [LITTLE, BIG] {
        for (magic, nanos) in [(0xa1b2_c3d4, "000005000"), (0xa1b2_3c4d, "000000005")] {
            let mut file = pcap_header(magic, 113, order);
            file.extend(pcap_packet(7, 5, &[1, 2], order));
            assert_eq!(read(&file), [format!("#1 7.{nanos} Linux cooked v1 [01, 02] of 2")]);
        }
    }
}

#[test]
fn pcapng_is_read_in_either_byte_order_with_a_link_and_a_clock_for_each_interface() {
    for order in [LITTLE, BIG] {
        let option = |code: u32, len: u32, value: &[u8]| {
            let head = if order(1)[3] == 1 { code << 16 | len } else { len << 16 | code };
            [&order(head)[..], value].concat()
        };
        let mut file = section(order);
        file.extend(interface(1, &[], order)); // microseconds
        file.extend(interface(101, &option(9, 1, &[9, 0, 0, 0]), order)); // nanoseconds
        file.extend(interface(276, &option(9, 1, &[0x80 | 10, 0, 0, 0]), order)); // 1/1024 s
        file.extend(enhanced(0, 2_000_001, &[0xaa], order));
        file.extend(block(0x0bad, &[1, 2, 3], order)); // an unknown block type
        file.extend(enhanced(1, 2_000_001, &[0xbb; 3], order));
        file.extend(enhanced(2, 1536, &[0xcc], order));
        file.extend(block(3, &[&order(2)[..], &[0xdd, 0xee]].concat(), order)); // simple
        assert_eq!(
            read(&file),
            [
                "#1 2.000001000 Ethernet [aa] of 101",
                "#2 0.002000001 raw IP [bb, bb, bb] of 103",
                "#3 1.500000000 Linux cooked v2 [cc] of 101",
                "#4 1.500000000 Ethernet [dd, ee] of 2",
            ]
        );
    }
}

#[test]
fn a_new_section_clears_the_interfaces() {
    let mut file = section(LITTLE);
    file.extend(interface(1, &[], LITTLE));
    file.extend(section(BIG));
    file.extend(enhanced(0, 0, &[1], BIG));
    let seen = read(&file);
    assert_eq!(seen.len(), 1);
    assert!(seen[0].contains("interface 0 was not described"), "{seen:?}");
}

#[test]
fn a_file_that_is_no_capture_is_named() {
    assert_eq!(read(&[]), ["not a capture: the file is empty"]);
    assert!(read(b"hello, world")[0].contains("begins with 68 65 6c 6c"));
    assert!(read(b"hi")[0].contains("not a capture"));
    assert!(read(&[0x1f, 0x8b, 8, 0])[0].contains("gunzip"));
    assert!(read(&pcap_header(0xa1b2_c3d4, 1, LITTLE)[..20])[0].contains("within its header"));
}

#[test]
fn a_truncated_file_yields_the_packets_before_its_end() {
    let mut pcap = pcap_header(0xa1b2_c3d4, 1, LITTLE);
    pcap.extend(pcap_packet(1, 0, &[1; 4], LITTLE));
    let whole = pcap.len();
    pcap.extend(pcap_packet(2, 0, &[2; 4], LITTLE));
    let mut pcapng = section(LITTLE);
    pcapng.extend(interface(1, &[], LITTLE));
    pcapng.extend(enhanced(0, 0, &[1; 4], LITTLE));
    let whole_ng = pcapng.len();
    pcapng.extend(enhanced(0, 0, &[2; 4], LITTLE));
    for (file, whole) in [(pcap, whole), (pcapng, whole_ng)] {
        assert_eq!(read(&file).len(), 2);
        assert_eq!(read(&file[..whole]).len(), 1, "the end of a packet is not a truncation");
        for end in whole + 1..file.len() {
            let seen = read(&file[..end]);
            assert_eq!(seen.len(), 2, "{end}");
            assert!(seen[1].contains(&format!("at byte {whole}: it ends within")));
        }
    }
}

#[test]
fn garbage_between_packets_is_skipped_and_reading_continues() {
    let mut pcap = pcap_header(0xa1b2_c3d4, 1, LITTLE);
    pcap.extend(pcap_packet(1000, 0, &[1; 4], LITTLE));
    pcap.extend([0xff; 33]);
    pcap.extend(pcap_packet(1001, 0, &[2; 4], LITTLE));
    pcap.extend(pcap_packet(1002, 0, &[3; 4], LITTLE));
    let mut pcapng = section(LITTLE);
    pcapng.extend(interface(1, &[], LITTLE));
    pcapng.extend(enhanced(0, 0, &[1; 4], LITTLE));
    pcapng.extend([0xff; 33]);
    pcapng.extend(enhanced(0, 0, &[2; 4], LITTLE));
    pcapng.extend(enhanced(0, 0, &[3; 4], LITTLE));
    for file in [pcap, pcapng] {
        let seen = read(&file);
        assert_eq!(seen.len(), 4, "{seen:?}");
        assert!(seen[1].ends_with("33 bytes skipped"), "{seen:?}");
        assert!(seen[2].starts_with("#2") && seen[3].starts_with("#3"), "{seen:?}");
    }
}

#[test]
fn a_block_whose_length_is_not_repeated_at_its_end_is_skipped() {
    let mut file = section(LITTLE);
    file.extend(interface(1, &[], LITTLE));
    let damaged = file.len();
    file.extend(enhanced(0, 0, &[1; 4], LITTLE));
    *file.last_mut().unwrap() ^= 1;
    file.extend(enhanced(0, 0, &[2; 4], LITTLE));
    let seen = read(&file);
    assert_eq!(seen.len(), 2, "{seen:?}");
    assert!(seen[0].contains(&format!("at byte {damaged}: a block length")), "{seen:?}");
    assert!(seen[1].starts_with("#1 0.000000000 Ethernet [02"), "{seen:?}");
}

#[test]
fn an_unknown_link_type_keeps_its_number() {
    assert_eq!(LinkType::from_code(105), LinkType::Other(105));
    assert_eq!(LinkType::from_code(228), LinkType::RawIp);
}

/// A reader that returns few bytes at a time, as a pipe may.
struct Dribble<'a>(&'a [u8], usize);

impl Read for Dribble<'_> {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        let len = self.1.min(into.len()).min(self.0.len());
        into[..len].copy_from_slice(&self.0[..len]);
        self.0 = &self.0[len..];
        Ok(len)
    }
}

/// A file longer than one read, with damage and with blocks longer than that.
#[test]
fn a_long_file_reads_the_same_in_batches_and_no_frame_waits_for_the_next_batch() {
    let junk = vec![0xff; 300_000];
    let nobodys = block(0x0bad, &vec![7; 700_000], LITTLE);
    let mut ng = [section(LITTLE), interface(1, &[], LITTLE)].concat();
    let mut plain = pcap_header(0xa1b2_c3d4, 1, LITTLE);
    for i in 0..2000u32 {
        let frame = vec![i as u8; 1 + i as usize % 1500];
        ng.extend(enhanced(0, i.into(), &frame, LITTLE));
        plain.extend(pcap_packet(i, 0, &frame, LITTLE));
        if i % 700 == 500 {
            ng.extend(&nobodys);
            ng.extend(&junk);
            plain.extend(&junk);
        }
    }
    for file in [ng, plain] {
        let lines = read(&file);
        assert!(lines.iter().filter(|line| line.starts_with('#')).count() >= 1998);
        assert!(lines.iter().any(|line| line.contains("damaged")));
        for step in [1000, 65_536, 300_000] {
            assert_eq!(read_in_batches(Dribble(&file, step)), lines);
        }
    }
}

/// Packets from a pipe appear as they arrive.
#[test]
fn a_batch_is_returned_before_the_next_read() {
    struct Steps(std::vec::IntoIter<Vec<u8>>);
    impl Read for Steps {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            let bytes = self.0.next().ok_or(io::ErrorKind::ConnectionReset)?;
            into[..bytes.len()].copy_from_slice(&bytes);
            Ok(bytes.len())
        }
    }
    let packet = |i: u8| pcap_packet(i.into(), 0, &[i; 9], LITTLE);
    let (first, second) = ([packet(1), packet(2)].concat(), packet(3));
    let steps = vec![
        pcap_header(0xa1b2_c3d4, 1, LITTLE),
        [&first[..], &second[..5]].concat(),
        second[5..].to_vec(),
    ];
    let mut capture = Capture::open(Steps(steps.into_iter())).unwrap();
    let mut batch = Batch::new();
    assert!(capture.next_batch(&mut batch).unwrap());
    assert_eq!(batch.events().len(), 2);
    assert!(capture.next_batch(&mut batch).unwrap());
    assert_eq!(batch.events().len(), 1);
    assert!(capture.next_batch(&mut batch).is_err());
    assert_eq!(batch.events().len(), 0);
}

proptest! {
    #[test]
    fn any_bytes_after_any_header_are_read_to_the_end(
        ng: bool, bytes in proptest::collection::vec(any::<u8>(), 0..400),
    ) {
        let mut file = match ng {
            true => [section(LITTLE), interface(1, &[], LITTLE)].concat(),
            false => pcap_header(0xa1b2_c3d4, 1, LITTLE),
        };
        file.extend(bytes);
        prop_assert!(read(&file).len() <= file.len());
    }

    #[test]
    fn the_frames_do_not_depend_on_how_the_bytes_arrive(
        ng: bool, step in 1usize..50,
        frames in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 1..90), 0..9),
        junk in proptest::collection::vec(any::<u8>(), 0..30),
    ) {
        let mut file = match ng {
            true => [section(LITTLE), interface(1, &[], LITTLE)].concat(),
            false => pcap_header(0xa1b2_c3d4, 1, LITTLE),
        };
        for (i, frame) in frames.iter().enumerate() {
            file.extend(match ng {
                true => enhanced(0, i as u64, frame, LITTLE),
                false => pcap_packet(i as u32, 0, frame, LITTLE),
            });
        }
        file.extend(junk);
        prop_assert_eq!(read_from(Dribble(&file, step)), read(&file));
        prop_assert_eq!(read_in_batches(Dribble(&file, step)), read(&file));
        prop_assert!(read(&file).iter().filter(|line| line.starts_with('#')).count() >= frames.len());
    }
}
