//! Ladders from captures: what was lost and sent again is seen, and nothing else is believed.

use roce_lab::{CaptureLadderError, Ladder, Lesson, LessonRun};

/// What a capture at a lesson's network would hold: every packet as it left, but the lost.
fn capture(run: &LessonRun) -> Vec<u8> {
    let mut file = Vec::new();
    file.extend(0xa1b2_3c4d_u32.to_le_bytes()); // pcap, nanoseconds
    file.extend([2, 0, 4, 0]);
    file.extend([0; 8]);
    file.extend(65_535u32.to_le_bytes());
    file.extend(1u32.to_le_bytes());
    for packet in run.timeline.packets.iter().filter(|packet| !packet.lost) {
        let (nanos, len) = (packet.sent.as_nanos(), packet.frame.len() as u32);
        let seconds = (nanos / 1_000_000_000) as u32;
        let rest = (nanos % 1_000_000_000) as u32;
        file.extend([seconds, rest, len, len].map(u32::to_le_bytes).concat());
        file.extend(&packet.frame);
    }
    file
}

fn lesson(name: &str) -> LessonRun {
    LessonRun::simulate(&Lesson::find(name).expect("a lesson")).expect("it plays")
}

fn page_data(ladder: &Ladder) -> serde_json::Value {
    let page = ladder.to_html().expect("a page");
    let (_, rest) = page.split_once("id=\"data\">").expect("the data begin");
    let (data, _) = rest.split_once("</script>").expect("the data end");
    serde_json::from_str(data).expect("JSON")
}

#[test]
fn a_captured_loss_shows_gap_and_retransmission() {
    let run = lesson("lost-packet");
    let ladder = Ladder::of_capture(&capture(&run)[..], "lost.pcap", 1000).unwrap();
    assert_eq!(ladder.len(), run.timeline.packets.len() - 1);
    let data = page_data(&ladder);
    let hosts = data["hosts"].as_array().unwrap();
    assert_eq!(hosts, &["10.9.0.1", "10.9.0.2"]);
    let strings = &data["packets"]["strings"];
    let facts = data["packets"]["facts"].as_array().unwrap();
    let fact = |place: usize| strings[facts[place].as_u64().unwrap() as usize].as_str().unwrap();
    assert!(fact(2).contains("1 missing before"), "{}", fact(2));
    let flags: Vec<_> =
        data["packets"]["flags"].as_array().unwrap().iter().map(|it| it.as_u64()).collect();
    let again = flags.iter().filter(|flags| **flags == Some(4)).count();
    // PSN 102 never passed the place of the capture before.
    assert!(again >= 3, "{flags:?}");
}

#[test]
fn packets_of_a_capture_have_the_numbers_of_their_frames() {
    let run = lesson("lost-packet");
    let mut file = capture(&run);
    // A frame that is not RoCE, behind the header of 24 bytes.
    let other = [0_u8; 60];
    let mut record = [0; 16];
    record[8..12].copy_from_slice(&60_u32.to_le_bytes());
    record[12..].copy_from_slice(&60_u32.to_le_bytes());
    file.splice(24..24, record.into_iter().chain(other));
    let data = page_data(&Ladder::of_capture(&file[..], "lost.pcap", 1000).unwrap());
    let numbers = data["packets"]["number"].as_array().unwrap();
    assert_eq!((&numbers[0], &numbers[1]), (&2.into(), &3.into()));
    assert_eq!(data["hex_psns"], true);
    assert_eq!(page_data(&Ladder::of_lesson(&run))["packets"]["number"][0], 1);
}

#[test]
fn a_page_has_one_script_and_no_link() {
    for name in ["lost-packet", "ring"] {
        let page = Ladder::of_lesson(&lesson(name)).to_html().unwrap();
        assert_eq!(page.matches("</script>").count(), 2, "{name}");
        for address in ["http:", "https:", "src=", "url(", "@import"] {
            let allowed = if address == "http:" { 1 } else { 0 }; // the name of SVG
            assert!(page.matches(address).count() <= allowed, "{name}: {address}");
        }
    }
}

#[test]
fn a_name_cannot_break_out_of_its_page() {
    let run = lesson("one-packet");
    let name = "</script><script>alert(1)</script><!--";
    let page = Ladder::of_capture(&capture(&run)[..], name, 10).unwrap().to_html().unwrap();
    assert_eq!(page.matches("</script>").count(), 2);
    assert!(!page.contains("<script>alert"));
}

#[test]
fn a_file_that_is_no_capture_is_an_error_and_a_truncated_capture_is_drawn() {
    for bytes in [&b""[..], b"hello, this is no capture at all", &[0; 100]] {
        let refused = Ladder::of_capture(bytes, "x", 10);
        assert!(matches!(refused, Err(CaptureLadderError::NotACapture(_))));
    }
    let whole = capture(&lesson("lost-packet"));
    for len in 24..whole.len() {
        let ladder = Ladder::of_capture(&whole[..len], "cut", 1000).unwrap();
        assert!(ladder.len() <= 13);
    }
}

#[test]
fn packets_above_the_limit_are_counted_and_left_out() {
    let bytes = capture(&lesson("lost-packet"));
    let ladder = Ladder::of_capture(&bytes[..], "x", 5).unwrap();
    assert_eq!(ladder.len(), 5);
    assert_eq!(page_data(&ladder)["left_out"], 8);
}

#[test]
fn every_capture_of_the_corpus_becomes_a_page() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata");
    let mut captures = 0;
    for folder in [root.clone(), root.join("rxe"), root.join("generated")] {
        for entry in std::fs::read_dir(folder).expect("the corpus is there") {
            let path = entry.expect("an entry").path();
            if path.extension().is_some_and(|it| it == "pcap" || it == "pcapng") {
                let file = std::fs::File::open(&path).expect("a capture");
                let ladder = Ladder::of_capture(file, "corpus", 1000).expect("a capture");
                page_data(&ladder);
                captures += 1;
            }
        }
    }
    assert!(captures >= 40, "{captures}");
}
