use core::time::Duration;

use proptest::option;
use proptest::prelude::*;
use roce_wire::management::{CmAttribute, CmDatagram, CmMessage, Dreq, SidrReq};
use roce_wire::{
    Bth, Deth, Headers, KnownOpcode, OuterHeaders, Psn, Qpn, Sealer, UdpChecksum, opcode,
};

use super::*;
use crate::Which;

fn kinds() -> impl Strategy<Value = PacketKind> {
    let named = prop::sample::select(vec![
        PacketKind::Any,
        PacketKind::Request,
        PacketKind::Response,
        PacketKind::Ack,
        PacketKind::Nak,
        PacketKind::RnrNak,
        PacketKind::Cnp,
        PacketKind::Send,
        PacketKind::Write,
        PacketKind::Read,
        PacketKind::ReadResponse,
        PacketKind::Atomic,
    ]);
    // `cnp` is a kind, too.
    let opcodes: Vec<_> = KnownOpcode::all().filter(|opcode| *opcode != opcode::CNP).collect();
    prop_oneof![
        named,
        prop::sample::select(&CmAttribute::ALL[..]).prop_map(PacketKind::Management),
        prop::sample::select(opcodes).prop_map(PacketKind::Opcode),
    ]
}

fn selectors() -> impl Strategy<Value = PacketSelector> {
    let which = prop_oneof![
        (1..u64::MAX, 0..1000u64)
            .prop_map(|(first, more)| { Which::Range(first, first.saturating_add(more)) }),
        (1..u64::MAX).prop_map(Which::Every),
        Just(Which::Every(1)),
        (1..=1_000_000u32).prop_map(Which::Share),
    ];
    let directions = [FaultDirection::Sent, FaultDirection::Received];
    let direction = option::of(prop::sample::select(directions.to_vec()));
    let windows = prop_oneof![
        Just(Window::default()),
        (0..40_000u64, 1..40_000u64).prop_map(|(from, length)| Window {
            from: Duration::from_millis(from),
            until: Duration::from_millis(from + length),
        }),
        (0..40_000u64)
            .prop_map(|from| Window { from: Duration::from_micros(from), until: Duration::MAX }),
    ];
    let places = (option::of(any::<u32>()), option::of(any::<u32>()), windows);
    (kinds(), which, direction, option::of(1..u32::MAX), places).prop_map(
        |(kind, which, direction, queue_pair, (rank, rail, window))| PacketSelector {
            kind,
            which,
            direction,
            queue_pair,
            rank,
            rail,
            window,
        },
    )
}

fn rules() -> impl Strategy<Value = FaultRule> {
    let times = || (0..86_400_000_000_000u64).prop_map(Duration::from_nanos);
    let actions = prop_oneof![
        Just(FaultAction::Drop),
        Just(FaultAction::Mark),
        times().prop_map(FaultAction::Duplicate),
        Just(FaultAction::Duplicate(Duration::ZERO)),
        option::of(..524_424u32).prop_map(FaultAction::Damage),
        times().prop_map(FaultAction::Delay),
        (1..u32::MAX).prop_map(FaultAction::HoldBehind),
        selectors().prop_map(FaultAction::HoldUntil),
    ];
    (actions, selectors()).prop_map(|(action, packets)| FaultRule { action, packets })
}

proptest! {
    #[test]
    fn a_rule_is_read_back_from_its_sentence(rule in rules()) {
        let text = rule.to_string();
        prop_assert_eq!(FaultRule::parse(&text), Ok(rule), "{}", text);
    }

    #[test]
    fn no_text_panics(text in "[a-z0-9 ]{0,60}") {
        let _ = FaultRule::parse(&text);
    }

    #[test]
    fn a_word_that_is_replaced_is_named(rule in rules(), place in any::<prop::sample::Index>()) {
        let text = rule.to_string();
        let mut words: Vec<_> = text.split(' ').collect();
        let place = place.index(words.len());
        words[place] = "wrong";
        let text = words.join(" ");
        prop_assert_eq!(FaultRule::parse(&text).unwrap_err().word, "wrong", "{}", text);
    }
}

