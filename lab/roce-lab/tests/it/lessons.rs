//! Lessons: their output and the facts that their text states.

use roce_lab::{EventKind, Lesson, LessonRun, PacketClass, PacketLabel, PacketRecord, TextOptions};
use roce_transport::{CompletionStatus, QpState};
use roce_wire::{Frame, Headers};

fn play(name: &str) -> LessonRun {
    let lesson = Lesson::find(name).unwrap_or_else(|| panic!("there is a lesson {name}"));
    LessonRun::simulate(&lesson).unwrap_or_else(|why| panic!("{name}: {why}"))
}

fn headers(packet: &PacketRecord) -> Headers {
    let frame = Frame::parse(&packet.frame).expect("a sound frame");
    let packet = frame.packets(None).next().expect("one packet").expect("a sound packet");
    packet.headers()
}

fn label(packet: &PacketRecord) -> PacketLabel {
    PacketLabel::of_frame(&packet.frame)
}

fn psns(run: &LessonRun, wanted: impl Fn(&PacketRecord) -> bool) -> Vec<u32> {
    let packets = run.timeline.packets.iter().filter(|packet| wanted(packet));
    packets.map(|packet| headers(packet).bth.psn.get()).collect()
}

fn statuses(run: &LessonRun, host: usize) -> Vec<(u64, CompletionStatus)> {
    let events = run.timeline.events.iter().filter(|event| event.host == host);
    let completed = events.filter_map(|event| match &event.kind {
        EventKind::Completed(completion) => Some((completion.wr_id, completion.status)),
        _ => None,
    });
    completed.collect()
}

fn shown(run: &LessonRun, section: usize, title: &str) -> String {
    let shown = run.sections[section - 1].shown.iter().find(|it| it.title.contains(title));
    shown.unwrap_or_else(|| panic!("section {section} shows {title}")).lines.join("\n")
}

const ALICE: usize = 0;
const BOB: usize = 1;

#[test]
fn lesson_numbers_have_no_gaps_and_names_are_unique() {
    let lessons = Lesson::all();
    let numbers: Vec<_> = lessons.iter().map(|lesson| lesson.number).collect();
    assert_eq!(numbers, (1..=lessons.len() as u32).collect::<Vec<_>>());
    assert!(lessons.len() >= 12);
    let mut names: Vec<_> = lessons.iter().map(|lesson| &lesson.name).collect();
    names.sort();
    names.dedup();
    assert_eq!(names.len(), lessons.len());
}

#[test]
fn every_run_of_a_lesson_is_the_same() {
    let all = TextOptions { all_layers: true, all_lines: true, ..TextOptions::default() };
    assert_eq!(play("lost-packet").text(&all), play("lost-packet").text(&all));
}

#[test]
fn one_packet_has_seventy_bytes_and_one_pad_byte() {
    let run = play("one-packet");
    let [send, ack] = &run.timeline.packets[..] else { panic!("two packets") };
    assert_eq!((send.frame.len(), headers(send).bth.pad.bytes()), (70, 1));
    assert_eq!(label(ack).class, PacketClass::Ack);
    assert!(shown(&run, 2, "inbox").starts_with("Hello, Bob!"));
}

#[test]
fn a_queue_pair_in_rtr_receives() {
    let run = play("queue-pairs");
    let states = |host| {
        let events = run.timeline.events.iter().filter(move |event| event.host == host);
        let states = events.filter_map(|event| match event.kind {
            EventKind::StateChanged { to, .. } => Some(to),
            _ => None,
        });
        states.collect::<Vec<_>>()
    };
    let way = [QpState::Init, QpState::ReadyToReceive, QpState::ReadyToSend];
    assert_eq!((states(ALICE), states(BOB)), (way.to_vec(), way.to_vec()));
    let received = statuses(&run, BOB);
    assert_eq!(received, [(1, CompletionStatus::Success)]);
    assert!(shown(&run, 4, "queue pair").contains("state RTR"));
}

#[test]
fn an_ack_covers_all_packets_before_it() {
    let run = play("acknowledgements");
    let first = &run.sections[0];
    let of_first = &run.timeline.packets[first.packets.clone()];
    let acks: Vec<_> = of_first.iter().filter(|it| label(it).class == PacketClass::Ack).collect();
    assert_eq!((of_first.len(), acks.len()), (5, 1));
    assert_eq!(headers(acks[0]).bth.psn.get(), 103);
    assert_eq!(statuses(&run, ALICE).len(), 3);
}

