//! Writes the packets of a device to a pcapng file.

mod capture_file;
mod section;

use std::{
    io,
    time::{Duration, SystemTime},
};

pub use self::capture_file::CaptureFile;
use self::capture_file::CaptureInterface;
use crate::{
    SegmentChecksum, Segmenter,
    device::{Direction, FrameDevice, RxFrame, TxFrame, forward},
};

/// A device around a device that records packets as they would be on a wire: trains are segmented and
/// checksums completed.
///
/// Frames to send are recorded when they are written to their slot, before the kernel takes them. Those
/// that meet faults of a [`FaultInjector`](crate::FaultInjector) around this device are recorded with
/// a comment: as they are sent, or what is lost. An injector that also faults what is received records
/// that, so the device in it is one [`of_sent`](PcapWriter::of_sent).
/// A write error ends the recording, not the traffic; [`CaptureFile::flush`] returns it.
///
/// ```
/// use roce_io::{CaptureFile, FrameDevice, MemoryConfig, PcapWriter, TxFrame, memory_pair};
///
/// let (device, _peer) = memory_pair(&MemoryConfig::default());
/// let file = CaptureFile::new(Vec::new())?; // or CaptureFile::create("trace.pcapng")?
/// let mut device = PcapWriter::new(device, &file, "eth0");
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
    /// Comment of the frames that are sent.
    comment: String,
    records_sent: bool,
    records_received: bool,
}

impl<D: FrameDevice> PcapWriter<D> {
    /// Wraps `inner`; its packets of both directions are recorded under the name `interface`.
    pub fn new(inner: D, file: &CaptureFile, interface: &str) -> Self {
        let interface = CaptureInterface::new(interface);
        let recorder = Recorder { file: file.clone(), interface, segmenter: Segmenter::default() };
        let comment = String::new();
        Self { inner, recorder, comment, records_sent: true, records_received: true }
    }

    /// As [`new`](Self::new), but received packets are not recorded: their senders record them, or an
    /// injector of faults around this device does.
    pub fn of_sent(inner: D, file: &CaptureFile, interface: &str) -> Self {
        Self { records_received: false, ..Self::new(inner, file, interface) }
    }

    /// As [`new`](Self::new), but of what is sent only the packets are recorded that are lost on purpose:
    /// receivers record the others.
    pub fn of_received(inner: D, file: &CaptureFile, interface: &str) -> Self {
        Self { records_sent: false, ..Self::new(inner, file, interface) }
    }
}

#[derive(Debug)]
struct Recorder {
    file: CaptureFile,
    interface: CaptureInterface,
    segmenter: Segmenter,
}

impl Recorder {
    fn record(&mut self, direction: Direction, frame: RxFrame<'_>, comment: &str) {
        let Self { file, interface, segmenter } = self;
        file.record(interface, |blocks| {
            // With the file locked, so that this process's packets are in the order of their times.
            let now = since_1970();
            segmenter.segment(frame, SegmentChecksum::Completed, &mut |packet| {
                blocks.push(direction, now, packet, comment);
            });
        });
    }
}

fn since_1970() -> Duration {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
}

impl<D: FrameDevice> FrameDevice for PcapWriter<D> {
    fn receive(
        &mut self,
        budget: usize,
        on_frame: &mut dyn FnMut(RxFrame<'_>),
    ) -> io::Result<usize> {
        if !self.records_received {
            return self.inner.receive(budget, on_frame);
        }
        let recorder = &mut self.recorder;
        self.inner.receive(budget, &mut |frame| {
            recorder.record(Direction::In, frame, "");
            on_frame(frame);
        })
    }

    fn transmit(
        &mut self,
        fill: &mut dyn FnMut(&mut [u8]) -> Option<TxFrame>,
    ) -> io::Result<usize> {
        if !self.records_sent {
            return self.inner.transmit(fill);
        }
        let (recorder, comment) = (&mut self.recorder, &self.comment);
        self.inner.transmit(&mut |slot| {
            let tx_frame = fill(slot)?;
            if let Some(frame) = RxFrame::from_tx(slot, &tx_frame) {
                recorder.record(Direction::Out, frame, comment);
            }
            Some(tx_frame)
        })
    }

    fn record(&mut self, direction: Direction, packet: &[u8], comment: &str) {
        self.recorder.record(direction, RxFrame::packet(packet), comment);
    }

    fn set_comment(&mut self, comment: &str) {
        self.comment.clear();
        self.comment.push_str(comment);
    }

    forward!(self, self.inner; has_unsent, capabilities, wait_fds, wake_at, set_filter, set_mtu,
        set_addresses,
        counters);
}

#[cfg(test)]
pub(crate) mod tests {
    use roce_test_macros::tier1;
    use std::{os::unix::fs::FileExt, process::Command, time::Duration};

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

