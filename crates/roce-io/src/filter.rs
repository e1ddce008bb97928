//! The packet filter, a classic BPF program.

use std::net::Ipv6Addr;

use roce_wire::{MacAddr, Qpn, ROCE_V2_PORT};
use socket2::SockFilter;

/// The frames that a device receives: UDP to one port over IPv4 (no options, no fragments) or IPv6,
/// for this host, in no VLAN (a priority tag, VLAN 0, is allowed), and to the queue pairs of this
/// process. On `lo` the destination MAC address is not checked, and the source has to be [`LO_SOURCE`].
/// Elsewhere frames of MAC control (EtherType 0x8808) pass, too: they pause the link.
///
/// ```
/// use roce_io::{Filter, QpnBlocks};
///
/// let filter = Filter { qpn_blocks: QpnBlocks::Only(vec![0x123]), ..Filter::default() };
/// assert_eq!(filter.udp_port, 4791);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Filter {
    /// Destination UDP port.
    pub udp_port: u16,
    /// Destination queue pairs.
    pub qpn_blocks: QpnBlocks,
    /// The general services queue pair, number 1, is a destination whatever `qpn_blocks` is.
    pub general_services: bool,
    /// Multicast, queue pair number 0xffffff, is a destination whatever `qpn_blocks` is.
    pub multicast: bool,
}

/// The source MAC address of frames from process to process on `lo`. The kernel has another in all frames that it
/// makes there, so that only users with packet sockets send frames like these.
pub const LO_SOURCE: MacAddr = MacAddr([2, 0, b'r', b'o', b'c', b'e']);

/// Queue pair numbers by blocks of 4 096: a block is `number >> 12`, 0..=0xfff.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum QpnBlocks {
    /// Every queue pair.
    Any,
    /// Only these blocks, in any order; numbers above 0xfff match no frame.
    Only(Vec<u16>),
}

impl Default for Filter {
    fn default() -> Self {
        let (general_services, multicast) = (false, false);
        Self { udp_port: ROCE_V2_PORT, qpn_blocks: QpnBlocks::Any, general_services, multicast }
    }
}

impl Filter {
    /// Returns the program that the kernel runs on each frame.
    pub(crate) fn program(&self, on_loopback: bool) -> Vec<SockFilter> {
        let mut program = Assembler::default();
        program.refuse_other_vlans();
        match on_loopback {
            true => program.refuse_other_sources(LO_SOURCE),
            false => program.refuse_other_hosts(),
        }
        program.refuse_other_ports(self.udp_port, on_loopback);
        match &self.qpn_blocks {
            QpnBlocks::Any => program.accept(),
            QpnBlocks::Only(blocks) => {
                program.push(ALU_AND, 0xff_ffff);
                if self.general_services {
                    program.jump(JEQ, Qpn::GSI.get(), 0, 1);
                    program.accept();
                }
                if self.multicast {
                    program.jump(JEQ, Qpn::MULTICAST.get(), 0, 1);
                    program.accept();
                }
                program.push(ALU_RSH, 12);
                for (first, last) in runs(blocks) {
                    program.accept_if_within(first, last);
                }
                program.push(RET, 0);
            }
        }
        program.0
    }
}

/// Returns a program that accepts every frame.
pub(crate) fn every_frame() -> Vec<SockFilter> {
    let mut program = Assembler::default();
    program.accept();
    program.0
}

/// Returns a program that accepts every frame without a VLAN tag.
pub(crate) fn every_untagged_frame() -> Vec<SockFilter> {
    let mut program = Assembler::default();
    program.push(LD_WORD, ANCILLARY + VLAN_TAG_PRESENT);
    program.jump(JEQ, 0, 1, 0);
    program.push(RET, 0);
    program.accept();
    program.0
}

/// Returns a program that drops every frame.
pub(crate) fn drop_all() -> [SockFilter; 1] {
    [SockFilter::new(RET, 0, 0, 0)]
}

