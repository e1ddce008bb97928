//! Writes the packets of a device to a pcapng file.

mod capture_file;

use std::{io, time::SystemTime};

pub use self::capture_file::CaptureFile;
use crate::{
    SegmentChecksum, Segmenter,
    device::{Direction, FrameDevice, RxFrame, TxFrame, forward},
};

/// A device around a device that records the packets of both directions as they would be on a wire:
/// trains are segmented and checksums completed.
///
/// Frames to send are recorded when they are written to their slot, before the kernel takes them. A
/// write error ends the recording, not the traffic; [`CaptureFile::flush`] returns it.
///
/// ```
/// use roce_io::{CaptureFile, FrameDevice, MemoryConfig, PcapWriter, TxFrame, memory_pair};
///
/// let (device, _peer) = memory_pair(&MemoryConfig::default());
/// let file = CaptureFile::new(Vec::new())?; // or CaptureFile::create("trace.pcapng")?
/// let mut device = PcapWriter::new(device, &file, "eth0")?;
/// let mut frames = 2;
/// device.transmit(&mut |_slot| {
///     frames -= 1;
///     (frames > 0).then_some(TxFrame::single(60))
/// })?;
/// file.flush()?;
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct PcapWriter<D> {
    inner: D,
    recorder: Recorder,
}

impl<D: FrameDevice> PcapWriter<D> {
    /// Wraps `inner`; its packets are recorded under the name `interface`.
    ///
    /// # Errors
    /// The file's first write error.
    pub fn new(inner: D, file: &CaptureFile, interface: &str) -> io::Result<Self> {
        let interface = file.add_interface(interface)?;
        let recorder = Recorder { file: file.clone(), interface, segmenter: Segmenter::default() };
        Ok(Self { inner, recorder })
    }
}

#[derive(Debug)]
struct Recorder {
    file: CaptureFile,
    interface: u32,
    segmenter: Segmenter,
}

impl Recorder {
    fn record(&mut self, direction: Direction, frame: RxFrame<'_>) {
        let since_1970 =
            SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let (file, interface) = (&self.file, self.interface);
        self.segmenter.segment(frame, SegmentChecksum::Completed, &mut |packet| {
            file.record(interface, direction, since_1970, packet);
        });
    }
}

impl<D: FrameDevice> FrameDevice for PcapWriter<D> {
    fn receive(
        &mut self,
        budget: usize,
        on_frame: &mut dyn FnMut(RxFrame<'_>),
    ) -> io::Result<usize> {
        let recorder = &mut self.recorder;
        let received = self.inner.receive(budget, &mut |frame| {
            recorder.record(Direction::In, frame);
            on_frame(frame);
        })?;
        if received == 0 {
            // While idle, for readers of the file. The file keeps the error.
            let _ = recorder.file.flush();
        }
        Ok(received)
    }

    fn transmit(
        &mut self,
        fill: &mut dyn FnMut(&mut [u8]) -> Option<TxFrame>,
    ) -> io::Result<usize> {
        let recorder = &mut self.recorder;
        self.inner.transmit(&mut |slot| {
            let tx_frame = fill(slot)?;
            if let Some(frame) = RxFrame::from_tx(slot, &tx_frame) {
                recorder.record(Direction::Out, frame);
            }
            Some(tx_frame)
        })
    }

    forward!(self, self.inner; has_unsent, capabilities, wait_fds, wake_at, set_filter, set_mtu,
        counters);
}

#[cfg(test)]
mod tests {
    use roce_test_macros::tier1;
    use std::{process::Command, time::Duration};

    use pcap_file::pcapng::{
        Block, PcapNgReader,
        blocks::{
            enhanced_packet::EnhancedPacketOption,
            interface_description::InterfaceDescriptionOption,
        },
    };

    use super::*;
    use crate::{
        MemoryConfig, memory_pair,
        segmenter::tests::{ipv4_frame, verified},
    };

    const IN: u32 = 1;
    const OUT: u32 = 2;

    struct Recorded {
        interface: u32,
        direction: u32,
        timestamp: Duration,
        bytes: Vec<u8>,
    }

