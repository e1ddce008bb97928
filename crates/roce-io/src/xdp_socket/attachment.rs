//! The XDP program on an interface, and the maps by which this process changes what it takes.

use std::{
    collections::BTreeSet,
    io,
    net::IpAddr,
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
};

use super::program::{Maps, Target, program};
use crate::{
    Filter, QpnBlocks,
    process::Own,
    sys::bpf::{self, Map, MapKind},
};

/// A program on an interface. It goes when this value is dropped, or with the process.
#[derive(Debug)]
pub(super) struct Attachment {
    /// Dropped first: without it no frame reaches the maps.
    #[cfg_attr(not(test), expect(dead_code, reason = "it is held"))]
    link: Own<OwnedFd>,
    is_native: bool,
    port: u16,
    sockets: Map,
    blocks: Map,
    addresses: Map,
    own_blocks: BTreeSet<u16>,
    own_addresses: BTreeSet<[u8; 16]>,
}

/// Most addresses of an interface: frames to others take the way through the kernel.
const MAX_ADDRESSES: u32 = 1024;
/// Blocks of 4096 queue pair numbers.
const BLOCKS: u16 = 0x1000;

impl Attachment {
    /// Attaches a program that takes no frame so far.
    pub(super) fn new(
        interface: u32,
        target: &Target,
        queues: u32,
    ) -> Result<Self, (&'static str, io::Error)> {
        let at = |step| move |error| (step, error);
        let sockets = Map::new("roce_sockets", MapKind::Sockets, (4, 4), queues)
            .map_err(at("making a map of sockets"))?;
        let blocks = Map::new("roce_blocks", MapKind::Array, (4, 4), BLOCKS.into())
            .map_err(at("making a map of queue pair numbers"))?;
        let addresses = Map::new("roce_addresses", MapKind::Hash, (16, 4), MAX_ADDRESSES)
            .map_err(at("making a map of addresses"))?;
        let maps = Maps {
            sockets: sockets.raw_fd(),
            blocks: blocks.raw_fd(),
            addresses: addresses.raw_fd(),
        };
        let code = program(target, &maps);
        let program = match bpf::load_xdp_program(NAME, &code, true) {
            // Kernels before 5.18 have no frames in several buffers.
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
                bpf::load_xdp_program(NAME, &code, false)
            }
            loaded => loaded,
        };
        let program = program.map_err(at("loading the XDP program"))?;
        let (link, is_native) = match bpf::link_xdp(program.as_fd(), interface, bpf::NATIVE) {
            Ok(link) => (link, true),
            Err(error) if is_taken(&error) => return Err(("attaching the XDP program", error)),
            Err(_) => {
                let link = bpf::link_xdp(program.as_fd(), interface, bpf::GENERIC);
                (link.map_err(at("attaching the XDP program"))?, false)
            }
        };
        Ok(Self {
            link,
            is_native,
            port: target.port,
            sockets,
            blocks,
            addresses,
            own_blocks: BTreeSet::new(),
            own_addresses: BTreeSet::new(),
        })
    }

    /// Returns true if the driver runs the program.
    pub(super) fn is_native(&self) -> bool {
        self.is_native
    }

    /// Returns what the kernel has of this.
    #[cfg(test)]
    pub(super) fn objects(&self) -> io::Result<Vec<(bpf::ObjectKind, u32)>> {
        use bpf::ObjectKind::{Link, Map, Program};
        let (link, program) = bpf::id_of(self.link.as_fd())?;
        let mut all = vec![(Link, link), (Program, program)];
        for map in [&self.sockets, &self.blocks, &self.addresses] {
            all.push((Map, map.id()?));
        }
        Ok(all)
    }

    /// Gives the frames of a receive queue to a socket.
    pub(super) fn set_socket(&self, queue: u32, socket: BorrowedFd<'_>) -> io::Result<()> {
        self.sockets.set(&queue.to_ne_bytes(), &socket.as_raw_fd().to_ne_bytes())
    }

    /// Changes which queue pairs are ours. After an error some of the change is made; the rest of the frames
    /// take the way through the kernel.
    pub(super) fn set_filter(&mut self, filter: &Filter) -> io::Result<()> {
        let next: BTreeSet<u16> = match &filter.qpn_blocks {
            // The program has the number of its port in it.
            _ if filter.udp_port != self.port => BTreeSet::new(),
            QpnBlocks::Any => (0..BLOCKS).collect(),
            QpnBlocks::Only(blocks) => {
                blocks.iter().copied().filter(|block| *block < BLOCKS).collect()
            }
        };
        let changed: Vec<_> = self.own_blocks.symmetric_difference(&next).copied().collect();
        for block in changed {
            let is_ours = next.contains(&block);
            self.blocks.set(&u32::from(block).to_ne_bytes(), &u32::from(is_ours).to_ne_bytes())?;
            if is_ours {
                self.own_blocks.insert(block);
            } else {
                self.own_blocks.remove(&block);
            }
        }
        Ok(())
    }

    /// Changes which addresses are ours. Frames to an address that the map has no room for take the way
    /// through the kernel.
    pub(super) fn set_addresses(&mut self, addresses: &[IpAddr]) {
        let next: BTreeSet<[u8; 16]> = addresses.iter().map(|address| key_of(*address)).collect();
        let gone: Vec<_> = self.own_addresses.difference(&next).copied().collect();
        for key in gone {
            if self.addresses.remove(&key).is_ok() {
                self.own_addresses.remove(&key);
            }
        }
        let new: Vec<_> = next.difference(&self.own_addresses).copied().collect();
        for key in new {
            if self.addresses.set(&key, &1_u32.to_ne_bytes()).is_ok() {
                self.own_addresses.insert(key);
            }
        }
    }
}

