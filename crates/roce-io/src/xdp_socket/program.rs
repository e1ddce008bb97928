//! The XDP program: which frames of an interface go to its AF_XDP sockets.

use crate::bpf_assembler::{Assembler, Instruction, Label, Reg, Size};
use roce_wire::Qpn;

/// What the program is made for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Target {
    /// The MAC address of the interface.
    pub(super) mac: [u8; 6],
    /// The UDP port.
    pub(super) port: u16,
    /// Verdict for a frame of ours that came to a receive queue without a socket.
    pub(super) without_socket: Verdict,
}

/// Verdicts of XDP programs.
#[derive(Clone, Copy, Debug)]
pub(super) enum Verdict {
    /// The frame goes on to the kernel.
    Pass = 2,
    /// Told from passing, for tests.
    #[cfg(test)]
    Transmit = 3,
}

/// The descriptors of the maps that the program uses.
#[derive(Clone, Copy, Debug)]
pub(super) struct Maps {
    /// Sockets by the number of their receive queue.
    pub(super) sockets: i32,
    /// One word for each block of 4096 queue pair numbers, 0 for those of others.
    pub(super) blocks: i32,
    /// Addresses of the interface, those of IPv4 as IPv6 addresses that map them.
    pub(super) addresses: i32,
}

/// Returns the program.
///
/// It takes UDP to one port over IPv4 (no options, no fragment) or IPv6, untagged or with a priority tag
/// (VLAN 0), to MAC address and IP address of the interface, and to a queue pair of our blocks. All else
/// goes on to the kernel. So do datagrams of management (queue pair 1) and to groups, which other processes
/// of this host have to receive too: there a packet socket of each does.
pub(super) fn program(target: &Target, maps: &Maps) -> Vec<Instruction> {
    use Reg::{R0, R1, R2, R3, R5, R6, R7, R10};
    use Size::{Byte, Half, Word};

    let mut code = Assembler::default();
    let [pass, untagged, ipv4, matched] = [(); 4].map(|()| code.label());
    code.copy(R6, R1);
    code.load(R2, Word, R1, CONTEXT_DATA);
    code.load(R3, Word, R1, CONTEXT_DATA_END);
    need(&mut code, ETHERNET_LEN + VLAN_LEN, pass);
    let [a, b, c, d, e, f] = target.mac;
    code.load(R5, Word, R2, 0);
    code.jump_unless(R5, u32::from_ne_bytes([a, b, c, d]), pass);
    code.load(R5, Half, R2, 4);
    code.jump_unless(R5, u16::from_ne_bytes([e, f]).into(), pass);

    code.load(R5, Half, R2, 12);
    code.jump_unless(R5, network(0x8100), untagged);
    code.load(R5, Half, R2, 14);
    code.and(R5, network(0x0fff) as i32);
    code.jump_unless(R5, 0, pass);
    code.load(R5, Half, R2, 16);
    code.add(R2, VLAN_LEN);
    code.here(untagged);

    // From here on R2 is 14 bytes in front of the IP header.
    code.jump_if(R5, network(0x0800), ipv4);
    code.jump_unless(R5, network(0x86dd), pass);
    need(&mut code, ETHERNET_LEN + IPV6_LEN + UDP_LEN + BTH_NEEDED, pass);
    code.load(R5, Byte, R2, 20);
    code.jump_unless(R5, UDP, pass);
    code.load(R5, Half, R2, 56);
    code.jump_unless(R5, network(target.port), pass);
    code.load(R7, Word, R2, 66);
    for word in 0..4 {
        code.load(R5, Word, R2, 38 + 4 * word);
        code.store(Word, R10, ADDRESS_AT + 4 * word, R5);
    }
    code.jump(matched);

    code.here(ipv4);
    need(&mut code, ETHERNET_LEN + IPV4_LEN + UDP_LEN + BTH_NEEDED, pass);
    code.load(R5, Byte, R2, 14);
    code.jump_unless(R5, 0x45, pass);
    code.load(R5, Half, R2, 20);
    code.and(R5, network(0x3fff) as i32);
    code.jump_unless(R5, 0, pass);
    code.load(R5, Byte, R2, 23);
    code.jump_unless(R5, UDP, pass);
    code.load(R5, Half, R2, 36);
    code.jump_unless(R5, network(target.port), pass);
    code.load(R7, Word, R2, 46);
    code.load(R5, Word, R2, 30);
    code.store_value(Word, R10, ADDRESS_AT, 0);
    code.store_value(Word, R10, ADDRESS_AT + 4, 0);
    code.store_value(Word, R10, ADDRESS_AT + 8, 0xffff_u32.to_be().cast_signed());
    code.store(Word, R10, ADDRESS_AT + 12, R5);

    code.here(matched);
    code.word_from_network(R7);
    code.and(R7, 0xff_ffff);
    for of_all in [Qpn::GSI, Qpn::MULTICAST] {
        code.jump_if(R7, of_all.get(), pass);
    }
    code.shift_right(R7, 12);
    code.store(Word, R10, BLOCK_AT, R7);
    code.map(R1, maps.blocks);
    code.copy(R2, R10);
    code.add(R2, BLOCK_AT.into());
    code.call(MAP_LOOKUP_ELEM);
    code.jump_if_null(R0, pass);
    code.load(R5, Word, R0, 0);
    code.jump_if(R5, 0, pass);
    code.map(R1, maps.addresses);
    code.copy(R2, R10);
    code.add(R2, ADDRESS_AT.into());
    code.call(MAP_LOOKUP_ELEM);
    code.jump_if_null(R0, pass);
    code.map(R1, maps.sockets);
    code.load(R2, Word, R6, CONTEXT_RECEIVE_QUEUE);
    code.set(R3, target.without_socket as i32);
    code.call(REDIRECT_MAP);
    code.exit();

    code.here(pass);
    code.set(R0, Verdict::Pass as i32);
    code.exit();
    code.finish()
}

/// Passes frames on in which so many bytes do not follow R2; the end is in R3.
fn need(code: &mut Assembler, len: i32, pass: Label) {
    code.copy(Reg::R4, Reg::R2);
    code.add(Reg::R4, len);
    code.jump_if_above(Reg::R4, Reg::R3, pass);
}

/// A number of 16 bits as a load of this machine reads it from a packet.
const fn network(value: u16) -> u32 {
    value.to_be() as u32
}

const CONTEXT_DATA: i16 = 0;
const CONTEXT_DATA_END: i16 = 4;
const CONTEXT_RECEIVE_QUEUE: i16 = 16;

/// Places on the stack.
const ADDRESS_AT: i16 = -16;
const BLOCK_AT: i16 = -20;

const MAP_LOOKUP_ELEM: i32 = 1;
const REDIRECT_MAP: i32 = 51;

const ETHERNET_LEN: i32 = 14;
const VLAN_LEN: i32 = 4;
const IPV4_LEN: i32 = 20;
const IPV6_LEN: i32 = 40;
const UDP_LEN: i32 = 8;
/// Bytes of the base transport header up to the destination queue pair.
const BTH_NEEDED: i32 = 8;
const UDP: u32 = 17;