#[test]
fn a_lost_packet_leads_to_a_nak_and_go_back_n() {
    let run = play("lost-packet");
    assert_eq!(psns(&run, |packet| packet.lost), [102]);
    assert_eq!(psns(&run, |packet| label(packet).class == PacketClass::Nak), [102]);
    assert_eq!(psns(&run, |packet| packet.again), [102, 103, 104, 105]);
    let retransmit = |event: &roce_lab::Event| matches!(event.kind, EventKind::Retransmit { to, .. } if to.get() == 102);
    assert_eq!(run.timeline.events.iter().filter(|event| retransmit(event)).count(), 1);
    assert_eq!(statuses(&run, ALICE), [(1, CompletionStatus::Success)]);
}

#[test]
fn after_a_lost_ack_the_message_is_sent_twice_and_delivered_once() {
    let run = play("lost-ack");
    assert_eq!(psns(&run, |packet| packet.lost && packet.from == BOB), [100]);
    assert_eq!(psns(&run, |packet| packet.from == ALICE), [100, 100]);
    assert_eq!(statuses(&run, BOB), [(1, CompletionStatus::Success)]);
    assert_eq!(statuses(&run, ALICE), [(3, CompletionStatus::Success)]);
    assert_eq!(shown(&run, 2, "counters"), "rdma_recvs 1\nduplicate_request 1");
    assert!(shown(&run, 2, "queue pair").contains("1 receive posted"));
}

#[test]
fn timeouts_end_in_an_error_and_flush_later_requests() {
    let run = play("timeouts");
    assert!(run.timeline.packets.iter().all(|packet| packet.lost));
    let flushed = CompletionStatus::WorkRequestFlushed;
    let expected = [(1, CompletionStatus::RetryExceeded), (2, flushed), (3, flushed)];
    assert_eq!(statuses(&run, ALICE), expected);
    assert!(shown(&run, 1, "queue pair").contains("state ERR"));
}

#[test]
fn a_message_without_a_receive_waits_for_the_rnr_time() {
    let run = play("not-ready");
    assert_eq!(psns(&run, |packet| label(packet).name == "RNR NAK"), [100]);
    let [first, nak, second, _] = &run.timeline.packets[..] else { panic!("four packets") };
    let wait = second.sent.saturating_since(nak.arrivals[0]);
    assert_eq!(wait, std::time::Duration::from_micros(1280));
    assert_eq!(headers(first).bth.psn, headers(second).bth.psn);
    assert!(shown(&run, 2, "inbox").starts_with("You forgot something."));
}

#[test]
fn a_read_takes_as_many_psns_as_its_response_has_packets() {
    let run = play("read");
    let first = &run.timeline.packets[run.sections[0].packets.clone()];
    let answers = first.iter().filter(|packet| label(packet).class == PacketClass::Response);
    let answers: Vec<_> = answers.map(|packet| headers(packet).bth.psn.get()).collect();
    assert_eq!(answers, [100, 101, 102]);
    assert_eq!(psns(&run, |packet| label(packet).name == "WRITE Only"), [103]);
    assert_eq!(psns(&run, |packet| packet.lost), [105]);
    let asked = |packet: &PacketRecord| label(packet).class == PacketClass::Request;
    assert_eq!(psns(&run, asked), [100, 104, 105], "again from the first missing packet");
    let lens = run.timeline.packets.iter().filter(|packet| asked(packet));
    let lens: Vec<_> = lens.filter_map(|packet| headers(packet).reth).map(|it| it.len).collect();
    assert_eq!(lens, [3072, 3072, 2048]);
}

#[test]
fn an_atomic_whose_response_was_lost_is_executed_once() {
    let run = play("atomics");
    let answers = run.timeline.packets.iter().filter_map(|packet| {
        let headers = headers(packet);
        Some((headers.bth.psn.get(), headers.atomic_ack?.original, packet.lost))
    });
    let answers: Vec<_> = answers.collect();
    assert_eq!(answers, [(100, 41, false), (101, 42, true), (101, 42, false), (102, 43, false)]);
    assert_eq!(shown(&run, 2, "counter\""), "43");
    assert_eq!(shown(&run, 3, "counter\""), "43", "the comparison failed");
}