/// Returns true if the interface has a program of another process, or another kind of program.
pub(super) fn is_taken(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EBUSY | libc::EEXIST))
}

/// Returns an address as the program looks it up.
fn key_of(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    }
}

/// The name of the program, as tools show it.
const NAME: &str = "roce_xdp";

#[cfg(test)]
mod tests {
    use roce_netns::is_in_user_namespace;
    use roce_test_macros::tier1;

    use super::*;
    use crate::segmenter::tests::{ipv4_frame, ipv6_frame};
    use crate::xdp_socket::program::Verdict;

    const MAC: [u8; 6] = [2, 0xf0, 0, 0, 0xfe, 0x99];

    /// Maps and a program on no interface, run by the kernel's machine.
    struct Machine {
        program: Own<OwnedFd>,
        maps: [Map; 3],
    }

    impl Machine {
        fn new() -> Self {
            let sockets = Map::new("sockets", MapKind::Sockets, (4, 4), 1).unwrap();
            let blocks = Map::new("blocks", MapKind::Array, (4, 4), 0x1000).unwrap();
            let addresses = Map::new("addresses", MapKind::Hash, (16, 4), 4).unwrap();
            let target = Target { mac: MAC, port: 4791, without_socket: Verdict::Transmit };
            let maps = Maps {
                sockets: sockets.raw_fd(),
                blocks: blocks.raw_fd(),
                addresses: addresses.raw_fd(),
            };
            let program = bpf::load_xdp_program("test", &program(&target, &maps), true).unwrap();
            Self { program, maps: [sockets, blocks, addresses] }
        }

        fn add(&self, block: u32, frame: &[u8]) {
            let [_, blocks, addresses] = &self.maps;
            blocks.set(&block.to_ne_bytes(), &1_u32.to_ne_bytes()).unwrap();
            addresses.set(&key_of(destination(frame)), &1_u32.to_ne_bytes()).unwrap();
        }

        fn takes(&self, frame: &[u8]) -> bool {
            match bpf::run(self.program.as_fd(), frame).unwrap() {
                2 => false,
                3 => true,
                other => panic!("verdict {other}"),
            }
        }
    }

    fn destination(frame: &[u8]) -> IpAddr {
        match frame[12] {
            0x08 => <[u8; 4]>::try_from(&frame[30..34]).unwrap().into(),
            _ => <[u8; 16]>::try_from(&frame[38..54]).unwrap().into(),
        }
    }

    fn bth(qpn: u32) -> [u8; 16] {
        let mut bytes = [0xff; 16];
        bytes[5..8].copy_from_slice(&qpn.to_be_bytes()[1..]);
        bytes
    }

    fn to_us(mut frame: Vec<u8>) -> Vec<u8> {
        frame[..6].copy_from_slice(&MAC);
        frame
    }

