//! Pages in a browser: loading, packets, clicks and keys.

use crate::common::Browser;
use roce_lab::{Ladder, Lesson, LessonRun};
use roce_test_macros::tier1;
use roce_wire::{Bth, Headers, OuterHeaders, Psn, Qpn, UdpChecksum, opcode, seal};

fn page(name: &str) -> (LessonRun, String) {
    let run = LessonRun::simulate(&Lesson::find(name).expect("a lesson")).expect("it plays");
    let page = Ladder::of_lesson(&run).to_html().expect("a page");
    (run, page)
}

/// A capture of `packets` SENDs; every hundredth packet is missing.
fn long_capture(packets: u32) -> Vec<u8> {
    let outer = OuterHeaders::new("10.9.0.1".parse().unwrap(), "10.9.0.2".parse().unwrap());
    let mut file = Vec::new();
    file.extend(0xa1b2_3c4d_u32.to_le_bytes()); // pcap, nanoseconds
    file.extend([2, 0, 4, 0]);
    file.extend([0; 8]);
    file.extend(65_535u32.to_le_bytes());
    file.extend(1u32.to_le_bytes());
    for i in 0..packets {
        let psn = Psn::wrapping(i + i / 100);
        let headers = Headers::new(Bth::new(opcode::RC_SEND_ONLY, Qpn::new(0x21).unwrap(), psn));
        let mut frame = vec![0; outer.len() + headers.len() + 64 + 4];
        headers.emit_around(&mut frame[outer.len()..], 64);
        let segment_len = frame.len() - outer.len();
        seal(&outer, i as u16, &mut frame, segment_len, UdpChecksum::Zero).unwrap();
        let len = frame.len() as u32;
        file.extend([i / 1_000_000, i % 1_000_000 * 1000, len, len].map(u32::to_le_bytes).concat());
        file.extend(frame);
    }
    file
}

#[tier1("chromium")]
fn every_lesson_opens_without_an_error_and_with_its_packets() {
    let mut browser = Browser::start("lessons");
    for lesson in Lesson::all() {
        let (run, page) = page(&lesson.name);
        browser.open(&page);
        assert_eq!(browser.complaints, Vec::<String>::new(), "{}", lesson.name);
        assert!(browser.text("h1").contains(&lesson.title));
        if !run.timeline.packets.is_empty() {
            browser.press("End");
            let last = format!("[data-packet='{}']", run.timeline.packets.len());
            assert_eq!(browser.count(&last), 1, "{}", lesson.name);
            browser.press("Home");
            assert_eq!(browser.count("[data-packet='1']"), 1, "{}", lesson.name);
        }
        browser.picture(&format!("{:02}_{}", lesson.number, lesson.name));
    }
}

#[tier1("chromium")]
fn a_click_loses_a_packet_and_another_brings_it_back() {
    let mut browser = Browser::start("lose");
    let (_, page) = page("one-packet");
    browser.open(&page);
    assert_eq!((browser.count("[data-packet]"), browser.count(".lost-note")), (2, 0));
    browser.click("[data-packet='1']");
    let loads = browser.loads;
    browser.click("button.lose");
    browser.wait_for_load(loads + 1);
    assert!(browser.text(".lost-note").contains("loses packet 1,"));
    assert_eq!(browser.count("[data-packet]"), 3, "it is sent again");
    browser.click(".lost-note a");
    browser.wait_for_load(loads + 2);
    assert_eq!(browser.count("[data-packet]"), 2);
}

#[tier1("chromium")]
fn a_reply_is_judged_on_the_page() {
    let mut browser = Browser::start("reply");
    let (_, page) = page("one-packet");
    browser.open(&page);
    for (reply, verdict) in [("58", "No."), ("70 bytes", "Right.")] {
        browser.eval(&format!("document.querySelector('#reply').value = {reply:?}"));
        browser.eval("document.querySelector('form.reply').requestSubmit()");
        assert!(browser.text("#verdict").starts_with(verdict), "{reply}");
    }
    assert_eq!(browser.count(".question details[open]"), 1);
}