#[test]
fn a_sentence_may_be_written_in_more_than_one_way() {
    for (text, same) in [
        ("drop requests 3 to 5", "drop request 3 to 5"),
        ("drop every 1st ack", "drop every ack"),
        ("drop sent every 2nd ack", "drop every 2nd sent ack"),
        ("drop acks 3 to 18446744073709551615", "drop ack from 3"),
        ("hold sends 1 to 2 behind 1 packet", "hold send 1 to 2 behind 1 packets"),
        ("delay ack 1 by 5000us", "delay ack 1 by 5ms"),
        ("drop packet 1 of rank 0 of queue pair 2", "drop packet 1 of queue pair 2 of rank 0"),
        ("drop SIDR-REQs 1 to 2", "drop sidr-req 1 to 2"),
        ("drop every 2nd DREQ", "drop every 2nd dreq"),
        ("drop 1% on rail 0 from 2s to 4s", "drop 1% of packets on rail 0 from 2s to 4s"),
        ("drop 0.5% of queue pair 2", "drop 0.5% of packets of queue pair 2"),
        ("delay 00.010% of sent ack by 1ms", "delay 0.01% of sent acks by 1ms"),
        ("drop requests on rail 1", "drop every request on rail 1"),
        ("mark requests from 2s for 10ms", "mark every request from 2s to 2010ms"),
        ("drop requests from 3 from 2s", "drop request from 3 from 2s"),
        ("  drop\tRC-RDMA-WRITE-Only 7 ", "drop rc-rdma-write-only 7"),
    ] {
        assert_eq!(FaultRule::parse(text).unwrap().to_string(), same);
    }
}

#[test]
fn a_refusal_names_the_wrong_word_and_what_may_stand_there() {
    for (text, word, expected) in [
        ("", "", "drop, duplicate"),
        ("lose packet 1", "lose", "drop, duplicate"),
        ("drop packet", "", "a number"),
        ("drop packet 0", "0", "from 1"),
        ("drop packets 5 to 3", "3", "a last number that is not below the first"),
        ("drop packets 5 to x", "x", "a last number that is not below the first"),
        ("damage bit 524424 of packet 1", "524424", "the longest frame has 524424"),
        ("damage bit x of packet 1", "x", "a bit (from 0;"),
        ("drop pakket 1", "pakket", "rc-send-only"),
        ("drop sidr 1", "sidr", "req or sidr-rep"),
        ("drop req", "", "a number"),
        ("drop request 3 of pair 2", "pair", "queue pair"),
        ("drop request 3 of queue pear 2", "pear", "pair"),
        ("drop request 3 of rank 1 of rank 2", "rank", "each once"),
        ("drop request 3 please", "please", "the end"),
        ("delay ack 1 by 5", "5", "a time"),
        ("delay ack 1 by 25h", "25h", "a time"),
        ("delay ack 1 by 18446744073709551615s", "18446744073709551615s", "a time"),
        ("delay ack 1", "", "by"),
        ("hold ack 1 for 2 packets", "for", "until"),
        ("drop every 0th ack", "0th", "a number from 1 with its ending"),
        ("drop every 99999999999999999999th ack", "99999999999999999999th", "a number from 1"),
        ("drop every north ack", "north", "packet"),
        ("drop 0% of acks", "0%", "a percentage"),
        ("drop 101%", "101%", "a percentage"),
        ("drop 0.00001%", "0.00001%", "a percentage"),
        ("drop +1%", "+1%", "a percentage"),
        ("drop requests on lane 1", "lane", "rail"),
        ("drop requests on rail one", "one", "the number of a rail"),
        ("drop requests from 2s to 1s", "1s", "behind the first"),
    ] {
        let error = FaultRule::parse(text).unwrap_err();
        assert_eq!(error.word, word, "{text}");
        assert!(error.expected.contains(expected), "{text}: {error}");
        let shown = if word.is_empty() { "the end".to_owned() } else { format!("{word:?}") };
        assert!(error.to_string().starts_with(&shown), "{error}");
    }
}

/// Returns a frame from host 1 or 2 to the other.
fn frame(from: u8, headers: &Headers) -> Vec<u8> {
    frame_with(from, headers, &[])
}

fn frame_with(from: u8, headers: &Headers, payload: &[u8]) -> Vec<u8> {
    let address = |last| core::net::IpAddr::from([10, 0, 0, last]);
    let outer = OuterHeaders::new(address(from), address(3 - from));
    let mut body = [0; 64];
    let len = headers.emit(&mut body);
    let mut frame = vec![0; outer.len()];
    frame.extend(&body[..len]);
    frame.extend(payload);
    frame.extend([0; 4]);
    let sealer = Sealer::new(&outer).unwrap();
    let segment_len = len + payload.len() + 4;
    sealer.seal(0xc123, 7, &mut frame, segment_len, UdpChecksum::Zero).unwrap();
    frame
}

fn plain(opcode: KnownOpcode, to: u32) -> Headers {
    Headers::new(Bth::new(opcode, Qpn::new(to).unwrap(), Psn::ZERO))
}

