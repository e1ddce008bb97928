//! Writes down the RoCE packets that pass an interface.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

use pcap_file::DataLink;
use pcap_file::pcapng::blocks::interface_description::{
    InterfaceDescriptionBlock, InterfaceDescriptionOption,
};
use pcap_file::pcapng::{Block, PcapNgReader, PcapNgWriter};
use roce_netns::Host;

use crate::Error;

/// A running dumpcap.
pub(crate) struct Recorder {
    dumpcap: Child,
    /// What it records, as it comes.
    stdout: ChildStdout,
}

impl Recorder {
    /// Starts recording; returns once every packet from now on is seen.
    pub(crate) fn start(host: &Host, ifname: &str) -> Result<Self, Error> {
        let mut command = Command::new("dumpcap");
        let filter = "udp port 4791 or icmp";
        // It ends by itself if it is not ended before.
        command.args(["-q", "-i", ifname, "-f", filter, "-a", "duration:120", "-w", "-"]);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let started = host.spawn(command);
        let mut dumpcap = started.map_err(|error| format!("start dumpcap: {error}"))?;
        let mut stderr = BufReader::new(dumpcap.stderr.take().expect("it was asked for"));
        let stdout = dumpcap.stdout.take().expect("it was asked for");
        let recorder = Self { dumpcap, stdout };
        let mut said = String::new();
        // It names the file once the interface is open and the filter set.
        while !said.contains("File: ") {
            if stderr.read_line(&mut said)? == 0 {
                return Err(format!("dumpcap ended: {said}").into());
            }
        }
        Ok(recorder)
    }

    /// Writes what passed up to the next ICMP packet, which has passed or will soon, to `path`,
    /// without dumpcap's remarks about its machine; returns how many packets there are.
    pub(crate) fn finish_at_icmp(mut self, path: &Path) -> Result<usize, Error> {
        let mut reader = PcapNgReader::new(&mut self.stdout)?;
        let mut writer = PcapNgWriter::new(File::create(path)?)?;
        writer.write_pcapng_block(InterfaceDescriptionBlock {
            linktype: DataLink::ETHERNET,
            snaplen: 262_144,
            options: vec![InterfaceDescriptionOption::IfTsResol(9)],
        })?;
        let mut packets = 0;
        while let Some(block) = reader.next_block() {
            if let Block::EnhancedPacket(mut packet) = block? {
                // Ethernet, and the protocol of IPv4.
                if packet.data.get(12..14) == Some(&[8, 0]) && packet.data.get(23) == Some(&1) {
                    return Ok(packets);
                }
                packet.options.clear();
                writer.write_pcapng_block(packet)?;
                packets += 1;
            }
        }
        Err("dumpcap ended before the ping that ends a recording".into())
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        let _ = self.dumpcap.kill(); // it may have ended
        let _ = self.dumpcap.wait();
    }
}