#[test]
fn an_access_without_rights_changes_nothing_and_ends_the_connection() {
    let run = play("keys");
    let nak = run.timeline.packets.iter().find(|it| label(it).class == PacketClass::Nak);
    assert_eq!(label(nak.expect("a NAK")).name, "NAK remote access error");
    assert_eq!(shown(&run, 2, "wall"), "Alice was here");
    let expected = [(1, CompletionStatus::Success), (2, CompletionStatus::RemoteAccessError)];
    assert_eq!(statuses(&run, ALICE), expected);
    assert!(shown(&run, 2, "alice's queue pair").contains("state ERR"));
    assert!(shown(&run, 2, "bob's queue pair").contains("state ERR"));
}

#[test]
fn a_large_write_is_one_request_6144_packets_and_one_completion() {
    let run = play("one-write");
    let data = psns(&run, |packet| packet.from == ALICE);
    assert_eq!(data.len(), 6144);
    assert!(data.windows(2).all(|pair| pair[1] == (pair[0] + 1) % (1 << 24)), "none again");
    assert!(data.contains(&0), "the circle closes on the way");
    assert_eq!(statuses(&run, ALICE), [(1, CompletionStatus::Success)]);
    assert!(statuses(&run, BOB).is_empty(), "its program is told nothing");
}

#[test]
fn memory_that_is_deregistered_under_way_is_refused() {
    let run = play("registration");
    let expected = [(1, CompletionStatus::Success), (2, CompletionStatus::RemoteAccessError)];
    assert_eq!(statuses(&run, ALICE), expected);
    assert_eq!(psns(&run, |packet| packet.from == ALICE).len(), 12);
}

#[test]
fn seven_messages_use_up_seven_receives_of_eight() {
    let run = play("completion-events");
    assert_eq!(statuses(&run, BOB).len(), 7);
    assert!(shown(&run, 2, "queue pair").contains("1 receive posted"));
}

#[test]
fn a_packet_has_the_addresses_of_the_address_vector() {
    let run = play("gids-and-routes");
    assert!(shown(&run, 1, "queue pair").contains("peer address 10.9.0.2"));
    let layers = shown(&run, 2, "packet 1");
    for address in ["10.9.0.1", "10.9.0.2", "4791 (RoCEv2)"] {
        assert!(layers.contains(address), "{address}: {layers}");
    }
}

#[test]
fn the_immediate_behind_the_data_is_the_only_completion_of_the_receiver() {
    let run = play("nccl-transports");
    assert_eq!(statuses(&run, BOB).len(), 2, "its own WRITE, and the immediate");
    let data =
        psns(&run, |packet| packet.from == ALICE && label(packet).class == PacketClass::Data);
    assert_eq!(data.len(), 33, "128 KiB in packets of 4096 bytes, and one of none");
    assert!(run.timeline.packets.iter().all(|packet| label(packet).name != "RNR NAK"));
}

#[test]
fn three_ranks_have_all_sums_after_four_steps() {
    let run = play("rings-trees-channels");
    assert_eq!(shown(&run, 2, "chunks").matches("111").count(), 9);
}

#[test]
fn the_ring_gives_every_rank_all_sums() {
    let run = play("ring");
    let after = |section: usize| shown(&run, section, "chunks of all ranks");
    let rows = |text: String| -> Vec<Vec<String>> {
        let lines = text.lines().skip(1).map(str::to_owned).collect::<Vec<_>>();
        let words = |line: &String| line.split_whitespace().skip(2).map(str::to_owned).collect();
        lines.iter().map(words).collect()
    };
    // After s steps of reduce-scatter rank r has added s + 1 contributions up in chunk r - s.
    for step in 1..=3 {
        for (rank, chunks) in rows(after(step + 1)).iter().enumerate() {
            let sum = &chunks[(rank + 4 - step) % 4];
            assert_eq!(sum.matches('1').count(), step + 1, "rank {rank} after step {step}");
        }
    }
    assert!(rows(after(6)).iter().flatten().all(|sum| sum == "1111"));
    assert!(run.chunks.iter().all(|state| state.value > 0.0));
    assert!(run.timeline.packets.iter().all(|packet| !packet.lost && !packet.again));
}

fn names(run: &LessonRun, section: usize) -> Vec<String> {
    let packets = &run.timeline.packets[run.sections[section - 1].packets.clone()];
    packets.iter().map(|packet| label(packet).name).collect()
}