    /// Returns interface names and packets; checks that timestamps are in nanoseconds.
    fn read_back(bytes: &[u8]) -> (Vec<String>, Vec<Recorded>) {
        let mut reader = PcapNgReader::new(bytes).unwrap();
        let (mut names, mut packets) = (Vec::new(), Vec::new());
        while let Some(block) = reader.next_block() {
            match block.unwrap() {
                Block::InterfaceDescription(block) => {
                    assert!(block.options.contains(&InterfaceDescriptionOption::IfTsResol(9)));
                    names.extend(block.options.iter().find_map(|option| match option {
                        InterfaceDescriptionOption::IfName(name) => Some(name.to_string()),
                        _ => None,
                    }));
                }
                Block::EnhancedPacket(packet) => packets.push(Recorded {
                    interface: packet.interface_id,
                    direction: match packet.options[..] {
                        [EnhancedPacketOption::Flags(flags)] => flags,
                        _ => panic!("{:?}", packet.options),
                    },
                    timestamp: packet.timestamp,
                    bytes: packet.data.to_vec(),
                }),
                _ => {}
            }
        }
        (names, packets)
    }

    /// Sends a train of three packets and a single packet between two recorded devices.
    fn traffic(file: &CaptureFile) -> [Vec<u8>; 2] {
        let train = ipv4_frame(4791, &[9; 250]);
        let single = ipv4_frame(4791, &[8; 60]);
        let (here, there) = memory_pair(&MemoryConfig::default());
        let mut here = PcapWriter::new(here, file, "here").unwrap();
        let mut there = PcapWriter::new(there, file, "there").unwrap();
        let mut frames = [
            (train.clone(), TxFrame::train(train.len(), 42, 100)),
            (single.clone(), TxFrame::single(single.len())),
        ]
        .into_iter();
        here.transmit(&mut |slot| {
            let (frame, tx_frame) = frames.next()?;
            slot[..frame.len()].copy_from_slice(&frame);
            Some(tx_frame)
        })
        .unwrap();
        assert_eq!(there.receive(8, &mut |_| ()).unwrap(), 2);
        [train, single]
    }

    #[test]
    fn packets_of_both_directions_are_recorded_under_their_interface() {
        let written = capture_file::tests::Shared::default();
        let file = CaptureFile::new(written.clone()).unwrap();
        let before = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
        let [train, single] = traffic(&file);
        file.flush().unwrap();
        let (names, packets) = read_back(&written.bytes());
        assert_eq!(names, ["here", "there"]);
        let seen: Vec<_> =
            packets.iter().map(|p| (p.interface, p.direction, p.bytes.len())).collect();
        assert_eq!(
            seen,
            [
                (0, OUT, 142),
                (0, OUT, 142),
                (0, OUT, 92),
                (0, OUT, 102),
                (1, IN, 142),
                (1, IN, 142),
                (1, IN, 92),
                (1, IN, 102)
            ]
        );
        assert_eq!(packets[3].bytes, single);
        assert_eq!(packets[1].bytes[42..], train[142..242]);
        for packet in packets {
            verified(&packet.bytes);
            assert_ne!(packet.bytes[40..42], [0, 0], "the UDP checksum is complete");
            assert!(packet.timestamp >= before);
            assert!(packet.timestamp < before + Duration::from_secs(60));
        }
    }

    #[test]
    fn a_full_disk_ends_the_recording_but_not_the_traffic() {
        let file = CaptureFile::new(capture_file::tests::FullDisk { room: 200 }).unwrap();
        let [_, _] = traffic(&file);
        assert_eq!(file.flush().unwrap_err().kind(), io::ErrorKind::StorageFull);
        assert_eq!(file.flush().unwrap_err().kind(), io::ErrorKind::StorageFull);
    }

    #[tier1("tshark")]
    fn wireshark_finds_every_checksum_right() {
        let path = std::env::temp_dir().join(format!("roce-io-{}.pcapng", std::process::id()));
        let file = CaptureFile::create(&path).unwrap();
        traffic(&file);
        file.flush().unwrap();
        let output = Command::new("tshark")
            .args(["-o", "udp.check_checksum:TRUE", "-o", "ip.check_checksum:TRUE"])
            .args(["-T", "fields", "-e", "ip.checksum.status", "-e", "udp.checksum.status"])
            .args(["-e", "frame.interface_name", "-r"])
            .arg(&path)
            .output()
            .unwrap();
        std::fs::remove_file(&path).unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let rows: Vec<_> = text.lines().collect();
        assert_eq!(rows.len(), 8, "{text}");
        for row in rows {
            assert!(row.starts_with("1\t1\t"), "good is 1: {row}");
        }
    }
}