#[tier1("chromium")]
fn a_click_shows_a_packets_layers_and_bytes() {
    let mut browser = Browser::start("click");
    let (_, page) = page("lost-packet");
    browser.open(&page);
    assert_eq!(browser.count("#detail:not([hidden])"), 0);
    assert_eq!(browser.count(".packet.lost"), 1);
    browser.click("[data-packet='3'] text");
    assert_eq!(browser.text("#detail h2"), "#3WRITE Middle");
    assert!(browser.text("#detail .badge.lost").contains("lost"));
    let layers = browser.eval(
        "[...document.querySelectorAll('#detail summary')].map((it) => it.firstChild.textContent)",
    );
    let layers: Vec<_> = layers.as_array().unwrap().iter().filter_map(|it| it.as_str()).collect();
    assert_eq!(layers, ["Ethernet", "IPv4", "UDP", "BTH", "payload", "ICRC"]);
    assert!(browser.text("#detail").contains("0x000066"), "PSN 102");
    assert!(browser.text("#detail .bytes .line").contains("0000"));
    browser.picture("detail_light");
    browser.prefer("dark");
    browser.picture("detail_dark");
    let paper = "getComputedStyle(document.body).backgroundColor";
    assert_eq!(browser.eval(paper), "rgb(20, 23, 27)");
    browser.press("t");
    assert_eq!(browser.eval(paper), "rgb(252, 251, 249)");
    browser.click("#detail .close");
    assert_eq!(browser.count("#detail:not([hidden])"), 0);
    assert_eq!(browser.complaints, Vec::<String>::new());
}

#[tier1("chromium")]
fn keys_select_search_open_and_close() {
    let mut browser = Browser::start("keys");
    let (_, page) = page("lost-packet");
    browser.open(&page);
    let selected = "document.querySelector('.packet.selected')?.dataset.packet ?? null";
    for (key, packet) in [("j", "1"), ("j", "2"), ("ArrowDown", "3"), ("k", "2"), ("ArrowUp", "1")]
    {
        browser.press(key);
        assert_eq!(browser.eval(selected), packet, "after {key}");
    }
    browser.press("Enter");
    assert_eq!(browser.text("#detail h2"), "#1WRITE First");
    browser.press("j");
    assert_eq!(browser.text("#detail h2"), "#2WRITE Middle", "the panel follows");
    browser.press("Escape");
    assert_eq!(browser.count("#detail:not([hidden])"), 0);
    browser.press("/");
    browser.write("psn 102");
    // The lost packet, the NAK, the retransmission and its ACK.
    let hits = browser.count(".packet.hit");
    assert!(hits >= 3, "{hits}");
    assert!(browser.text("#found").contains("found"));
    browser.press("Enter");
    assert_eq!(browser.eval(selected), "3");
    browser.press("n");
    assert_eq!(browser.eval(selected), "7");
    browser.press("N");
    assert_eq!(browser.eval(selected), "3");
    browser.picture("search");
    browser.press("Escape");
    assert_eq!(browser.count(".packet.hit"), 0);
    browser.press("?");
    assert_eq!(browser.count("dialog[open]"), 1);
    assert_eq!(browser.complaints, Vec::<String>::new());
}

#[tier1("chromium")]
fn a_search_takes_decimal_and_hexadecimal_numbers() {
    let mut browser = Browser::start("numbers");
    let page = Ladder::of_capture(&long_capture(20)[..], "long.pcap", 100).unwrap();
    browser.open(&page.to_html().unwrap());
    // Frame 12, and the PSN 12 of frame 13.
    for (words, found) in
        [("0x00000c", "1 found"), ("0xc", "1 found"), ("12", "2 found"), ("0x21", "20 found")]
    {
        browser.press("/");
        browser.write(words);
        assert_eq!(browser.text("#found"), found, "{words}");
        browser.press("Escape");
    }
    assert!(browser.eval("document.body.textContent.includes('PSN 0x00000c')") == true);
    assert_eq!(browser.complaints, Vec::<String>::new());
}

#[tier1("chromium")]
fn the_ring_chunks_follow_the_selected_packet() {
    let mut browser = Browser::start("ring");
    let (_, page) = page("ring");
    browser.open(&page);
    let all =
        "[...document.querySelectorAll('.node .value')].map((it) => it.textContent).join(' ')";
    let before = browser.eval(all);
    assert!(before.as_str().unwrap().starts_with("0001 0001 0001 0001 0010"), "{before}");
    browser.press("End");
    let after = browser.eval(all);
    assert_eq!(after, ["1111"; 16].join(" "));
    browser.press("Home");
    assert_eq!(browser.eval(all), before);
    assert_eq!(browser.complaints, Vec::<String>::new());
}