    pub(crate) use super::capture_file::tests::Shared;

    pub(crate) const IN: u32 = 1;
    pub(crate) const OUT: u32 = 2;

    pub(crate) struct Recorded {
        interface: u32,
        pub(crate) direction: u32,
        timestamp: Duration,
        pub(crate) comment: String,
        pub(crate) bytes: Vec<u8>,
    }

    /// Returns interface names and packets; checks that timestamps are in nanoseconds.
    pub(crate) fn read_back(bytes: &[u8]) -> (Vec<String>, Vec<Recorded>) {
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
                        [EnhancedPacketOption::Flags(flags), ..] => flags,
                        _ => panic!("{:?}", packet.options),
                    },
                    timestamp: packet.timestamp,
                    comment: match packet.options[1..] {
                        [EnhancedPacketOption::Comment(ref comment), ..] => comment.to_string(),
                        _ => String::new(),
                    },
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
        let mut here = PcapWriter::new(here, file, "here");
        let mut there = PcapWriter::new(there, file, "there");
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
        let written = Shared::default();
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

    /// A file of this name, removed when dropped.
    struct Temporary(std::path::PathBuf);

    impl Temporary {
        fn new(name: &str) -> Self {
            let name = format!("roce-io-{name}-{}.pcapng", std::process::id());
            Self(std::env::temp_dir().join(name))
        }
    }

    impl Drop for Temporary {
        fn drop(&mut self) {
            let _ = std::fs::remove_file(&self.0);
        }
    }

    fn send(device: &mut impl FrameDevice, len: usize) {
        let mut frame = Some(TxFrame::single(len));
        device
            .transmit(&mut |slot| {
                slot[..len].fill(len as u8);
                frame.take()
            })
            .unwrap();
    }

    #[test]
    fn a_file_of_many_writers_has_every_packet_once_under_its_own_interface() {
        const WRITERS: usize = 8;
        const OPENS: usize = 5;
        const PACKETS: usize = 40;
        let file = Temporary::new("many");
        std::thread::scope(|scope| {
            for writer in 0..WRITERS {
                let path = &file.0;
                // A file description of its own, as another process has.
                scope.spawn(move || {
                    for open in 0..OPENS {
                        let file = CaptureFile::append(path).unwrap();
                        let (device, _peer) = memory_pair(&MemoryConfig::default());
                        let name = format!("{writer}.{open}");
                        let mut device = PcapWriter::new(device, &file, &name);
                        for packet in 0..PACKETS {
                            send(&mut device, 60 + packet);
                        }
                    }
                });
            }
        });
        let (names, packets) = read_back(&std::fs::read(&file.0).unwrap());
        assert_eq!(names.len(), WRITERS * OPENS);
        assert_eq!(packets.len(), WRITERS * OPENS * PACKETS);
        for interface in 0..names.len() as u32 {
            let of_one = packets.iter().filter(|packet| packet.interface == interface);
            let lens: Vec<_> = of_one.map(|packet| packet.bytes.len()).collect();
            assert_eq!(lens, (60..60 + PACKETS).collect::<Vec<_>>(), "interface {interface}");
        }
    }