#[test]
fn a_connection_of_rping_is_three_messages_data_and_two_messages() {
    let run = play("connection-manager");
    assert_eq!(names(&run, 1), ["CM REQ", "CM REP", "CM RTU"]);
    let request = label(&run.timeline.packets[0]);
    assert_eq!(request.line(true), "CM REQ  port 7174, QP 0xc07bd8, PSN 0xda09fc");
    let data = names(&run, 2);
    for name in ["SEND Only", "READ Request", "READ response Only", "WRITE Only"] {
        assert!(data.iter().any(|it| it == name), "{name}");
    }
    assert_eq!(names(&run, 3), ["CM DREQ", "CM DREP"]);
    assert!(shown(&run, 1, "packet 1").contains("local communication id"));
}

#[test]
fn a_message_to_a_group_is_one_packet_between_the_reports_of_its_members() {
    let run = play("multicast");
    assert_eq!((names(&run, 1), names(&run, 3)), (vec!["IGMP".to_owned(); 2], names(&run, 1)));
    for packet in &run.timeline.packets[run.sections[1].packets.clone()] {
        assert_eq!((packet.to, headers(packet).bth.dest_qp.get()), (3, 0xff_ffff));
    }
}

#[test]
fn a_window_is_written_given_back_and_refused() {
    let run = play("memory-windows");
    assert_eq!(names(&run, 2), ["SEND Only", "WRITE Only", "ACK", "ACK"]);
    assert_eq!(names(&run, 3), ["SEND Only +inv", "ACK"]);
    assert_eq!(names(&run, 4)[..2], ["WRITE Only", "NAK remote access error"]);
}

#[test]
fn an_invalid_lesson_is_refused_with_its_section() {
    let lesson = |extra: &str| {
        let text = format!(
            "number = 1\nname = \"x\"\ntitle = \"x\"\nsummary = \"x\"\n{extra}\n\
             [question]\nask = \"x\"\nanswer = \"x\"\n"
        );
        Lesson::parse(&text).and_then(|lesson| LessonRun::simulate(&lesson)).map(|_| ())
    };
    let fabric = |section: &str| {
        format!(
            "[fabric]\nhosts = [\"a\", \"b\"]\nlinks = [\"a b\"]\n\
             flows = [{{ from = \"a\", to = \"b\", bytes = 1000 }}]\n\
             [[section]]\n{section}\ntrial = [{{ name = \"x\" }}]"
        )
    };
    let capture = |file: &str, addresses: usize, section: &str| {
        let addresses = &["10.0.0.2", "10.0.0.1"][..addresses];
        format!("[capture]\nfile = {file:?}\naddresses = {addresses:?}\n[[section]]\n{section}")
    };
    lesson(&fabric("check = [\"x.dropped = 0\", \"x.time < 2 * x.a.time\"]")).unwrap();
    let told = |extra: &str| lesson(extra).expect_err(extra).to_string();
    insta::assert_snapshot!(
        "wrong_lessons",
        [
            told(
                "[[section]]\ndo = [{ fault = { from = \"carol\", rules = [\"drop packet 1\"] } }]"
            ),
            told(
                "[[section]]\ndo = [{ fault = { from = \"alice\", rules = [\"drop packet 0\"] } }]"
            ),
            told("[[section]]\nuntil = { event = \"a miracle\" }"),
            told("[[section]]\nshow = [{ layers = 1 }]"),
            told("[[section]]\ndo = [{ start-ring = {} }]"),
            told("[connection]\npath-mtu = 1500\n[[section]]"),
            told("[world]\ndelay = \"soon\"\n[[section]]"),
            told("[world]\nhosts = [\"alone\"]\n[[section]]"),
            told(&fabric("check = [\"x.dropped > 0\"]")),
            told(&fabric("check = [\"x.drops = 0\"]")),
            told(&fabric("say = \"It took {y.time}.\"")),
            told(&capture("rpong", 2, "until = { sent = 3 }")),
            told(&capture("rping", 1, "until = { sent = 3 }")),
            told(&capture("mckey", 2, "until = { sent = 3 }")),
            told(&capture("rping", 2, "until = { sent = 18 }")),
            told(&capture("rping", 2, "do = [{ start-ring = {} }]")),
            told(&capture("rping", 2, "show = [{ chunks = {} }]")),
            told(&capture("rping", 2, "show = [{ layers = 18 }]")),
        ]
        .join("\n---\n")
    );
}

