//! `roce lab` and `roce ladder` as people call them: what they print, and how they end.

use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use roce_netns::process::Launch;

use crate::commands::LIMIT;

fn roce(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_roce"));
    command.args(arguments).stdin(Stdio::null()).output().expect("the program runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn file(name: &str, bytes: &[u8]) -> PathBuf {
    let path = std::env::temp_dir().join(format!("roce-lessons-{}-{name}", std::process::id()));
    std::fs::write(&path, bytes).expect("a file can be written");
    path
}

#[test]
fn an_unknown_lesson_shows_which_there_are() {
    let output = roce(&["lab", "quantum"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(output.stdout.is_empty());
    let told = text(&output.stderr);
    assert!(told.contains("no lesson \"quantum\"") && told.contains("lost-packet"), "{told}");
}

#[test]
fn a_lesson_that_is_named_nearly_right_is_proposed_in_one_line() {
    for (name, meant) in
        [("lost", "lost-packet"), ("lost-packets", "lost-packet"), ("Rings", "ring")]
    {
        let output = roce(&["lab", name]);
        assert_eq!(output.status.code(), Some(2));
        let told = text(&output.stderr);
        assert!(told.contains(&format!("did you mean {meant}")), "{told}");
        assert_eq!(told.lines().count(), 1, "{told}");
    }
}

#[test]
fn a_lesson_is_found_by_number_and_by_name_and_has_no_colour_in_a_pipe() {
    let (by_number, by_name) = (roce(&["lab", "4"]), roce(&["lab", "lost-packet", "--step"]));
    assert!(by_number.status.success() && by_name.status.success());
    assert_eq!(by_number.stdout, by_name.stdout, "a pipe has no Enter key");
    assert!(!by_number.stdout.contains(&0x1b));
    let layers = text(&roce(&["lab", "4", "--layers", "3"]).stdout);
    assert!(layers.contains("packet 3, layer by layer") && layers.contains("BTH"), "{layers}");
}

#[test]
fn a_lesson_is_found_in_letters_of_either_case() {
    assert_eq!(roce(&["lab", "Ring"]).stdout, roce(&["lab", "12"]).stdout);
}

#[test]
fn a_new_lesson_is_written_once_and_runs_from_its_file() {
    let path = file("mine.toml", b"");
    std::fs::remove_file(&path).unwrap();
    let name = path.to_str().unwrap();
    let missing = text(&roce(&["lab", name]).stderr);
    assert!(missing.contains("--new"), "{missing}");
    assert!(roce(&["lab", "--new", name]).status.success());
    assert_eq!(std::fs::read(&path).unwrap(), roce(&["lab", "--new"]).stdout);
    let again = roce(&["lab", "--new", name]);
    assert_eq!(again.status.code(), Some(1), "it is not overwritten");
    let shown = text(&roce(&["lab", name]).stdout);
    assert!(shown.starts_with("A lost packet\n") && shown.contains("sends NAK"), "{shown}");

    let text_of = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, text_of.replace("host = \"bob\"\nname", "host = \"bab\"\nname")).unwrap();
    let output = roce(&["lab", name]);
    let told = text(&output.stderr);
    let line = 1 + text_of.lines().position(|line| line == "host = \"bob\"").unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(told.contains(&format!("mine.toml:{line}:8: ")), "{told}");
    assert!(told.contains("unknown host \"bab\"") && told.contains("       ^^^^^"), "{told}");
    std::fs::remove_file(path).unwrap();
}

#[test]
fn a_terminal_is_asked_until_the_reply_is_right_and_then_told_the_answer() {
    let command = format!("{} lab one-packet", env!("CARGO_BIN_EXE_roce"));
    let launch = Launch::new("script").args(["-qec", &command, "/dev/null"]).with_stdin();
    let mut terminal = launch.start().expect("script(1) makes a terminal");
    terminal.write_line("58\n70 bytes").unwrap();
    let shown = terminal.wait(LIMIT).unwrap().stdout;
    let place = |words: &str| shown.find(words).unwrap_or_else(|| panic!("{words}: {shown}"));
    assert!(place("No. Once more") < place("Right."), "{shown}");
    assert!(place("Right.") < place("Seventy:"), "{shown}");
}

#[test]
fn a_reader_that_goes_away_is_no_failure() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_roce"))
        .args(["lab", "one-write", "--all"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program runs");
    drop(child.stdout.take());
    let output = child.wait_with_output().expect("it ends");
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(output.stderr.is_empty(), "{}", text(&output.stderr));
}

#[test]
fn a_lesson_becomes_a_page() {
    let path = file("page.html", b"");
    let output = roce(&["lab", "ring", "--html", path.to_str().unwrap()]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let page = std::fs::read_to_string(&path).unwrap();
    assert!(page.starts_with("<!doctype html>") && page.ends_with("</html>\n"));
    std::fs::remove_file(path).unwrap();
    let refused = roce(&["lab", "ring", "--html", "/no/such/folder/page.html"]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(text(&refused.stderr).contains("cannot write /no/such/folder/page.html"));
}

#[test]
fn without_a_lesson_all_pages_are_written_beside_an_index() {
    let folder = std::env::temp_dir().join(format!("roce-lessons-all-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder can be made");
    let index = folder.join("lessons.html");
    let output = roce(&["lab", "--html", index.to_str().unwrap()]);
    assert!(output.status.success() && output.stdout.is_empty(), "{}", text(&output.stderr));
    let index = std::fs::read_to_string(index).unwrap();
    let links: Vec<_> =
        index.split("href=\"").skip(1).filter_map(|it| it.split_once('"')).collect();
    assert_eq!(links.len(), roce_lab::Lesson::all().len(), "{index}");
    for (place, (name, _)) in links.iter().enumerate() {
        let page = std::fs::read_to_string(folder.join(name)).unwrap();
        assert!(page.starts_with("<!doctype html>"), "{name}");
        let has_link =
            |to: &str, relation: &str| page.contains(&format!("<a href=\"{to}\"{relation}>"));
        assert!(has_link("lessons.html", ""), "{name}");
        let linked = |relation: &str| page.contains(relation);
        match place.checked_sub(1) {
            Some(before) => assert!(has_link(links[before].0, " rel=\"prev\""), "{name}"),
            None => assert!(!linked("rel=\"prev\""), "{name}"),
        }
        match links.get(place + 1) {
            Some((next, _)) => assert!(has_link(next, " rel=\"next\""), "{name}"),
            None => assert!(!linked("rel=\"next\""), "{name}"),
        }
    }
    std::fs::remove_dir_all(folder).unwrap();
    let nameless = roce(&["lab", "--html", "-"]);
    assert_eq!(nameless.status.code(), Some(1));
    assert!(text(&nameless.stderr).contains("need a file name"), "{}", text(&nameless.stderr));
}

#[test]
fn a_page_can_go_to_standard_output() {
    let lesson = roce(&["lab", "one-packet", "--html", "-"]);
    let capture =
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../testdata/mixed_ring.pcapng");
    let ladder = roce(&["ladder", capture.to_str().unwrap(), "-o", "-"]);
    for output in [lesson, ladder] {
        assert!(output.status.success(), "{}", text(&output.stderr));
        let page = text(&output.stdout);
        assert!(page.starts_with("<!doctype html>") && page.ends_with("</html>\n"));
    }
}

#[test]
fn layers_of_a_packet_that_the_lesson_does_not_have_are_an_error() {
    for number in ["0", "9999"] {
        let output = roce(&["lab", "one-packet", "--layers", number]);
        assert_eq!(output.status.code(), Some(1));
        let expected = format!("there is no packet {number}: the lesson has packets 1 to 2");
        assert!(text(&output.stderr).contains(&expected), "{}", text(&output.stderr));
    }
}

#[test]
fn what_is_no_capture_ends_with_two_and_what_holds_no_roce_with_zero() {
    let page = file("ladder.html", b"");
    let page = page.to_str().unwrap();
    let garbage = file("garbage", b"this is no capture");
    let output = roce(&["ladder", garbage.to_str().unwrap(), "-o", page]);
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(text(&output.stderr).lines().count(), 1, "{}", text(&output.stderr));

    let mut capture = 0xa1b2_c3d4_u32.to_le_bytes().to_vec();
    capture.extend([2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0, 0, 1, 0, 0, 0]);
    capture.extend([0, 0, 0, 0, 0, 0, 0, 0, 60, 0, 0, 0, 60, 0, 0, 0]);
    capture.extend([0; 60]);
    let empty = file("empty.pcap", &capture);
    let output = roce(&["ladder", empty.to_str().unwrap(), "-o", page]);
    assert_eq!(output.status.code(), Some(0));
    assert!(text(&output.stdout).contains("no RoCE packet"), "{}", text(&output.stdout));

    let missing = roce(&["ladder", "/no/such/capture", "-o", page]);
    assert_eq!(missing.status.code(), Some(1));
    for path in [garbage, empty, page.into()] {
        std::fs::remove_file(path).unwrap();
    }
}

#[test]
fn a_ladder_reads_standard_input() {
    let page = file("stdin.html", b"");
    let launch = Launch::new(env!("CARGO_BIN_EXE_roce")).args(["ladder", "-", "-o"]);
    let mut ladder = launch.arg(&page).with_stdin().start().expect("the program runs");
    ladder.write_line("oh, nothing").unwrap();
    assert_eq!(ladder.wait(LIMIT).unwrap().status.code(), Some(2));
    std::fs::remove_file(page).unwrap();
}
