//! Scripts, right and wrong.

use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::find_opcode;

fn steps(text: &str) -> Vec<Step> {
    let mut variables = Variables::default();
    let script = Script::parse(text, &variables).unwrap();
    (0..script.len()).map(|at| script.step(at, &mut variables).unwrap()).collect()
}

fn mistake(text: &str) -> String {
    Script::parse(text, &Variables::default()).unwrap_err().to_string()
}

#[test]
fn a_statement_says_what_to_send_and_how() {
    let text = "# a comment\n\n  send rc_send_only qp=5 psn+=1 payload=3 count=7 rate=50 icrc=wrong \
                to=10.0.0.1  # another\nsend my trace.pcapng:12\n";
    let error = mistake(text);
    assert!(error.starts_with("line 4: no opcode is called \"my\""), "{error}");
    let steps = steps(&text.replace("my trace", "trace"));
    let Step::Send(send) = &steps[0] else { panic!("{steps:?}") };
    assert_eq!(send.source, PacketSource::Opcode(find_opcode("rc_send_only").unwrap()));
    assert_eq!((send.count, send.rate, send.has_wrong_icrc), (7, Some(50), true));
    assert_eq!(send.payload, [0, 1, 2]);
    assert_eq!(send.to, Some("10.0.0.1".parse().unwrap()));
    assert_eq!(send.changes.len(), 2);
    let Step::Send(send) = &steps[1] else { panic!("{steps:?}") };
    let source = PacketSource::Capture { file: "trace.pcapng".to_owned(), frame: 12 };
    assert_eq!(**send, SendStep::new(source));
}

#[test]
fn expectations_have_a_time_and_a_filter() {
    let steps = steps(
        "expect: psn == 5\nexpect within 20ms: ethernet.source == 02:00:00:00:00:01\n\
         forbid for 1.5s: payload.bytes contains \": #\"\nwait 50us",
    );
    let expected = |text: &str, within| Step::Expect { filter: text.parse().unwrap(), within };
    assert_eq!(steps[0], expected("psn == 5", Duration::from_secs(1)));
    let second = "ethernet.source == 02:00:00:00:00:01";
    assert_eq!(steps[1], expected(second, Duration::from_millis(20)));
    let Step::Forbid { filter, during } = &steps[2] else { panic!("{steps:?}") };
    assert_eq!(filter.to_string(), "payload.bytes contains \": #\"");
    assert_eq!(*during, Duration::from_millis(1500));
    assert_eq!(steps[3], Step::Wait(Duration::from_micros(50)));
}

#[test]
fn sums_of_hexadecimal_values_wrap_at_their_digits() {
    let mut variables = Variables::default();
    for (name, value) in
        [("psn", "0xffffff"), ("n", "7"), ("address", "0xffffffffffffffff"), ("t", "x")]
    {
        variables.fix(name, value).unwrap();
    }
    for (text, filled) in [
        ("$psn $psn+1 ${psn}+0x10 $psn-1.", "0xffffff 0x000000 0x00000f 0xfffffe."),
        ("$n+3 $n-7 $n+ $n-x $nn", ""),
        ("$n+3 $n-7 $n+ $n-x", "10 0 7+ 7-x"),
        ("$address+1", "0x0000000000000000"),
        ("$n-8", ""),
        ("$t+1", ""),
        ("$", ""),
        ("${n", ""),
    ] {
        match variables.fill(text) {
            Ok(is) => assert_eq!(is, filled, "{text}"),
            Err(error) => assert!(filled.is_empty(), "{text}: {error}"),
        }
    }
}

#[test]
fn a_value_of_the_caller_is_not_changed_by_let() {
    let mut variables = Variables::default();
    variables.fix("qp", "9").unwrap();
    let script = Script::parse("let qp = 5\nlet psn = $qp+1\n", &variables).unwrap();
    for at in 0..script.len() {
        script.step(at, &mut variables).unwrap();
    }
    assert_eq!(variables.fill("$qp $psn"), Ok("9 10".to_owned()));
}

#[test]
fn statements_with_taken_values_are_checked_once_they_have_them() {
    let text = "expect: aeth\ntake msn = aeth.msn\nsend rc_send_only psn=$msn+1\nsend rc_x psn=1\n";
    assert!(mistake(text).starts_with("line 4: no opcode"), "{}", mistake(text));
    let later = "expect: aeth\ntake msn = aeth.msn\nsend rc_x psn=$msn\n";
    let mut variables = Variables::default();
    let script = Script::parse(later, &variables).unwrap();
    variables.set("msn", "5").unwrap();
    assert_eq!(script.step(2, &mut variables).unwrap_err().line(), 3);
}

#[test]
fn mistakes_are_told_with_their_line_and_what_to_write() {
    for (text, told) in [
        ("snd x", "there are let, send"),
        ("send", "nothing to send"),
        ("send rc_send_only qp", "NAME=VALUE"),
        ("send rc_send_only qqp=5", "no field is called"),
        ("send rc_send_only count=0", "1 to 10000000"),
        ("send rc_send_only rate=2000000", "1 to 1000000"),
        ("send rc_send_only payload=x", "no payload"),
        ("send rc_send_only icrc=5", "right or wrong"),
        ("send a.pcap:1 payload=5", "keeps its payload"),
        ("send rc_send_only qp=$qp", "--let qp="),
        ("expect psn == 5", "write `within 1s: FILTER`"),
        ("expect for 1s: psn", "write `within"),
        ("expect within 1: psn", "is no time"),
        ("expect within 1s: pns == 5", "pns"),
        ("forbid: psn", "write `for 200ms: FILTER`"),
        ("wait 2h", "is no time"),
        ("take x = nothing", "no field is called"),
        ("let 5x = 1", "no name of a variable"),
        ("let x", "let psn ="),
        ("send rc_send_only \u{7}", "control characters"),
    ] {
        let error = mistake(&format!("# first\n{text}"));
        assert!(error.starts_with("line 2: ") && error.contains(told), "{text}: {error}");
    }
    assert!(mistake(&"wait 1s\n".repeat(2001)).contains("2000 statements"));
    assert!(mistake(&"#\n".repeat(200_000)).contains("bytes"));
}

proptest! {
    #[test]
    fn any_text_is_a_script_or_a_mistake_with_a_line(text in "(?s)(let|send|expect|forbid|take|wait|\\$|=|:|#|[a-z_.0-9 ]|\n|.){0,80}") {
        if let Err(error) = Script::parse(&text, &Variables::default()) {
            prop_assert!((1..=text.lines().count().max(1)).contains(&error.line()), "{}", error);
        }
    }
}
