//! How many packets a message is divided into.

use roce_wire::PathMtu;

/// Packets that a message of `len` bytes takes: an empty one takes one.
//= rule qp-empty-message: InfiniBand, clause not known; rxe_resp.c: rxe_prepare_res
//# A message of no bytes takes one packet, and one PSN.
pub(crate) const fn packets_for(len: u64, mtu: PathMtu) -> u32 {
    let packets = len.div_ceil(mtu.bytes() as u64);
    if packets == 0 { 1 } else { packets as u32 } // at most 2^31 / 256
}

#[cfg(test)]
mod tests {
    use super::*;

    //= test qp-empty-message
    #[test]
    fn an_empty_message_takes_one_packet_and_the_longest_half_the_circle() {
        assert_eq!(packets_for(0, PathMtu::B256), 1);
        assert_eq!(packets_for(256, PathMtu::B256), 1);
        assert_eq!(packets_for(257, PathMtu::B256), 2);
        assert_eq!(packets_for(1 << 31, PathMtu::B256), 1 << 23);
        assert_eq!(packets_for(1 << 31, PathMtu::B4096), 1 << 19);
    }
}