    #[test]
    fn a_packet_is_in_the_file_before_the_device_has_sent_it() {
        let file = Temporary::new("early");
        let (device, _peer) = memory_pair(&MemoryConfig::default());
        let capture = CaptureFile::create(&file.0).unwrap();
        let mut device = PcapWriter::new(device, &capture, "eth0");
        let mut lens = [60, 61, 62].into_iter();
        let mut seen = Vec::new();
        device
            .transmit(&mut |_| {
                seen.push(read_back(&std::fs::read(&file.0).unwrap()).1.len());
                lens.next().map(TxFrame::single)
            })
            .unwrap();
        assert_eq!(seen, [0, 1, 2, 3]);
    }

    #[test]
    fn a_writer_that_ended_while_it_added_an_interface_shifts_no_other() {
        let file = Temporary::new("ended");
        let before = || CaptureFile::append(&file.0).unwrap();
        let record = |name: &str| {
            let (device, _peer) = memory_pair(&MemoryConfig::default());
            send(&mut PcapWriter::new(device, &before(), name), 60);
        };
        record("first");
        let header = std::fs::read(&file.0).unwrap()[..96].to_vec();
        record("second");
        // As if the second had been killed before it noted its interface.
        let whole = std::fs::read(&file.0).unwrap();
        std::fs::write(&file.0, [&header, &whole[96..]].concat()).unwrap();
        record("third");
        let (names, packets) = read_back(&std::fs::read(&file.0).unwrap());
        assert_eq!(names, ["first", "second", "third"]);
        assert_eq!(packets.iter().map(|packet| packet.interface).collect::<Vec<_>>(), [0, 1, 2]);
    }

    #[test]
    fn what_was_counted_may_leave_the_disk_before_another_interface_is_added() {
        let file = Temporary::new("counted");
        let capture = CaptureFile::append(&file.0).unwrap();
        let record = |name: &str| {
            let added = CaptureFile::append(&file.0).unwrap();
            let (device, _peer) = memory_pair(&MemoryConfig::default());
            let mut device = PcapWriter::new(device, &added, name);
            (0..100).for_each(|_| send(&mut device, 60));
            added.flush().unwrap();
        };
        record("first");
        record("second");
        let before = std::fs::read(&file.0).unwrap();
        assert_eq!(capture.count_interfaces().unwrap(), before.len() as u64);
        assert!(before.len() > 4096);
        let hole = vec![0; before.len() - 4096];
        let writer = std::fs::File::options().write(true).open(&file.0).unwrap();
        writer.write_all_at(&hole, 4096).unwrap();
        record("third");
        let after = std::fs::read(&file.0).unwrap();
        let (names, packets) = read_back(&[&before, &after[before.len()..]].concat());
        assert_eq!(names, ["first", "second", "third"]);
        assert_eq!(packets.last().unwrap().interface, 2);
    }

    #[test]
    fn a_file_of_something_else_is_refused_and_stays_as_it_is() {
        for text in ["short", &"long".repeat(100)] {
            let file = Temporary::new("foreign");
            std::fs::write(&file.0, text).unwrap();
            let error = CaptureFile::append(&file.0).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidData);
            assert_eq!(std::fs::read_to_string(&file.0).unwrap(), *text);
        }
    }

    #[test]
    fn a_packet_that_is_lost_on_purpose_is_recorded_with_the_reason() {
        let written = Shared::default();
        let file = CaptureFile::new(written.clone()).unwrap();
        let (device, _peer) = memory_pair(&MemoryConfig::default());
        let mut device: Box<dyn FrameDevice> = Box::new(PcapWriter::new(device, &file, "eth0"));
        device.record(Direction::Out, &ipv4_frame(4791, &[9; 50]), "lost: fault 1");
        let (_, packets) = read_back(&written.bytes());
        let seen: Vec<_> = packets.iter().map(|it| (it.direction, it.comment.as_str())).collect();
        assert_eq!(seen, [(OUT, "lost: fault 1")]);
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