    fn frames(port: u16, qpn: u32) -> [Vec<u8>; 2] {
        [to_us(ipv4_frame(port, &bth(qpn))), to_us(ipv6_frame(port, &bth(qpn)))]
    }

    /// None in a user namespace, which may not load programs.
    fn machine() -> Option<Machine> {
        if is_in_user_namespace() {
            return None;
        }
        let machine = Machine::new();
        for frame in frames(4791, 0) {
            machine.add(0x123, &frame);
        }
        Some(machine)
    }

    fn tagged(frame: &[u8], tag: [u8; 4]) -> Vec<u8> {
        [&frame[..12], &tag, &frame[12..]].concat()
    }

    #[tier1]
    fn frames_to_our_queue_pairs_are_taken_untagged_and_with_a_priority_tag() {
        let Some(machine) = machine() else { return };
        for qpn in [0x12_3000, 0x12_3456, 0x12_3fff] {
            for frame in frames(4791, qpn) {
                assert!(machine.takes(&frame));
                assert!(machine.takes(&tagged(&frame, [0x81, 0, 0xe0, 0])));
            }
        }
    }

    #[tier1]
    fn frames_of_others_pass_on() {
        let Some(machine) = machine() else { return };
        for qpn in [0x12_2fff, 0x12_4000, 0, 2, 0xff_fffe, 0x23_4567] {
            for frame in frames(4791, qpn) {
                assert!(!machine.takes(&frame), "{qpn:#x}");
            }
        }
        for port in [4790, 4792, 53, 0xb712] {
            for frame in frames(port, 0x12_3456) {
                assert!(!machine.takes(&frame), "{port}");
            }
        }
        for frame in frames(4791, 0x12_3456) {
            let changed = |at: usize| {
                let mut frame = frame.clone();
                frame[at] ^= 1;
                machine.takes(&frame)
            };
            let address_at = if frame[12] == 8 { 30..34 } else { 38..54 };
            for at in (0..6).chain(12..14).chain(address_at) {
                assert!(!changed(at), "byte {at}");
            }
            for tag in [[0x81, 0, 0, 5], [0x81, 0, 0xe1, 0], [0x88, 0xa8, 0, 0]] {
                assert!(!machine.takes(&tagged(&frame, tag)), "{tag:?}");
            }
            let twice = tagged(&tagged(&frame, [0x81, 0, 0, 0]), [0x81, 0, 0, 0]);
            assert!(!machine.takes(&twice));
        }
    }

    #[tier1]
    fn management_and_groups_pass_on_whatever_blocks_are_ours() {
        let Some(machine) = machine() else { return };
        for (block, qpn) in [(0, 1), (0xfff, 0xff_ffff)] {
            for frame in frames(4791, qpn) {
                machine.add(block, &frame);
                assert!(!machine.takes(&frame), "{qpn:#x}");
            }
            for frame in frames(4791, qpn ^ 2) {
                assert!(machine.takes(&frame), "its neighbour is taken");
            }
        }
    }

    #[tier1]
    fn options_fragments_and_other_protocols_pass_on() {
        let Some(machine) = machine() else { return };
        let [ipv4, ipv6] = frames(4791, 0x12_3456);
        let changed = |frame: &[u8], at: usize, value: u8| {
            let mut frame = frame.to_vec();
            frame[at] = value;
            machine.takes(&frame)
        };
        assert!(changed(&ipv4, 20, 0x40), "do not fragment is no fragment");
        assert!(!changed(&ipv4, 14, 0x46), "options");
        assert!(!changed(&ipv4, 20, 0x20), "more fragments follow");
        assert!(!changed(&ipv4, 21, 0x01), "a later fragment");
        assert!(!changed(&ipv4, 23, 6), "TCP");
        assert!(!changed(&ipv6, 20, 44), "a fragment of IPv6");
    }

    #[tier1]
    fn a_frame_that_ends_early_passes_on() {
        let Some(machine) = machine() else { return };
        for frame in frames(4791, 0x12_3456) {
            let needed = frame.len() - 8;
            // The kernel's test needs an Ethernet header at least.
            for len in 14..frame.len() {
                assert_eq!(machine.takes(&frame[..len]), len >= needed, "{len}");
            }
        }
    }
}
