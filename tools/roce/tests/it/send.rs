//! `roce send`: what is sent, and what is said of it.

use std::error::Error;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use roce_dissect::{Dissector, NamedField, Options, PacketFields, RawFrame};
use roce_io::{
    AfPacket, AfPacketConfig, FrameDevice, PortReservation, PortReservationConfig, TxFrame,
};
use roce_netns::{Host, Link, VirtualNetwork};
use roce_test_macros::tier1;

type Outcome<T = ()> = Result<T, Box<dyn Error>>;

/// Two hosts on a cable. The second receives, by a socket that was there before anything is sent.
struct Network {
    sender: Host,
    receiver: AfPacket,
    _quiet: PortReservation,
}

impl Network {
    fn new() -> Outcome<Self> {
        let network = VirtualNetwork::new()?;
        let (sender, host) = (network.host("sender")?, network.host("receiver")?);
        network.veth((&sender, "eth0"), (&host, "eth0"), Link { mtu: 1500 })?;
        sender.address("eth0", format!("{SENDER}/24").parse()?)?;
        host.address("eth0", format!("{RECEIVER}/24").parse()?)?;
        let receiver = host.run(|| AfPacket::open(&AfPacketConfig::new("eth0")))?;
        let quiet = host.run(|| PortReservation::bind(&PortReservationConfig::default()))?;
        Ok(Self { sender, receiver, _quiet: quiet })
    }

    fn send(&self, arguments: &[&str]) -> Outcome<Output> {
        let mut command = roce_send(arguments);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        Ok(self.sender.spawn(command)?.wait_with_output()?)
    }

    /// Returns the fields of the packets that have come, a line for each.
    fn received(&mut self, fields: &[&str]) -> Outcome<Vec<String>> {
        let mut lines = Vec::new();
        self.receiver.receive(10_000, &mut |frame| lines.push(texts(frame.bytes, fields)))?;
        Ok(lines)
    }
}

fn texts(bytes: &[u8], fields: &[&str]) -> String {
    let mut line = String::new();
    Dissector::new(Options::default()).handle_frame(RawFrame::ethernet(1, bytes), |packet| {
        let all = PacketFields::new(packet);
        let text = |name: &&str| all.text_of(NamedField::find(name).expect("a field")).join(",");
        line = fields.iter().map(text).collect::<Vec<_>>().join(" ");
    });
    line
}

fn roce_send(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_roce"));
    command.arg("send").args(arguments);
    command
}

fn testdata(name: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata").join(name).display().to_string()
}

fn printed(output: &Output) -> String {
    let [out, err] = [&output.stdout, &output.stderr].map(|it| String::from_utf8_lossy(it));
    format!("{out}{err}")
}

#[tier1]
fn packets_arrive_with_the_fields_that_were_set_and_at_their_rate() -> Outcome {
    let mut network = Network::new()?;
    let start = std::time::Instant::now();
    let output = network.send(&[
        RECEIVER,
        "-o",
        "rc_write_only",
        "-s",
        "qp=0x12",
        "-s",
        "psn=0xfffffe",
        "-s",
        "psn+=1",
        "-s",
        "reth.key=0xbeef",
        "-s",
        "reth.length=5",
        "-p",
        "5",
        "-c",
        "4",
        "-r",
        "20",
        "-W",
        "1ms",
    ])?;
    let text = printed(&output);
    assert!(output.status.success(), "{text}");
    assert!(start.elapsed() >= Duration::from_millis(150), "4 packets at 20 per second");
    assert!(text.ends_with("4 packets sent, 0 received\n"), "{text}");
    let rate = text.lines().find_map(|line| line.strip_prefix("  4 packets in "));
    let rate =
        rate.and_then(|line| line.rsplit_once(", ")?.1.split_once(' ')?.0.parse::<u32>().ok());
    assert!(rate.is_some_and(|rate| (1..=20).contains(&rate)), "{text}");
    let fields = ["qp", "psn", "reth.key", "payload_length", "icrc.verdict", "ipv4.source"];
    let psns = [0xff_fffe, 0xff_ffff, 0, 1];
    let expected = psns.map(|psn| format!("18 {psn} 48879 5 right {SENDER}"));
    assert_eq!(network.received(&fields)?, expected);
    Ok(())
}

#[tier1]
fn a_wrong_icrc_arrives_wrong() -> Outcome {
    let mut network = Network::new()?;
    let arguments =
        [RECEIVER, "-o", "0x11", "-s", "aeth.syndrome=0x63", "--wrong-icrc", "-W", "1ms"];
    let output = network.send(&arguments)?;
    assert!(output.status.success(), "{}", printed(&output));
    let is = network.received(&["opcode", "aeth.syndrome", "icrc.verdict"])?;
    assert_eq!(is, ["17 99 wrong"]);
    Ok(())
}