#[test]
fn the_first_cut_of_dcqcn_is_to_one_half_and_five_stages_recover_half_of_the_way_each() {
    let run = play("rate-control");
    let burst = &run.trials["burst"];
    let limits: Vec<_> = burst.rate_changes[0].iter().filter_map(|it| Some(it.1? as f64)).collect();
    let mut expected = 5e9;
    for limit in &limits[..6] {
        assert!((limit - expected).abs() < 10.0, "{limit} and not {expected}");
        expected = (expected + 10e9) / 2.0;
    }
    // The plot shows the cut.
    let lowest = burst.samples.iter().map(|it| it.rates[0]).filter(|rate| *rate > 0.0);
    assert_eq!(lowest.fold(f64::MAX, f64::min), 5e9);
}

/// Returns a lesson with this fabric and one trial, `x`, of which these statements are true.
fn trial(fabric: &str, check: &[&str]) -> LessonRun {
    let text = format!(
        "number = 99\nname = \"x\"\ntitle = \"x\"\nsummary = \"x\"\n[fabric]\n{fabric}\n\
         [[section]]\ntrial = [{{ name = \"x\" }}]\ncheck = {check:?}\n\
         [question]\nask = \"x\"\nanswer = \"x\"\n"
    );
    LessonRun::simulate(&Lesson::parse(&text).unwrap()).unwrap_or_else(|why| panic!("{why}"))
}

#[test]
fn a_paused_host_sends_nothing_until_the_pause_ends() {
    let pair = "hosts = [\"a\", \"b\"]\nlinks = [\"a b\"]\n\
        flows = [{ from = \"a\", to = \"b\", bytes = 500000 }]\n";
    trial(pair, &["x.time < 600us", "x.resent = 0"]);
    let storm = "faults = [{ at = \"100us\", until = \"800us\", storm = \"b\" }]";
    let run = trial(&format!("{pair}{storm}"), &["x.time > 1.1ms", "x.failed = 0"]);
    let samples = &run.trials["x"].samples;
    let arrived = |micros: u64| {
        let at = samples.iter().find(|it| it.at.as_nanos() >= micros * 1000);
        at.map_or(0, |it| it.arrived[0])
    };
    assert!(arrived(100) > 100_000 && arrived(120) == arrived(790), "{samples:?}");
}

#[test]
fn trials_with_the_same_seed_are_the_same_and_those_with_another_are_not() {
    let lossy = |seed: u32| {
        let fabric = format!(
            "hosts = [\"a\", \"b\"]\nlinks = [\"a b\"]\nloss = 0.01\nseed = {seed}\n\
             flows = [{{ from = \"a\", to = \"b\", bytes = 500000 }}]\n"
        );
        trial(&fabric, &["x.unfinished = 0", "x.lost > 0"]).trials["x"].samples.clone()
    };
    assert_eq!(lossy(1), lossy(1));
    assert_ne!(lossy(1), lossy(2));
}

#[test]
fn a_grant_brings_one_message() {
    let fabric = "hosts = [\"a\", \"b\", \"c\"]\nswitches = [\"s\"]\ngrants = 1\n\
        links = [\"a s\", \"b s\", \"c s\"]\nflows = [\
        { from = \"a\", to = \"c\", bytes = 655360 }, { from = \"b\", to = \"c\", bytes = 655360 }]";
    let run = trial(fabric, &["x.unfinished = 0", "x.queue < 3000"]);
    // The senders take turns, so none is ever ahead by more than a message.
    for sample in &run.trials["x"].samples {
        let [a, b] = sample.arrived[..] else { panic!("two flows") };
        assert!(a.abs_diff(b) <= 65_536, "{a} and {b} at {:?}", sample.at);
    }
}

#[test]
fn the_network_treats_frames_as_the_script_says() {
    let text = "number = 99\nname = \"x\"\ntitle = \"x\"\nsummary = \"x\"\n\
        [[region]]\nhost = \"alice\"\nname = \"a\"\nbytes = 64\n\
        [[region]]\nhost = \"bob\"\nname = \"b\"\nbytes = 64\n\
        [[section]]\ndo = [\n\
        { fault = { from = \"alice\", rules = [\"damage bit 500 of packet 1\"] } },\n\
        { write = { from = \"alice\", region = \"a\", bytes = 32, to = \"b\" } }]\n\
        [[section]]\ndo = [\n\
        { fault = { from = \"alice\", rules = [\"duplicate packet 1 after 1us\"] } },\n\
        { write = { from = \"alice\", region = \"a\", bytes = 32, to = \"b\" } }]\n\
        [[section]]\ndo = [\n\
        { fault = { from = \"alice\", rules = [\"delay packet 1 by 3us\"] } },\n\
        { write = { from = \"alice\", region = \"a\", bytes = 32, to = \"b\" } }]\n\
        [question]\nask = \"x\"\nanswer = \"x\"\n";
    let run = LessonRun::simulate(&Lesson::parse(text).unwrap()).unwrap();
    let of = |section: usize| &run.timeline.packets[run.sections[section].packets.clone()];
    assert!(of(0)[0].damaged && of(0)[1].again, "a wrong ICRC is as good as a loss");
    let refused = |event: &roce_lab::Event| matches!(event.kind, EventKind::FrameRefused { .. });
    assert_eq!(run.timeline.events.iter().filter(|event| refused(event)).count(), 1);
    assert_eq!(of(1)[0].arrivals.len(), 2, "it comes twice");
    let late = &of(2)[0];
    let took = late.arrivals[0].saturating_since(late.sent);
    assert_eq!(took, std::time::Duration::from_micros(5));
    assert_eq!(statuses(&run, ALICE).len(), 3);
}