/// Returns a program for UDP sockets: a datagram over IPv6 that came by the interface of this number passes only if
/// its source is one of these.
pub(crate) fn only_sources_on(interface: u32, sources: &[Ipv6Addr]) -> Vec<SockFilter> {
    let mut program = Assembler::default();
    program.push(LD_WORD, ANCILLARY + INTERFACE);
    program.jump(JEQ, interface, 1, 0);
    program.accept();
    program.push(LD_BYTE, NETWORK_HEADER);
    program.push(ALU_AND, 0xf0);
    program.jump(JEQ, 0x60, 1, 0);
    program.accept();
    // The kernel limits the memory of all filters of a socket, and a load of the packet takes it much.
    for number in 0..4 {
        program.push(LD_WORD, NETWORK_HEADER + 8 + 4 * number);
        program.push(STORE, number);
    }
    for source in sources {
        let octets = source.octets();
        for (number, word) in octets.as_chunks::<4>().0.iter().enumerate() {
            program.push(LD_STORED, number as u32);
            // Behind the last comparison, and the acceptance.
            let past_this_source = 7 - 2 * number as u8;
            program.jump(JEQ, u32::from_be_bytes(*word), 0, past_this_source);
        }
        program.accept();
    }
    program.push(RET, 0);
    program.0
}

/// Returns sorted runs of neighbouring blocks, at most [`MAX_RUNS`].
fn runs(blocks: &[u16]) -> Vec<(u16, u16)> {
    let mut blocks: Vec<u16> = blocks.iter().copied().filter(|&block| block <= 0xfff).collect();
    blocks.sort_unstable();
    // A frame too many costs little, one too few is lost: in a very scattered list close neighbours
    // become one run.
    let mut gap = 1;
    loop {
        let mut runs: Vec<(u16, u16)> = Vec::new();
        for &block in &blocks {
            match runs.last_mut() {
                Some((_, last)) if block <= *last + gap => *last = block,
                _ => runs.push((block, block)),
            }
        }
        if runs.len() <= MAX_RUNS {
            return runs;
        }
        gap *= 2;
    }
}

#[derive(Default)]
struct Assembler(Vec<SockFilter>);

impl Assembler {
    fn push(&mut self, code: u16, k: u32) {
        self.jump(code, k, 0, 0);
    }

    fn jump(&mut self, code: u16, k: u32, if_true: u8, if_false: u8) {
        self.0.push(SockFilter::new(code, if_true, if_false, k));
    }

    fn accept(&mut self) {
        self.push(RET, u32::MAX);
    }

    fn accept_if_within(&mut self, first: u16, last: u16) {
        self.jump(JGE, first.into(), 0, 2);
        self.jump(JGT, last.into(), 1, 0);
        self.accept();
    }

    fn refuse_other_vlans(&mut self) {
        // The tag field is stale if the frame has no tag.
        self.push(LD_WORD, ANCILLARY + VLAN_TAG_PRESENT);
        self.jump(JEQ, 0, 4, 0);
        self.push(LD_WORD, ANCILLARY + VLAN_TAG);
        self.push(ALU_AND, 0xfff);
        self.jump(JEQ, 0, 1, 0);
        self.push(RET, 0);
    }

    fn refuse_other_hosts(&mut self) {
        self.push(LD_WORD, ANCILLARY + PACKET_TYPE);
        self.jump(JEQ, OTHER_HOST, 0, 1);
        self.push(RET, 0);
    }

    fn refuse_other_sources(&mut self, MacAddr([a, b, c, d, e, f]): MacAddr) {
        self.push(LD_WORD, 6);
        self.jump(JEQ, u32::from_be_bytes([a, b, c, d]), 0, 2);
        self.push(LD_HALF, 10);
        self.jump(JEQ, u16::from_be_bytes([e, f]).into(), 1, 0);
        self.push(RET, 0);
    }

    /// Falls through with the second word of the transport header in the accumulator.
    fn refuse_other_ports(&mut self, port: u16, on_loopback: bool) {
        self.push(LD_HALF, 12);
        self.jump(JEQ, 0x0800, 1, 0); // to IPv4
        let no_ip = if on_loopback { 16 } else { 17 }; // refuse, or to MAC control
        self.jump(JEQ, 0x86dd, 10, no_ip); // to IPv6, or another
        // IPv4: no options, no fragment, UDP, the port.
        self.push(LD_BYTE, 14);
        self.jump(JEQ, 0x45, 0, 14);
        self.push(LD_HALF, 20);
        self.jump(JSET, 0x3fff, 12, 0);
        self.push(LD_BYTE, 23);
        self.jump(JEQ, UDP, 0, 10);
        self.push(LD_HALF, 36);
        self.jump(JEQ, port.into(), 0, 8);
        self.push(LD_WORD, 42 + 4);
        self.push(JA, 10);
        // IPv6: UDP straight behind the header, the port.
        self.push(LD_BYTE, 20);
        self.jump(JEQ, UDP, 0, 4);
        self.push(LD_HALF, 56);
        self.jump(JEQ, port.into(), 0, 2);
        self.push(LD_WORD, 62 + 4);
        self.push(JA, 4);
        self.push(RET, 0);
        // MAC control.
        self.jump(JEQ, 0x8808, 0, 1);
        self.accept();
        self.push(RET, 0);
    }
}