#[tier1]
fn a_replay_moves_one_side_of_a_connection_to_another_host() -> Outcome {
    let mut network = Network::new()?;
    let capture = testdata("rxe/cm_rping_by_rxe_v4.pcapng");
    let output = network.send(&[
        "--replay",
        &capture,
        "-Y",
        "source == 10.9.0.2",
        "--map-address",
        "10.9.0.2=10.77.0.1",
        "--map-address",
        "10.9.0.3=10.77.0.2",
        "--map-qp",
        "0x17@10.9.0.3=0x2a",
        "-r",
        "100000",
        "-W",
        "1ms",
    ])?;
    let text = printed(&output);
    assert!(output.status.success(), "{text}");
    assert!(text.contains("do not pass the filter and are left out"), "{text}");
    let is = network.received(&["source", "destination", "qp", "icrc.verdict"])?;
    let to = |qp: u32| format!("{SENDER} {RECEIVER} {qp} right");
    assert_eq!(is.len(), 9, "{is:?}");
    assert!(is.iter().all(|line| [to(1), to(0x2a)].contains(line)), "{is:?}");
    assert!(is.contains(&to(1)) && is.contains(&to(0x2a)), "{is:?}");
    let first = is.len();
    let again = network.send(&[
        "--replay",
        &capture,
        "-c",
        "2",
        "--map-address",
        "10.9.0.2=10.77.0.1",
        "--map-address",
        "10.9.0.3=10.77.0.2",
        "-Y",
        "source == 10.9.0.2",
        "-r",
        "100000",
        "-W",
        "1ms",
    ])?;
    assert!(again.status.success(), "{}", printed(&again));
    assert_eq!(network.received(&["qp"])?.len(), 2 * first, "twice");
    Ok(())
}