/// The arrows of the ring cross the lanes of other hosts.
#[tier1("chromium")]
fn no_packet_label_on_the_ring_hides_another() {
    let mut browser = Browser::start("words");
    let (run, page) = page("ring");
    browser.open(&page);
    // Points along the middle of each label, and the labels closer than half a line.
    let hidden = "(() => {
        const view = document.getElementById('view'), seen = new Map();
        const height = document.getElementById('canvas').offsetHeight;
        for (let top = 0; top < height; top += 400) {
            view.scrollTop = top;
            view.dispatchEvent(new Event('scroll'));
            for (const packet of document.querySelectorAll('.packet')) {
                const words = packet.querySelector('text'), box = words.getBBox();
                const turn = words.transform.baseVal.consolidate().matrix;
                const x = (share) => box.x + box.width * share, y = box.y + box.height / 2;
                const at = (x) => [turn.a * x + turn.c * y + turn.e, turn.b * x + turn.d * y + turn.f];
                const shares = Array.from({ length: 33 }, (_, i) => i / 32);
                seen.set(packet.dataset.packet, shares.map((share) => at(x(share))));
            }
        }
        const near = (a, b) => a.some(([x, y]) => b.some(([p, q]) => Math.hypot(x - p, y - q) < 8));
        const all = [...seen], hidden = [];
        all.forEach(([one, a], i) => all.slice(i + 1).forEach(([other, b]) => {
            if (near(a, b)) hidden.push(`${one} and ${other}`);
        }));
        return `${all.length}: ${hidden.join(', ')}`;
    })()";
    assert_eq!(browser.eval(hidden), format!("{}: ", run.timeline.packets.len()));
    assert_eq!(browser.complaints, Vec::<String>::new());
}

#[tier1("chromium")]
fn a_page_of_100_000_packets_draws_only_the_visible_part() {
    let mut browser = Browser::start("long");
    for packets in [10_000, 100_000] {
        let capture = long_capture(packets);
        let ladder = Ladder::of_capture(&capture[..], "long.pcap", 100_000).expect("a capture");
        assert_eq!(ladder.len(), packets as usize);
        let page = ladder.to_html().expect("a page");
        browser.open(&page);
        let drawn = browser.count("*");
        assert!(drawn < 1500, "{drawn} elements for {packets} packets");
        browser.press("End");
        assert_eq!(browser.count(&format!("[data-packet='{packets}']")), 1);
        browser.click(&format!("[data-packet='{packets}'] text"));
        assert!(browser.text("#detail").contains("BTH"));
        browser.press("Escape");
        let drawn = browser.count("*");
        assert!(drawn < 1500, "{drawn} elements for {packets} packets");
        browser.picture(&format!("long_{packets}"));
        let size = page.len() / 1024;
        println!("{packets} packets: a page of {size} KiB, {drawn} elements");
    }
    assert_eq!(browser.complaints, Vec::<String>::new());
}

/// Cards and remarks that a window of 500 pixels cuts off.
#[tier1("chromium")]
fn a_narrow_window_shows_all_text_of_every_lesson() {
    let mut browser = Browser::start("narrow");
    browser.resize(500, 900);
    for lesson in Lesson::all() {
        let (_, page) = page(&lesson.name);
        browser.open(&page);
        let cut = "[...document.querySelectorAll('.card, .remark')].filter((it) => {
            const box = it.getBoundingClientRect();
            return box.width > 0 && (box.left < 0 || box.right > 500);
        }).length";
        // Remarks of more than two hosts stand beside the lanes of a wider ladder.
        let cut = match lesson.world.hosts.len() {
            2 => cut.to_owned(),
            _ => cut.replace(".card, .remark", ".card"),
        };
        assert!(browser.count(".card") > 0, "{}", lesson.name);
        assert_eq!(browser.eval(&cut), 0, "{}", lesson.name);
        browser.picture(&format!("narrow_{:02}", lesson.number));
    }
    assert_eq!(browser.complaints, Vec::<String>::new());
}