/// At three instructions a run the program stays below the kernel's limit of 4 096.
const MAX_RUNS: usize = 1024;

const LD_WORD: u16 = 0x20;
const LD_HALF: u16 = 0x28;
const LD_BYTE: u16 = 0x30;
const LD_STORED: u16 = 0x60;
const STORE: u16 = 0x02;
const ALU_AND: u16 = 0x54;
const ALU_RSH: u16 = 0x74;
const JA: u16 = 0x05;
const JEQ: u16 = 0x15;
const JGT: u16 = 0x25;
const JGE: u16 = 0x35;
const JSET: u16 = 0x45;
const RET: u16 = 0x06;

/// Loads from this offset read the kernel's metadata, not the frame.
const ANCILLARY: u32 = 0xffff_f000;
/// Loads from this offset read the network header, wherever the data begin.
const NETWORK_HEADER: u32 = 0xfff0_0000;
const PACKET_TYPE: u32 = 4;
const INTERFACE: u32 = 8;
const VLAN_TAG: u32 = 44;
const VLAN_TAG_PRESENT: u32 = 48;
const OTHER_HOST: u32 = 3;
const UDP: u32 = 17;

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixDatagram;

    use proptest::prelude::*;
    use socket2::SockRef;

    use super::*;
    use crate::segmenter::tests::{ipv4_frame, ipv6_frame};

    /// Returns true if the kernel's BPF machine passes `frame`.
    fn passes(filter: &Filter, frame: &[u8]) -> bool {
        passes_program(&filter.program(false), frame)
    }

    fn passes_program(program: &[SockFilter], frame: &[u8]) -> bool {
        let (sender, receiver) = UnixDatagram::pair().unwrap();
        receiver.set_nonblocking(true).unwrap();
        SockRef::from(&receiver).attach_filter(program).unwrap();
        sender.send(frame).unwrap();
        receiver.recv(&mut [0; 4096]).is_ok()
    }

    fn only(blocks: &[u16]) -> Filter {
        Filter { qpn_blocks: QpnBlocks::Only(blocks.to_vec()), ..Filter::default() }
    }

    /// The first 12 bytes of a payload with this destination queue pair.
    fn bth(qpn: u32) -> [u8; 16] {
        let mut bytes = [0xff; 16];
        bytes[5..8].copy_from_slice(&qpn.to_be_bytes()[1..]);
        bytes
    }

    #[test]
    fn our_frames_pass_over_ipv4_and_ipv6() {
        for filter in [Filter::default(), only(&[0x123])] {
            assert!(passes(&filter, &ipv4_frame(4791, &bth(0x123456))));
            assert!(passes(&filter, &ipv6_frame(4791, &bth(0x123456))));
        }
    }

    #[test]
    fn another_port_is_dropped() {
        for port in [4790, 4792, 53, 0] {
            assert!(!passes(&Filter::default(), &ipv4_frame(port, &bth(1))));
            assert!(!passes(&Filter::default(), &ipv6_frame(port, &bth(1))));
        }
    }

    #[test]
    fn ipv4_with_options_or_in_fragments_is_dropped() {
        let changed = |at: usize, value: u8| {
            let mut frame = ipv4_frame(4791, &bth(1));
            frame[at] = value;
            passes(&Filter::default(), &frame)
        };
        assert!(changed(20, 0x40), "do not fragment is no fragment");
        assert!(!changed(14, 0x46), "options");
        assert!(!changed(20, 0x20), "more fragments follow");
        assert!(!changed(21, 0x01), "a later fragment");
        assert!(!changed(23, 6), "TCP");
    }

    #[test]
    fn ipv6_with_another_next_header_is_dropped() {
        let mut frame = ipv6_frame(4791, &bth(1));
        frame[20] = 44;
        assert!(!passes(&Filter::default(), &frame));
    }

    #[test]
    fn another_ether_type_is_dropped() {
        let mut frame = ipv4_frame(4791, &bth(1));
        frame[12..14].copy_from_slice(&[0x81, 0x00]);
        assert!(!passes(&Filter::default(), &frame));
    }

    #[test]
    fn pause_frames_pass_but_not_on_lo() {
        let mut frame = ipv4_frame(4791, &bth(1));
        frame[12..14].copy_from_slice(&[0x88, 0x08]);
        frame[6..12].copy_from_slice(&LO_SOURCE.0);
        for filter in [Filter::default(), only(&[0x123]), only(&[])] {
            assert!(passes(&filter, &frame));
            assert!(!passes_program(&filter.program(true), &frame));
        }
        // The same number as a port.
        assert!(!passes(&Filter::default(), &ipv4_frame(0x8808, &bth(1))));
        assert!(!passes(&Filter::default(), &ipv6_frame(0x8808, &bth(1))));
    }

    #[test]
    fn on_lo_only_frames_of_packet_sockets_pass() {
        let mut frame = ipv4_frame(4791, &bth(1));
        let passes = |frame: &[u8]| passes_program(&Filter::default().program(true), frame);
        frame[6..12].copy_from_slice(&LO_SOURCE.0);
        assert!(passes(&frame));
        for at in 6..12 {
            let mut other = frame.clone();
            other[at] ^= 1;
            assert!(!passes(&other), "byte {at}");
        }
        frame[6..12].fill(0);
        assert!(!passes(&frame), "as the kernel makes them");
    }

    #[test]
    fn a_frame_too_short_for_a_queue_pair_is_dropped() {
        for frame in [ipv4_frame(4791, &bth(1)), ipv6_frame(4791, &bth(1))] {
            let needed = frame.len() - 8;
            for len in 1..frame.len() {
                assert_eq!(passes(&only(&[0]), &frame[..len]), len >= needed, "{len}");
            }
        }
    }

    #[test]
    fn an_empty_list_of_blocks_drops_every_frame() {
        assert!(!passes(&only(&[]), &ipv4_frame(4791, &bth(1))));
    }

    #[test]
    fn multicast_passes_only_if_asked_for() {
        for blocks in [&[][..], &[0x123]] {
            let closed = only(blocks);
            let open = Filter { multicast: true, general_services: true, ..closed.clone() };
            for frame in [ipv4_frame(4791, &bth(0xff_ffff)), ipv6_frame(4791, &bth(0xff_ffff))] {
                assert!(passes(&open, &frame) && !passes(&closed, &frame));
            }
            for other in [0, 0xff_fffe, 0x123456] {
                let frame = ipv4_frame(4791, &bth(other));
                assert_eq!(passes(&open, &frame), passes(&closed, &frame), "{other:#x}");
            }
        }
    }

    #[test]
    fn the_general_services_queue_pair_passes_only_if_asked_for() {
        for blocks in [&[][..], &[0x123]] {
            let closed = only(blocks);
            let open = Filter { general_services: true, ..closed.clone() };
            for frame in [ipv4_frame(4791, &bth(1)), ipv6_frame(4791, &bth(1))] {
                assert!(passes(&open, &frame) && !passes(&closed, &frame));
            }
            for other in [0, 2, 0x1001, 0x123456] {
                let frame = ipv4_frame(4791, &bth(other));
                assert_eq!(passes(&open, &frame), passes(&closed, &frame), "{other:#x}");
            }
        }
    }

    #[test]
    fn the_kernel_accepts_the_program_of_a_scattered_list_of_blocks() {
        let scattered: Vec<u16> = (0..0x1000).step_by(2).collect();
        let filter = only(&scattered);
        assert!(filter.program(false).len() <= 4096);
        for block in &scattered {
            let frame = ipv4_frame(4791, &bth(u32::from(*block) << 12));
            assert!(passes(&filter, &frame));
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn a_frame_passes_if_its_queue_pair_is_in_a_block(
            blocks in prop::collection::vec(0u16..0x40, 0..40),
            qpn in 0u32..0x40_000,
        ) {
            let expected = blocks.contains(&((qpn >> 12) as u16));
            prop_assert_eq!(passes(&only(&blocks), &ipv4_frame(4791, &bth(qpn))), expected);
            prop_assert_eq!(passes(&only(&blocks), &ipv6_frame(4791, &bth(qpn))), expected);
        }
    }
}