#[test]
fn a_sender_is_told_from_others_by_its_connection_or_its_datagrams() {
    let sender = |from, headers: &Headers| PacketFacts::of(&frame(from, headers)).unwrap().sender;
    let of = |from, to| sender(from, &plain(opcode::RC_SEND_MIDDLE, to));
    assert_eq!(of(1, 17), sender(1, &plain(opcode::RC_SEND_LAST, 17)));
    assert_ne!(of(1, 17), of(1, 18));
    assert_ne!(of(1, 17), of(2, 17));
    let datagram = |from: u32, to| {
        let source_qp = Qpn::new(from).unwrap();
        let headers = plain(opcode::UD_SEND_ONLY, to);
        sender(1, &Headers { deth: Some(Deth { q_key: 1, source_qp }), ..headers })
    };
    assert_eq!(datagram(5, 17), datagram(5, 18));
    assert_ne!(datagram(5, 17), datagram(6, 17));
    assert_eq!(PacketFacts::of(&[0; 60]), None);
}

#[test]
fn a_counter_counts_what_its_selector_names_and_nothing_else() {
    let rule = |text: &str| RuleCounter::new(FaultRule::parse(text).unwrap().packets);
    let seen = |text: &str, packets: &[(KnownOpcode, u32)]| {
        let mut counter = rule(text);
        let admits = |&(opcode, queue_pair): &(KnownOpcode, u32)| {
            let facts = PacketFacts::of(&frame(1, &plain(opcode, 17)));
            let direction = FaultDirection::Sent;
            let (queue_pair, rank) = (Some(queue_pair), Some(1));
            counter.admits(&SeenPacket {
                facts,
                direction,
                queue_pair,
                rank,
                rail: None,
                time: Duration::ZERO,
            })
        };
        packets.iter().map(admits).collect::<Vec<_>>()
    };
    let (send, write) = (opcode::RC_SEND_MIDDLE, opcode::RC_WRITE_MIDDLE);
    let packets = [(send, 1), (write, 1), (send, 2), (send, 1), (write, 2), (send, 2)];
    for (text, meant) in [
        ("drop send 2", [false, false, true, false, false, false]),
        ("drop send 2 of queue pair 1", [false, false, false, true, false, false]),
        ("drop request 2 to 4", [false, true, true, true, false, false]),
        ("drop every 2nd packet", [false, true, false, true, false, true]),
        ("drop every write", [false, true, false, false, true, false]),
        ("drop every ack", [false; 6]),
        ("drop received every packet", [false; 6]),
        ("drop every packet of rank 2", [false; 6]),
        (
            "drop every rc-rdma-write-middle of queue pair 2 of rank 1",
            [false, false, false, false, true, false],
        ),
    ] {
        assert_eq!(seen(text, &packets), meant, "{text}");
    }
}

#[test]
fn datagrams_of_connection_management_are_told_by_their_message() {
    let to = |qpn: u32, payload: &[u8]| {
        let deth = Some(Deth { q_key: roce_wire::GSI_Q_KEY, source_qp: Qpn::GSI });
        let headers = Headers { deth, ..plain(opcode::UD_SEND_ONLY, qpn) };
        PacketFacts::of(&frame_with(1, &headers, payload)).unwrap()
    };
    let encoded = |message| CmDatagram { transaction: 1, message }.encode();
    let dreq = encoded(CmMessage::Dreq(Dreq::default()));
    let sidr_req = encoded(CmMessage::SidrReq(SidrReq::default()));
    assert_eq!(to(1, &dreq).management, Some(CmAttribute::Dreq));
    assert_eq!(to(1, &sidr_req).management, Some(CmAttribute::SidrReq));
    let mut other_class = dreq;
    other_class[1] = 3;
    for (qpn, payload) in [(17, &dreq[..]), (1, &dreq[..252]), (1, &other_class)] {
        assert_eq!(to(qpn, payload).management, None);
    }
    let rule = FaultRule::parse("drop dreq 2").unwrap();
    let mut counter = RuleCounter::new(rule.packets);
    let admitted = [&dreq, &sidr_req, &other_class, &dreq, &dreq].map(|payload| {
        let facts = Some(to(1, payload));
        let direction = FaultDirection::Sent;
        counter.admits(&SeenPacket {
            facts,
            direction,
            queue_pair: None,
            rank: None,
            rail: None,
            time: Duration::ZERO,
        })
    });
    assert_eq!(admitted, [false, false, false, true, false]);
}
