//! `ROCE_PCAP=dir` makes any test write what its nodes sent and received.

use std::fs::File;
use std::io::BufWriter;
use std::path::PathBuf;
use std::time::Duration;

use pcap_file::DataLink;
use pcap_file::pcapng::PcapNgWriter;
use pcap_file::pcapng::blocks::enhanced_packet::EnhancedPacketBlock;
use pcap_file::pcapng::blocks::interface_description::{
    InterfaceDescriptionBlock, InterfaceDescriptionOption,
};

use roce_simnet::Tapped;
use roce_wire::{BTH_LEN, Frame, ICRC_LEN, OuterHeaders};

use super::world::seal_one;

/// One pcapng file with an interface per node.
///
/// Named after the test; a test that makes many worlds one after the other overwrites it, so
/// that after a failure it holds the world that failed.
pub(crate) struct Capture {
    writer: PcapNgWriter<BufWriter<File>>,
}

impl Capture {
    /// `None` unless `ROCE_PCAP` names a directory.
    pub(crate) fn from_environment(nodes: usize) -> Option<Self> {
        let directory = PathBuf::from(std::env::var_os("ROCE_PCAP")?);
        let test = std::thread::current().name().unwrap_or("world").replace("::", "-");
        std::fs::create_dir_all(&directory).expect("ROCE_PCAP must name a directory");
        Some(Self::create(directory.join(format!("{test}.pcapng")), nodes))
    }

    pub(crate) fn create(path: PathBuf, nodes: usize) -> Self {
        let file = File::create(&path)
            .unwrap_or_else(|why| panic!("cannot write the capture {}: {why}", path.display()));
        let mut writer = PcapNgWriter::new(BufWriter::new(file)).expect("a header can be written");
        for node in 0..nodes {
            let options = vec![
                InterfaceDescriptionOption::IfName(format!("node{node}").into()),
                InterfaceDescriptionOption::IfTsResol(9),
            ];
            let block =
                InterfaceDescriptionBlock { linktype: DataLink::ETHERNET, snaplen: 0, options };
            writer.write_pcapng_block(block).expect("a capture can be written");
        }
        Self { writer }
    }

    /// Notes a frame that a world shows.
    pub(crate) fn record_tapped(&mut self, tapped: Tapped<'_>) {
        let Tapped { at, host, frame, segment_len } = tapped;
        match segment_len {
            Some(len) => self.record_train(host, at.as_nanos(), frame, len),
            None => self.record(host, at.as_nanos(), frame),
        }
    }

    /// Notes a train as the packets that it is on a wire: cut as the kernel cuts it.
    fn record_train(&mut self, node: usize, nanos: u64, bytes: &[u8], segment_len: usize) {
        let Ok(frame) = Frame::parse(bytes) else { return self.record(node, nanos, bytes) };
        let mut outer = OuterHeaders::new(frame.source(), frame.destination());
        outer.source_mac = frame.source_mac();
        outer.destination_mac = frame.destination_mac();
        outer.source_port = frame.source_port();
        let first = frame.identification().unwrap_or(0);
        for (i, segment) in frame.payload().chunks(segment_len).enumerate() {
            if segment.len() < BTH_LEN + ICRC_LEN {
                return self.record(node, nanos, bytes); // whatever it is, it is no train
            }
            let (packet, icrc) = segment.split_at(segment.len() - ICRC_LEN);
            let mut single = seal_one(&outer, first.wrapping_add(i as u16), packet);
            // Right or wrong, as it came.
            let end = single.len() - icrc.len();
            single[end..].copy_from_slice(icrc);
            self.record(node, nanos, &single);
        }
    }

    /// Notes a frame on `node`'s interface, `nanos` after the start.
    pub(crate) fn record(&mut self, node: usize, nanos: u64, frame: &[u8]) {
        let block = EnhancedPacketBlock {
            interface_id: node as u32,
            timestamp: Duration::from_nanos(nanos),
            original_len: frame.len() as u32,
            data: frame.into(),
            options: vec![],
        };
        self.writer.write_pcapng_block(block).expect("a capture can be written");
    }
}
