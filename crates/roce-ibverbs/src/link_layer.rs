//! The link-layer address of a GID.

use std::ffi::c_int;

use libc::EHOSTUNREACH;
use roce_abi::ibv_ah_attr;

use crate::cancellation::Uncancellable;
use crate::context::ContextPtr;
use crate::{address_vector, errno};

/// The VLAN of frames without a tag.
const NO_VLAN: u16 = 0xffff;

/// `ibv_resolve_eth_l2_from_gid`: the MAC address that packets to a GID are sent to, for programs that
/// build their own frames. Returns a negative `errno` value.
pub(crate) extern "C" fn resolve(
    context: ContextPtr,
    attributes: &ibv_ah_attr,
    mac: &mut [u8; 6],
    vlan: Option<&mut u16>,
) -> c_int {
    let _uncancellable = Uncancellable::begin();
    match next_hop(context, attributes) {
        Ok(found) => {
            *mac = found;
            if let Some(vlan) = vlan {
                *vlan = NO_VLAN;
            }
            0
        }
        Err(errno) => -errno,
    }
}

fn next_hop(context: ContextPtr, attributes: &ibv_ah_attr) -> Result<[u8; 6], c_int> {
    let vector = address_vector::of(attributes)?;
    let path = context.device().resolve(&vector).map_err(|error| errno::of(&error))?;
    let found = path.next_hop_mac().map_err(|error| errno::of(&error))?;
    match found.ok_or(EHOSTUNREACH)?.0 {
        // To this host no frame leaves; its own address is what others would use.
        [0, 0, 0, 0, 0, 0] => Ok(context.inner().listed.mac()),
        mac => Ok(mac),
    }
}
