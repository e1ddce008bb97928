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

#[test]
fn a_filter_shows_exactly_the_packets_that_meet_it() {
    let file = "rxe/read_to_rxe_v4.pcapng";
    let all = lines(&[], file);
    let with = |word: &str| all.iter().filter(|line| line.contains(word)).cloned().collect();
    let responses: Vec<String> = with("RDMA READ response");
    assert!(!responses.is_empty() && responses.len() < all.len());
    assert_eq!(lines(&["-Y", "opcode_name contains 'read response'"], file), responses);
    assert_eq!(lines(&["--filter", "not opcode_name contains 'read response'"], file).len(), {
        all.len() - responses.len()
    });
    let answers: Vec<String> = with("| READ of");
    assert_eq!(lines(&["-Y", "findings == message_end"], file), answers);
    assert_eq!(lines(&["--finding", "message_end"], file), answers);
    assert_eq!(lines(&["--finding", "message_end", "-Y", "number == 1"], file).len(), 0);
}

#[test]
fn a_mistake_in_a_filter_is_shown_at_its_place() {
    let output = dissect(&["-Y", "qp == 0x12 and bth.pns"], "rxe/read_to_rxe_v4.pcapng");
    assert_eq!(output.status.code(), Some(2));
    let text = stderr(&output);
    assert!(text.contains("  qp == 0x12 and bth.pns\n                 ^^^^^^^"), "{text}");
    let output = dissect(&["--opcode", "nak"], "rxe/read_to_rxe_v4.pcapng");
    assert!(stderr(&output).contains("--finding nak"), "{}", stderr(&output));
}

/// Adds every number, text and flag of an object under its path.
fn flatten(path: &str, value: &serde_json::Value, into: &mut Vec<(String, String)>) {
    use serde_json::Value;

    match value {
        Value::Object(object) => {
            for (name, value) in object {
                let dot = if path.is_empty() { "" } else { "." };
                flatten(&format!("{path}{dot}{name}"), value, into);
            }
        }
        Value::Array(values) => values.iter().for_each(|value| flatten(path, value, into)),
        Value::Null => {}
        Value::Bool(set) => into.push((path.to_owned(), u8::from(*set).to_string())),
        Value::String(text) => into.push((path.to_owned(), text.clone())),
        other => into.push((path.to_owned(), other.to_string())),
    }
}

#[test]
fn every_name_of_the_json_is_a_field_with_the_same_values() {
    let files = [
        "rxe/read_to_rxe_v4.pcapng",
        "rxe/fetch_add_by_rxe_v4.pcapng",
        "rxe/send_imm_by_rxe_v6.pcapng",
        "generated/cm_v4.pcap",
        "generated/rc_nak_v4.pcap",
        "generated/rc_send_only_with_invalidate_v4.pcap",
        "generated/pause.pcap",
        "generated/roce_v1.pcap",
        "generated/train.pcap",
        "generated/vlan.pcap",
        "congested.pcapng",
    ];
    let mut names = std::collections::BTreeSet::new();
    for file in files {
        let objects = lines(&["--json"], file);
        let flat: Vec<Vec<(String, String)>> = objects
            .iter()
            .map(|line| {
                let mut flat = Vec::new();
                flatten("", &serde_json::from_str(line).unwrap(), &mut flat);
                flat
            })
            .collect();
        let of_file: std::collections::BTreeSet<&String> =
            flat.iter().flatten().map(|(name, _)| name).collect();
        for name in of_file {
            let expected: Vec<String> = flat
                .iter()
                .map(|object| {
                    let values = object.iter().filter(|(found, _)| found == name);
                    values.map(|(_, value)| value.as_str()).collect::<Vec<_>>().join("~")
                })
                .collect();
            let found = lines(&["-T", "fields", "-e", name, "-E", "aggregator=~"], file);
            assert_eq!(found, expected, "{name} of {file}");
            names.insert(name.clone());
        }
    }
    assert!(names.len() > 45, "{names:?}");
}

