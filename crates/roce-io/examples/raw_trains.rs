//! How fast frames go from one host to another over a veth pair, trains and single packets, by
//! ring and by `recvmmsg`, and how long a small one takes there and back between two spinning
//! threads. No ICRC, no protocol: the ceiling that the packet path leaves.
//!
//! `cargo run --release -p roce-io --example raw_trains -- [SECONDS]`, as root or anybody.

use std::{
    error::Error,
    os::fd::BorrowedFd,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use etherparse::PacketBuilder;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use roce_io::{AfPacket, AfPacketConfig, FrameDevice, GsoMode, ReceiveMode, TxFrame};
use roce_netns::{Host, Link, VirtualNetwork, enter_user_namespace_if_needed};

fn main() -> Result<(), Box<dyn Error>> {
    enter_user_namespace_if_needed()?;
    let seconds = std::env::args().nth(1).map_or(Ok(2), |text| text.parse())?;
    println!(
        "{:>5} {:>8} {:>10} {:>8} {:>10} {:>8}",
        "MTU", "trains", "receive", "Gbit/s", "packets/s", "lost"
    );
    for (mtu, segment_len, packets) in [(1500, 1040, 60), (4300, 4112, 15)] {
        let network = VirtualNetwork::new()?;
        let (from, to) = (network.host("from")?, network.host("to")?);
        network.veth((&from, "eth0"), (&to, "eth0"), Link { mtu })?;
        let ring = |slots| (format!("ring {slots}"), ReceiveMode::Ring { slots });
        let modes = [
            ring(64),
            ring(128),
            ring(256),
            ring(512),
            ("mmsg 64".into(), ReceiveMode::Mmsg { batch: 64 }),
        ];
        for (name, mode) in &modes {
            for packets in [packets, 1] {
                let figures = run(&from, &to, *mode, segment_len, packets, seconds)?;
                println!("{mtu:>5} {packets:>8} {name:>10} {figures}");
            }
        }
        for (name, mode) in [&modes[1], &modes[4]] {
            println!("{mtu:>5} {:>8} {name:>10} {}", "-", round_trips(&from, &to, *mode)?);
        }
    }
    Ok(())
}

/// The time of a 60-byte packet there and back, in microseconds.
fn round_trips(from: &Host, to: &Host, receive: ReceiveMode) -> Result<String, Box<dyn Error>> {
    const ROUNDS: usize = 20_000;
    let config = AfPacketConfig { receive, ..AfPacketConfig::new("eth0") };
    let mut near = from.run(|| AfPacket::open(&config))?;
    let mut far = to.run(|| AfPacket::open(&config))?;
    let mac = |device: &AfPacket| device.interface().mac.unwrap_or_default();
    let (ping, pong) = (frame(mac(&far), 18), frame(mac(&near), 18));
    let mut times = thread::scope(|scope| {
        scope.spawn(move || (0..ROUNDS).try_for_each(|_| bounce(&mut far, &pong, false)));
        let mut times = Vec::new();
        for _ in 0..ROUNDS {
            let start = Instant::now();
            bounce(&mut near, &ping, true)?;
            times.push(start.elapsed().as_nanos() as f64 / 1000.0);
        }
        Ok::<_, std::io::Error>(times)
    })?;
    times.sort_by(f64::total_cmp);
    let at = |part: usize| times[ROUNDS * part / 100];
    Ok(format!(
        "there and back: {:.1} µs at best, {:.1} half of all, {:.1} 99 %",
        at(0),
        at(50),
        at(99)
    ))
}

/// Sends and waits for an answer, or the other way round, spinning. Gives up after a second.
fn bounce(device: &mut AfPacket, frame: &[u8], first: bool) -> std::io::Result<()> {
    let send = |device: &mut AfPacket| {
        let mut once = Some(());
        device.transmit(&mut |slot| {
            once.take()?;
            slot[..frame.len()].copy_from_slice(frame);
            Some(TxFrame::single(frame.len()))
        })
    };
    if first {
        send(device)?;
    }
    let start = Instant::now();
    while device.receive(1, &mut |_| ())? == 0 {
        if start.elapsed() > Duration::from_secs(1) {
            return Err(std::io::ErrorKind::TimedOut.into());
        }
    }
    if !first {
        send(device)?;
    }
    Ok(())
}

fn run(
    from: &Host,
    to: &Host,
    receive: ReceiveMode,
    segment_len: usize,
    packets: usize,
    seconds: u64,
) -> Result<String, Box<dyn Error>> {
    let gso = if packets > 1 { GsoMode::On } else { GsoMode::Off };
    let config = AfPacketConfig { receive, gso, ..AfPacketConfig::new("eth0") };
    let mut sender = from.run(|| AfPacket::open(&config))?;
    let mut receiver = to.run(|| AfPacket::open(&config))?;
    let mac = receiver.interface().mac.unwrap_or_default();
    let frame = frame(mac, segment_len * packets);
    let stop = AtomicBool::new(false);
    let started = Instant::now();
    let (sent, (received, bytes)) = thread::scope(|scope| {
        let receiving = scope.spawn(|| {
            let mut sink = vec![0u8; 64 << 20];
            let (mut at, mut received, mut bytes) = (0, 0, 0);
            while !stop.load(Ordering::Relaxed) {
                let count = receiver.receive(64, &mut |frame| {
                    if at + frame.bytes.len() > sink.len() {
                        at = 0;
                    }
                    sink[at..at + frame.bytes.len()].copy_from_slice(frame.bytes);
                    at += frame.bytes.len();
                    bytes += frame.bytes.len() - 42;
                    received += 1;
                });
                if count.is_ok_and(|count| count == 0) {
                    wait(receiver.wait_fds()[0]);
                }
            }
            (received, bytes)
        });
        let mut sent = 0;
        while started.elapsed() < Duration::from_secs(seconds) {
            let mut left = 64;
            sent += sender
                .transmit(&mut |slot| {
                    left = usize::checked_sub(left, 1)?;
                    slot[..frame.len()].copy_from_slice(&frame);
                    Some(if packets > 1 {
                        TxFrame::train(frame.len(), 42, segment_len)
                    } else {
                        TxFrame::single(frame.len())
                    })
                })
                .unwrap_or(0);
        }
        stop.store(true, Ordering::Relaxed);
        (sent, receiving.join().expect("the receiver does not panic"))
    });
    let elapsed = started.elapsed().as_secs_f64();
    Ok(format!(
        "{:>8.1} {:>10.0} {:>7.2}%",
        bytes as f64 * 8e-9 / elapsed,
        (received * packets) as f64 / elapsed,
        100.0 - 100.0 * received as f64 / sent as f64,
    ))
}

fn wait(fd: BorrowedFd<'_>) {
    let _ = poll(&mut [PollFd::new(fd, PollFlags::POLLIN)], PollTimeout::from(50u8));
}

fn frame(mac: [u8; 6], payload_len: usize) -> Vec<u8> {
    let builder = PacketBuilder::ethernet2([2, 0, 0, 0, 0, 1], mac)
        .ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64)
        .udp(0xc000, roce_wire::ROCE_V2_PORT);
    let mut frame = Vec::new();
    builder.write(&mut frame, &vec![7; payload_len]).expect("it fits an IP packet");
    frame
}
