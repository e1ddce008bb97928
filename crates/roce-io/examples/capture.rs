//! Sends packets through a device in memory that loses one of them, and records what leaves.
//!
//! `cargo run -p roce-io --example capture -- capture.pcapng` keeps the capture, for Wireshark or `roce dissect`.

use std::error::Error;

use roce_faults::FaultRule;
use roce_io::{
    CaptureFile, FaultConfig, FaultInjector, FrameDevice, MemoryConfig, PcapWriter, TxFrame,
    memory_pair,
};
use roce_wire::{Bth, Frame, Headers, OuterHeaders, Psn, Qpn, Sealer, UdpChecksum, opcode};

const PACKETS: u32 = 5;

fn main() -> Result<(), Box<dyn Error>> {
    let outer = OuterHeaders::new([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
    let sealer = Sealer::new(&outer)?;
    let (here, mut there) = memory_pair(&MemoryConfig::default());
    let file = match std::env::args().nth(1) {
        Some(path) => CaptureFile::create(path)?,
        None => CaptureFile::new(Vec::new())?,
    };
    let script = vec![FaultRule::parse("drop sent packet 3")?];
    let recorded = PcapWriter::new(here, &file, "eth0");
    let config = FaultConfig { script, ..FaultConfig::default() };
    let mut device = FaultInjector::new(recorded, &config);

    let mut psns = (0..PACKETS).map(Psn::wrapping);
    let mut failed = None;
    while psns.len() > 0 {
        device.transmit(&mut |slot| {
            let bth = Bth::new(opcode::RC_SEND_ONLY, Qpn::GSI, psns.next()?);
            let len = Headers::new(bth).emit_around(&mut slot[outer.len()..], 0);
            let frame = &mut slot[..outer.len() + len];
            failed = sealer.seal(outer.source_port, 0, frame, len, UdpChecksum::Zero).err();
            Some(TxFrame::single(frame.len()))
        })?;
    }
    assert_eq!(failed, None);
    file.flush()?;

    let mut arrived = Vec::new();
    there.receive(PACKETS as usize, &mut |frame| {
        let psn = Frame::parse(frame.bytes).and_then(|it| Ok(it.packet()?.headers().bth.psn));
        arrived.extend(psn);
    })?;
    println!("arrived: {arrived:?}");
    assert_eq!(arrived, [0, 1, 3, 4].map(Psn::wrapping));
    Ok(())
}