#[test]
fn fields_are_columns_in_the_manner_of_tshark() {
    let file = "generated/rc_nak_v4.pcap";
    let table = |style: &[&str]| {
        let fields = ["-T", "fields", "-e", "number", "-e", "BTH.psn", "-e", "findings"];
        lines(&[&fields[..], style].concat(), file)
    };
    let nak = lines(&["--finding", "nak", "-T", "fields", "-e", "number"], file);
    assert_eq!(nak, ["1", "2", "3", "4"]);
    let row = |rows: Vec<String>| {
        let starts = |row: &String| row.trim_start_matches('"').starts_with(&nak[0]);
        rows.into_iter().find(starts).unwrap()
    };
    let plain = row(table(&[]));
    let cells: Vec<&str> = plain.split('\t').collect();
    assert!(cells[1].starts_with("0x") && cells[1].len() == 8, "{plain}");
    assert!(cells[2].split(',').any(|name| name == "nak"), "{plain}");
    let csv =
        table(&["-E", "header=y", "-E", "separator=,", "-E", "quote=d", "-E", "occurrence=f"]);
    assert_eq!(csv[0], "number,bth.psn,findings.name");
    let first = cells[2].split(',').next().unwrap();
    assert_eq!(row(csv), format!("\"{}\",\"{}\",\"{first}\"", cells[0], cells[1]));
    assert_eq!(stderr(&dissect(&["-T", "fields"], file)).matches("--fields").count(), 1);
    assert!(lines(&["--fields"], "").iter().any(|line| line.starts_with("bth.psn ")));
}

/// A folder that is removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let folder =
            std::env::temp_dir().join(format!("roce-dissect-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        Self(folder)
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().to_owned()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn frames_that_pass_are_written_as_they_were_captured() {
    let folder = Folder::new("write");
    let fields = ["-T", "fields", "-e", "time_ns", "-e", "length", "-e", "link", "-e", "psn"];
    for (file, format) in [
        ("rxe/read_to_rxe_v4.pcapng", "pcap"),
        ("rxe/read_to_rxe_v4.pcapng", "pcapng"),
        ("generated/rc_fetchadd_v6.pcap", "pcapng"),
        ("generated/train.pcap", "pcapng"),
    ] {
        let written = folder.path(&format!("some.{format}"));
        let some = ["-Y", "length > 70"];
        let output = dissect(&[&some[..], &["-w", &written]].concat(), file);
        assert!(output.status.success() && output.stdout.is_empty(), "{}", stderr(&output));
        let expected = lines(&[&some[..], &fields].concat(), file);
        assert!(!expected.is_empty());
        let found = dissect(&[&fields[..], &[&written]].concat(), "");
        assert_eq!(stdout(&found).lines().collect::<Vec<_>>(), expected, "{file} {format}");
    }
    let same = testdata("rxe/read_to_rxe_v4.pcapng");
    let copy = folder.path("copy.pcapng");
    std::fs::copy(&same, &copy).unwrap();
    let output = dissect(&["-w", &copy, &copy], "");
    assert!(!output.status.success() && stderr(&output).contains("is the capture that is read"));
    assert_eq!(std::fs::read(&copy).unwrap(), std::fs::read(&same).unwrap());
}

#[test]
fn a_capture_that_gzip_has_compressed_is_read_as_it_is() {
    let folder = Folder::new("gzip");
    let file = "rxe/read_to_rxe_v4.pcapng";
    let bytes = std::fs::read(testdata(file)).unwrap();
    let (whole, half) = (folder.path("whole.pcapng.gz"), folder.path("half.pcapng.gz"));
    let compressed = {
        let mut child = Command::new("gzip")
            .arg("-c")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(&bytes).unwrap();
        child.wait_with_output().unwrap().stdout
    };
    std::fs::write(&whole, &compressed).unwrap();
    std::fs::write(&half, &compressed[..compressed.len() / 2]).unwrap();
    assert_eq!(stdout(&dissect(&[&whole], "")), stdout(&dissect(&[], file)));
    let output = dissect(&[&half], "");
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    assert!(stderr(&output).contains("reading"), "{}", stderr(&output));
}

#[test]
fn the_time_of_a_line_is_absolute_on_request() {
    let file = "rxe/read_to_rxe_v4.pcapng";
    let epoch = lines(&["-t", "e"], file);
    let nanos = lines(&["-T", "fields", "-e", "time_ns"], file);
    let date = lines(&["--time", "ud"], file);
    for ((line, nanos), dated) in epoch.iter().zip(&nanos).zip(&date) {
        let (seconds, rest) = nanos.split_at(nanos.len() - 9);
        assert!(line[7..].starts_with(&format!("{seconds}.{rest} ")), "{line}");
        let words: Vec<&str> = dated.split_whitespace().collect();
        assert!(words[1].starts_with("20") && words[2].ends_with(rest), "{dated}");
    }
}