#[test]
fn a_datagram_without_right_q_key_way_or_receive_is_lost_and_not_repeated() {
    let run = play("datagrams");
    assert_eq!(run.timeline.packets.len(), 5, "as many packets as messages");
    let sent = statuses(&run, 0);
    assert!(sent.iter().all(|(_, status)| *status == CompletionStatus::Success), "{sent:?}");
    assert_eq!((sent.len(), statuses(&run, 1).len()), (5, 2));
    let first = label(&run.timeline.packets[0]);
    assert_eq!(first.facts, ["21 bytes", "from 0x11", "Q_Key 0x2a"]);
    assert!(label(&run.timeline.packets[1]).facts.contains(&"Q_Key 0x7".to_owned()));
    assert!(shown(&run, 1, "inbox").ends_with("Hello, this is Alice."));
    assert_eq!(shown(&run, 2, "counters"), "bad_qkey 1");
    assert_eq!(shown(&run, 4, "counters"), "out_of_buffer 1");
    let text = run.text(&TextOptions::default());
    for verdict in ["drops PSN 101: bad_qkey", "drops PSN 104: out_of_buffer", "DETH"] {
        assert!(text.contains(verdict), "{verdict} in {text}");
    }
}

#[test]
fn queue_pairs_share_receives_until_none_is_left() {
    let run = play("shared-receives");
    let left = |section| shown(&run, section, "shared receive queue");
    assert!(left(1).starts_with("3 receives posted\nlimit 2 armed\n3 queue pairs"), "{}", left(1));
    assert!(left(2).starts_with("1 receive posted\nno limit armed"), "{}", left(2));
    assert!(left(3).starts_with("0 receives posted"), "{}", left(3));
    assert!(left(4).starts_with("1 receive posted"), "{}", left(4));
    let events: Vec<_> = run.timeline.events.iter().map(|it| it.kind.to_string()).collect();
    let count = |words: &str| events.iter().filter(|it| it.contains(words)).count();
    assert_eq!(count("event: the shared queue is below its limit"), 1);
    assert_eq!(count("receives RNR NAK"), 1);
    // In the order of arrival, whichever queue pair it came in on.
    let received: Vec<_> = statuses(&run, 1).into_iter().map(|(wr_id, _)| wr_id).collect();
    assert_eq!(received, [1, 2, 3, 8]);
}

#[test]
fn a_marked_packet_arrives_and_its_notification_makes_the_window_smaller() {
    let run = play("congestion-marks");
    let packets = &run.timeline.packets;
    let marked = packets.iter().filter(|packet| packet.marked).count();
    assert_eq!(marked, 9);
    assert!(packets.iter().all(|packet| !packet.lost && !packet.again));
    let notified: Vec<_> = packets.iter().map(label).filter(|label| label.name == "CNP").collect();
    assert_eq!(notified.len(), 2, "one for the first mark, one for eight in 50 µs");
    assert!(notified.iter().all(|cnp| cnp.psn.is_none() && cnp.facts == ["to QP 0x11"]));
    let becn = |packet: &&PacketRecord| label(packet).facts.contains(&"BECN".to_owned());
    assert!(packets.iter().filter(becn).count() >= 2, "acknowledgements tell it too");
    assert_eq!(shown(&run, 3, "bob's counters"), "np_ecn_marked_roce_packets 9\nnp_cnp_sent 2");
    assert_eq!(shown(&run, 3, "alice's counters"), "rp_cnp_handled 2");
    let text = run.text(&TextOptions::default());
    assert!(text.contains("send window changes to 7 packets"), "{text}");
}