#[tier1]
fn expectations_see_what_comes_and_decide_the_exit_code() -> Outcome {
    let mut network = Network::new()?;
    let script = write_script(
        "answered.roce",
        "let psn = 0xffffff\n\
         send rc_send_only qp=0x12 psn=$psn payload=4\n\
         expect within 20s: aeth.kind == ack and psn == $psn\n\
         take msn = aeth.msn\n\
         send rc_send_only qp=0x12 psn=$psn+1 udp.source_port=$msn payload=4\n",
    )?;
    let mut command = roce_send(&[RECEIVER, "--script", &script]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = network.sender.spawn(command)?;
    let request = network.next_frame()?;
    let ack = answer_of(&request)?;
    network.reply(&ack)?;
    let second = network.next_frame()?;
    assert_eq!(texts(&second, &["psn", "source_port", "icrc.verdict"]), "0 291 right");
    let output = child.wait_with_output()?;
    let text = printed(&output);
    assert!(output.status.success(), "{text}");
    assert!(text.contains("msn = 0x000123") && text.contains("the expectation holds"), "{text}");

    let failing = [
        (["--expect", "aeth"], "FAILED: expect aeth: no such packet within 10.0 ms; none came"),
        (["--forbid", "aeth"], "the expectation holds"),
    ];
    for (option, told) in failing {
        let arguments = [RECEIVER, "-o", "rc_send_only", "-W", "10ms", option[0], option[1]];
        let output = network.send(&arguments)?;
        let text = printed(&output);
        assert!(text.contains(told), "{text}");
        assert_eq!(output.status.code(), Some(i32::from(option[0] == "--expect")), "{text}");
    }
    Ok(())
}

impl Network {
    /// Waits for the next frame.
    fn next_frame(&mut self) -> Outcome<Vec<u8>> {
        let deadline = std::time::Instant::now() + Duration::from_secs(20);
        let mut frame = None;
        while std::time::Instant::now() < deadline {
            self.receiver.receive(1, &mut |it| frame = Some(it.bytes.to_vec()))?;
            if let Some(frame) = frame {
                return Ok(frame);
            }
            std::thread::yield_now();
        }
        Err("no frame came".into())
    }

    fn reply(&mut self, bytes: &[u8]) -> Outcome {
        let mut once = Some(bytes);
        self.receiver.transmit(&mut |slot| {
            let bytes = once.take()?;
            slot[..bytes.len()].copy_from_slice(bytes);
            Some(TxFrame::single(bytes.len()))
        })?;
        Ok(())
    }
}

/// Returns the ACK of a request, with MSN 0x123.
fn answer_of(request: &[u8]) -> Outcome<Vec<u8>> {
    let psn = texts(request, &["psn"]);
    let outer = roce_wire::OuterHeaders::new(RECEIVER.parse()?, SENDER.parse()?);
    let opcode = roce_generator::find_opcode("rc_acknowledge")?;
    let mut ack = roce_generator::Draft::of_opcode(opcode, &[], &outer)?;
    let mac = |at: usize| Some(roce_wire::MacAddr(*request.get(at..)?.first_chunk()?));
    let macs = mac(0).zip(mac(6)).ok_or("a frame has two addresses")?;
    ack.set_macs(macs.0, macs.1);
    ack.change(&[
        format!("psn={psn}").parse()?,
        "aeth.syndrome=0x1f".parse()?,
        "aeth.msn=0x123".parse()?,
    ])?;
    ack.finish();
    Ok(ack.bytes().to_vec())
}

/// Writes a script to a file of its own.
fn write_script(name: &str, text: &str) -> Outcome<String> {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::File::create(&path)?.write_all(text.as_bytes())?;
    Ok(path.display().to_string())
}

#[test]
fn a_dry_run_shows_packets_and_writes_them_without_privileges() -> Outcome {
    let file = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("dry.pcapng");
    let name = file.display().to_string();
    let output = roce_send(&[
        "192.0.2.7",
        "-n",
        "-o",
        "rc_send_only",
        "-s",
        "source=192.0.2.1",
        "-s",
        "psn+=1",
        "-c",
        "25",
        "-w",
        &name,
    ])
    .output()?;
    let text = printed(&output);
    assert!(output.status.success(), "{text}");
    assert_eq!(text.lines().filter(|line| line.starts_with("> ")).count(), 20, "{text}");
    assert!(text.contains("… and 5 more sent"), "{text}");
    let listed = Command::new(env!("CARGO_BIN_EXE_roce"))
        .args(["dissect", &name, "-T", "fields", "-e", "source", "-e", "psn", "-e", "icrc.verdict"])
        .output()?;
    let lines = String::from_utf8(listed.stdout)?;
    let expected: String = (0..25).map(|psn| format!("192.0.2.1\t{psn}\tright\n")).collect();
    assert_eq!(lines, expected);
    Ok(())
}

#[test]
fn a_packet_of_a_capture_is_sent_with_its_changes() -> Outcome {
    let from = format!("{}:3", testdata("rxe/cm_rping_by_rxe_v4.pcapng"));
    let run = |more: &[&str]| -> Outcome<(Option<i32>, String)> {
        let output = roce_send(&[&["-n", "--from", &from], more].concat()).output()?;
        Ok((output.status.code(), printed(&output)))
    };
    let (code, text) = run(&["-s", "mad.transaction=5"])?;
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("10.9.0.2 → 10.9.0.3 qp 0x000001") && text.contains("CM RTU"), "{text}");
    let (code, text) = run(&["-s", "reth.key=5"])?;
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("UD SEND Only has no field reth.key"), "{text}");
    let (code, text) = run(&["fd00::1"])?;
    assert!(
        code == Some(1) && text.contains("fd00::1, an address of another IP version"),
        "{text}"
    );
    Ok(())
}

#[test]
fn mistakes_are_told_before_anything_is_sent() -> Outcome {
    let script = write_script(
        "mistaken.roce",
        "send rc_send_only qp=$qp\nexpect within 1s: aeth.kid == nak\n",
    )?;
    let capture = testdata("rxe/cm_rping_by_rxe_v4.pcapng");
    let beyond = format!("{capture}:99999");
    for (arguments, told) in [
        (&["--script", &script][..], "line 1: $qp has no value"),
        (&["--script", &script, "--let", "qp=5"], "line 2: no field is called"),
        (&["--script", "/nowhere.roce"], "cannot read /nowhere.roce"),
        (&["192.0.2.1"], "nothing to send"),
        (&["-o", "rc_send_only"], "a packet of an opcode needs a destination"),
        (&["--from", &beyond], "has no frame 99999"),
        (&["--replay", &capture, "-s", "psn+=1"], "a replay has different ones"),
        (&["--replay", &capture, "-Y", "qp == 0x777"], "has no packet to send"),
        (&["--replay", "/nowhere.pcap"], "/nowhere.pcap"),
    ] {
        let output = roce_send(&[&["-n"], arguments].concat()).output()?;
        let text = printed(&output);
        let is_told =
            text.contains(told) || told.contains("no field") && text.contains("aeth.kind");
        assert!(is_told && output.status.code() == Some(1), "{arguments:?}: {text}");
        assert!(!text.contains("\n> "), "{text}");
    }
    Ok(())
}

const SENDER: &str = "10.77.0.1";
const RECEIVER: &str = "10.77.0.2";
