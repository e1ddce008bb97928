//! `roce dissect` as people run it.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

fn testdata(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../testdata").join(name)
}

fn dissect(arguments: &[&str], file: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_roce"));
    command.arg("dissect").args(arguments);
    if !file.is_empty() {
        command.arg(testdata(file));
    }
    command.stdin(Stdio::null()).output().unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

fn lines(arguments: &[&str], file: &str) -> Vec<String> {
    let output = dissect(arguments, file);
    assert!(output.status.success(), "{}", stderr(&output));
    stdout(&output).lines().map(str::to_owned).collect()
}

#[test]
fn frame_numbers_and_counts_begin_at_one() {
    for option in ["--count", "--explain"] {
        let output = dissect(&[option, "0"], "");
        assert_eq!(output.status.code(), Some(2), "{option}");
        assert!(stderr(&output).contains("invalid value '0'"), "{}", stderr(&output));
    }
}

#[test]
fn every_packet_has_one_line_and_none_has_colours_in_a_pipe() {
    let lines = lines(&[], "rxe/read_to_rxe_v4.pcapng");
    assert_eq!(lines.len(), 16);
    assert!(
        lines[10].starts_with("    11 0.006057018 10.9.0.2 → 10.9.0.1 qp 0x576be7 RC RDMA READ")
    );
    assert!(lines[10].ends_with("READ of 1025 bytes in 2 packets, 490 µs, 16.7 Mb/s"));
    assert!(lines.iter().all(|line| !line.contains('\x1b')));
}

#[test]
fn a_tree_shows_fields_with_their_bytes_and_hex_shows_all_bytes() {
    let lines = lines(&["-v", "-x"], "generated/rc_fetchadd_v6.pcap");
    let has = |wanted: &str| lines.iter().any(|line| line.contains(wanted));
    assert!(has("AtomicETH bytes 74..102"), "{lines:#?}");
    assert!(has("PSN                        0x123456            12 34 56"));
    assert!(has("0000  02 00 00 00 00 02 02 00 00 00 00 01 86 dd"));
}

#[test]
fn json_has_an_object_for_each_packet_with_the_documented_names() {
    let page = std::fs::read_to_string(
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/dissect.md"),
    )
    .unwrap();
    for file in ["rxe/read_to_rxe_v4.pcapng", "generated/cm_v4.pcap", "generated/damage.pcap"] {
        for line in lines(&["--json", "-v"], file) {
            let value: serde_json::Value = serde_json::from_str(&line).unwrap();
            for name in value.as_object().unwrap().keys() {
                assert!(page.contains(&format!("`{name}`")), "{name} is not in docs/dissect.md");
            }
        }
    }
    for line in lines(&["--json", "--summary"], "rxe/read_to_rxe_v4.pcapng") {
        let value: serde_json::Value = serde_json::from_str(&line).unwrap();
        let names = value.as_object().unwrap().keys();
        let names = names.chain(value["forward"].as_object().unwrap().keys());
        for name in names {
            assert!(page.contains(&format!("`{name}`")), "{name} is not in docs/dissect.md");
        }
    }
}

#[test]
fn a_filter_that_no_packet_matches_names_the_queue_pairs_of_the_capture() {
    let file = "rxe/read_to_rxe_v4.pcapng";
    for arguments in [&["--qp", "0x12345"][..], &["--qp", "0x12345", "--summary"]] {
        let output = dissect(arguments, file);
        assert!(output.status.success());
        let text = stderr(&output);
        assert!(text.contains("none of the 16 RoCE packets matches"), "{text}");
        assert!(text.contains("0x000016") && text.contains("0x576be7"), "{text}");
    }
    for arguments in [&["--qp", "0x16"][..], &["--only", "problems"]] {
        assert_eq!(stderr(&dissect(arguments, file)), "", "{arguments:?}");
    }
}

#[test]
fn filters_choose_packets_and_not_what_is_followed() {
    let file = "rxe/read_to_rxe_v4.pcapng";
    assert_eq!(lines(&["--opcode", "response last"], file).len(), 1);
    assert_eq!(lines(&["--psn", "0xfffffd..0xffffff"], file).len(), 6);
    assert_eq!(lines(&["--qp", "0x16"], file).len(), 16, "its answers too");
    assert_eq!(lines(&["--host", "10.9.0.3"], file).len(), 0);
    assert_eq!(lines(&["--only", "problems"], file).len(), 0);
    assert_eq!(lines(&["--count", "3"], file).len(), 3);
    let last = &lines(&["--opcode", "response last"], file)[0];
    assert!(last.contains("READ of 1025 bytes"), "{last}");
}

#[test]
fn an_explanation_says_what_is_done_and_why() {
    let lines = lines(&["--explain", "12"], "rxe/send_inv_by_rxe_v4.pcapng");
    assert!(lines.iter().any(|line| line.contains("ICRC: correct")), "{lines:#?}");
    assert!(
        lines.last().unwrap().contains("=> The responder does not execute it again"),
        "{lines:#?}"
    );
    let output = dissect(&["--explain", "99"], "generated/vlan.pcap");
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(stderr(&output), "roce: there is no frame 99: the capture has 2\n");
}

#[test]
fn a_summary_has_a_row_for_each_connection() {
    let lines = lines(&["--summary"], "rxe/send_by_rxe_v4.pcapng");
    assert!(lines[0].starts_with("from "), "{lines:#?}");
    assert!(lines[1].starts_with("10.9.0.2 0x000021  10.9.0.1 0x1e1fe0  RC         16 "));
    assert_eq!(lines.len(), 3);
}

#[test]
fn a_summary_counts_becn_beside_cnps() {
    let shown = lines(&["--summary"], "generated/marked_v4.pcap");
    let column = |name: &str| shown[0].find(name).unwrap() + name.len();
    for name in ["ECN", "CNPs", "BECN"] {
        assert!(shown[1][..column(&format!(" {name}"))].ends_with(" 1"), "{name}: {shown:#?}");
    }
    let cnps = "CNPs for 10.9.0.2 0x000011 to 10.9.0.1 0x000022: 1, 1 after a mark by 2.00 µs on \
                average; BECN on 1 response";
    assert_eq!(shown[2], cnps);
    let value: serde_json::Value =
        serde_json::from_str(&lines(&["--json", "--summary"], "generated/marked_v4.pcap")[0])
            .unwrap();
    assert_eq!((&value["backward"]["becns"], &value["forward"]["becns"]), (&1.into(), &0.into()));
}

#[test]
fn a_summary_shows_how_a_sender_slows_down() {
    insta::assert_snapshot!(lines(&["--summary"], "congested.pcapng").join("\n"));
}

#[test]
fn a_file_that_is_no_capture_is_told_in_one_line_with_exit_code_2() {
    let output = dissect(&[], "README.md");
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(stderr(&output).lines().count(), 1);
    assert!(stderr(&output).contains("README.md: not a capture"), "{}", stderr(&output));
    assert!(output.stdout.is_empty());
}

#[test]
fn a_capture_without_roce_says_so_and_succeeds() {
    let output = dissect(&[], "generated/pause.pcap");
    assert!(output.status.success());
    assert!(stderr(&output).contains("no RoCE packet is among the 4 frames"));
}

#[test]
fn standard_input_is_read_and_a_cut_is_a_line_of_its_own() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_roce"))
        .args(["dissect", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let bytes = std::fs::read(testdata("rxe/read_to_rxe_v4.pcapng")).unwrap();
    child.stdin.take().unwrap().write_all(&bytes[..bytes.len() - 5]).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    let text = stdout(&output);
    assert_eq!(text.lines().count(), 16);
    assert!(text.lines().last().unwrap().contains("it ends within a packet"), "{text}");
}

/// `tcpdump -w - | roce dissect -`: the pipe stays open.
#[test]
fn a_packet_from_a_pipe_is_shown_when_it_comes_and_a_count_ends_it() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_roce"))
        .args(["dissect", "--count", "2", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let bytes = std::fs::read(testdata("generated/cnp_v4.pcap")).unwrap();
    let (head, packet) = bytes.split_at(24);
    let mut pipe = child.stdin.take().unwrap();
    let mut shown = BufReader::new(child.stdout.take().unwrap()).lines();
    pipe.write_all(head).unwrap();
    for number in ["     1 ", "     2 "] {
        pipe.write_all(packet).unwrap();
        let line = shown.next().unwrap().unwrap();
        assert!(line.starts_with(number) && line.contains("CNP"), "{line}");
    }
    assert!(child.wait().unwrap().success());
    drop(pipe);
}

#[test]
fn a_reader_that_goes_away_is_met_with_silence() {
    // More output than a pipe holds.
    let one = std::fs::read(testdata("generated/roce_v1.pcap")).unwrap();
    let mut many = one.clone();
    for _ in 0..200 {
        many.extend(&one[24..]);
    }
    let path = std::env::temp_dir().join(format!("roce-dissect-pipe-{}.pcap", std::process::id()));
    std::fs::write(&path, many).unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_roce"))
        .arg("dissect")
        .arg(&path)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut first = [0; 64];
    let mut pipe = child.stdout.take().unwrap();
    pipe.read_exact(&mut first).unwrap();
    drop(pipe);
    let output = child.wait_with_output().unwrap();
    std::fs::remove_file(&path).unwrap();
    assert!(output.status.success(), "{:?}", output.status);
    assert_eq!(stderr(&output), "");
}

#[test]
fn colours_are_for_terminals_and_for_those_who_ask() {
    let lines = lines(&["--colour", "always"], "generated/cnp_v4.pcap");
    assert!(lines[0].contains("\x1b[33mCNP\x1b[0m"), "{lines:?}");
}
