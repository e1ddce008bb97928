//! Address handles.

use std::ffi::c_int;
use std::sync::Arc;

use libc::{EINVAL, EPROTONOSUPPORT};
use roce_abi::{ibv_ah, ibv_ah_attr, ibv_gid, ibv_global_route, ibv_grh, ibv_wc};
use roce_verbs::Gid;

use crate::context::ContextPtr;
use crate::object::{self, Object, Shared};
use crate::protection_domain::{PdInner, ProtectionDomain};
use crate::{address_vector, errno};

/// An address handle.
#[repr(C)]
pub(crate) struct AddressHandle {
    c: Shared<ibv_ah>,
    pub(crate) ah: roce_verbs::AddressHandle,
    _pd: Arc<PdInner>,
}

// SAFETY: `repr(C)` with the structure first.
unsafe impl Object for AddressHandle {
    type C = ibv_ah;
}

/// `ibv_create_ah`
pub(crate) extern "C" fn create(pd: &ProtectionDomain, attributes: &ibv_ah_attr) -> *mut ibv_ah {
    let vector = match address_vector::of(attributes) {
        Ok(vector) => vector,
        Err(errno) => return errno::null(errno),
    };
    let ah = match pd.inner().pd.create_ah(&vector) {
        Ok(ah) => ah,
        Err(error) => return errno::null(errno::of(&error)),
    };
    let context = pd.context().as_ptr();
    let c = Shared::new(ibv_ah { context, pd: object::pointer_to(pd), handle: 0 });
    object::give(AddressHandle { c, ah, _pd: Arc::clone(pd.inner()) })
}

/// `ibv_destroy_ah`
pub(crate) extern "C" fn destroy(ah: *mut ibv_ah) -> c_int {
    // SAFETY: see `object`.
    drop(unsafe { object::take::<AddressHandle>(ah) });
    0
}

/// The addresses and marks in the 40 bytes in front of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Received {
    source: Gid,
    destination: Gid,
    traffic_class: u8,
    flow_label: u32,
    hop_limit: u8,
}

impl Received {
    fn of(bytes: &[u8; 40]) -> Option<Self> {
        // An IPv6 header, or 20 bytes of any content and an IPv4 header. Where the first byte says
        // IPv6, the checksum of the IPv4 header decides.
        let [first, ..] = *bytes;
        let v4: &[u8; 20] = bytes.last_chunk().expect("40 bytes");
        let is_v4 = match first >> 4 {
            6 => v4[0] == 0x45 && checksum(v4) == 0,
            _ => true,
        };
        if is_v4 {
            if v4[0] >> 4 != 4 {
                return None;
            }
            let address = |from: usize| {
                let bytes: [u8; 4] = v4[from..from + 4].try_into().expect("four bytes");
                Gid::from(std::net::IpAddr::from(bytes))
            };
            return Some(Self {
                source: address(12),
                destination: address(16),
                traffic_class: v4[1],
                flow_label: 0,
                hop_limit: v4[8],
            });
        }
        let gid = |from: usize| Gid(bytes[from..from + 16].try_into().expect("16 bytes"));
        let head = u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        Some(Self {
            source: gid(8),
            destination: gid(24),
            traffic_class: (head >> 20) as u8,
            flow_label: head & 0xf_ffff,
            hop_limit: bytes[7],
        })
    }
}

/// Returns the checksum of an IPv4 header, 0 if the one inside is right.
fn checksum(header: &[u8; 20]) -> u16 {
    let sum: u32 =
        header.chunks_exact(2).map(|word| u32::from(u16::from_be_bytes([word[0], word[1]]))).sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    !(((folded & 0xffff) + (folded >> 16)) as u16)
}

/// `ibv_init_ah_from_wc`
pub(crate) extern "C" fn init_from_wc(
    context: ContextPtr,
    port: u8,
    completion: &ibv_wc,
    grh: *const ibv_grh,
    attributes: &mut ibv_ah_attr,
) -> c_int {
    let fail = |errno| {
        errno::set(errno);
        -1
    };
    *attributes = ibv_ah_attr {
        sl: completion.sl,
        src_path_bits: completion.dlid_path_bits,
        dlid: completion.slid,
        port_num: port,
        ..ibv_ah_attr::default()
    };
    if completion.wc_flags & roce_abi::IBV_WC_GRH == 0 {
        return 0;
    }
    // SAFETY: the flag says that the program has the 40 bytes of a datagram.
    let bytes = unsafe { grh.cast::<[u8; 40]>().read() };
    let Some(received) = Received::of(&bytes) else { return fail(EPROTONOSUPPORT) };
    let table = match context.device().gid_table() {
        Ok(table) => table,
        Err(error) => return fail(errno::of(&error)),
    };
    let row = table.iter().find(|row| row.usable && row.gid == received.destination);
    let Some(row) = row else { return fail(EINVAL) };
    attributes.is_global = 1;
    attributes.grh = ibv_global_route {
        dgid: ibv_gid::new(received.source.0),
        flow_label: received.flow_label,
        sgid_index: row.index,
        // As the kernel has it for answers: the sender may be as far away as packets go.
        hop_limit: 0xff,
        traffic_class: received.traffic_class,
    };
    0
}

/// `ibv_create_ah_from_wc`
pub(crate) extern "C" fn create_from_wc(
    pd: &ProtectionDomain,
    completion: &ibv_wc,
    grh: *const ibv_grh,
    port: u8,
) -> *mut ibv_ah {
    let mut attributes = ibv_ah_attr::default();
    match init_from_wc(pd.context(), port, completion, grh, &mut attributes) {
        0 => create(pd, &attributes),
        _ => std::ptr::null_mut(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const V4: [u8; 20] =
        [0x45, 0x60, 0, 0x54, 0, 0, 0x40, 0, 64, 17, 0, 0, 10, 1, 0, 1, 10, 1, 0, 2];

    fn with_checksum() -> [u8; 20] {
        let mut header = V4;
        header[10..12].copy_from_slice(&checksum(&V4).to_be_bytes());
        assert_eq!(checksum(&header), 0);
        header
    }

    #[test]
    fn the_sender_of_a_datagram_over_ipv4_is_found_whatever_stands_before_the_header() {
        for first in [0, 0x45, 0x60] {
            let mut bytes = [first; 40];
            bytes[20..].copy_from_slice(&with_checksum());
            let received = Received::of(&bytes).unwrap();
            assert_eq!(received.source.ip(), std::net::IpAddr::from([10, 1, 0, 1]));
            assert_eq!(received.destination.ip(), std::net::IpAddr::from([10, 1, 0, 2]));
            assert_eq!(received.traffic_class, 0x60);
        }
    }

    #[test]
    fn the_sender_of_a_datagram_over_ipv6_is_found() {
        let mut bytes = [0; 40];
        bytes[0..4].copy_from_slice(&(6 << 28 | 0x60 << 20 | 0x12345_u32).to_be_bytes());
        bytes[8] = 0xfd;
        bytes[24] = 0xfc;
        let received = Received::of(&bytes).unwrap();
        assert_eq!((received.source.0[0], received.destination.0[0]), (0xfd, 0xfc));
        assert_eq!((received.traffic_class, received.flow_label), (0x60, 0x12345));
    }

    #[test]
    fn bytes_of_neither_version_name_no_sender() {
        assert_eq!(Received::of(&[0; 40]), None);
    }
}
