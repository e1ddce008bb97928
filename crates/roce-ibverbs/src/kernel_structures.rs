//! Structures of the kernel's interface, which librdmacm translates.

use roce_abi::{
    ib_user_path_rec, ib_uverbs_ah_attr, ib_uverbs_qp_attr, ibv_ah_attr, ibv_gid, ibv_global_route,
    ibv_qp_attr, ibv_qp_cap, ibv_sa_path_rec,
};

fn address_of(from: &ib_uverbs_ah_attr) -> ibv_ah_attr {
    ibv_ah_attr {
        grh: ibv_global_route {
            dgid: ibv_gid::new(from.dgid),
            flow_label: from.flow_label,
            sgid_index: from.sgid_index,
            hop_limit: from.hop_limit,
            traffic_class: from.traffic_class,
        },
        dlid: from.dlid,
        sl: from.sl,
        src_path_bits: from.src_path_bits,
        static_rate: from.static_rate,
        is_global: from.is_global,
        port_num: from.port_num,
    }
}

/// `ibv_copy_ah_attr_from_kern`
pub(crate) extern "C" fn copy_address(to: &mut ibv_ah_attr, from: &ib_uverbs_ah_attr) {
    *to = address_of(from);
}

/// `ibv_copy_qp_attr_from_kern`
pub(crate) extern "C" fn copy_queue_pair(to: &mut ibv_qp_attr, from: &ib_uverbs_qp_attr) {
    *to = ibv_qp_attr {
        qp_state: from.qp_state.cast_signed(),
        cur_qp_state: from.cur_qp_state.cast_signed(),
        path_mtu: from.path_mtu.cast_signed(),
        path_mig_state: from.path_mig_state.cast_signed(),
        qkey: from.qkey,
        rq_psn: from.rq_psn,
        sq_psn: from.sq_psn,
        dest_qp_num: from.dest_qp_num,
        qp_access_flags: from.qp_access_flags,
        cap: ibv_qp_cap {
            max_send_wr: from.max_send_wr,
            max_recv_wr: from.max_recv_wr,
            max_send_sge: from.max_send_sge,
            max_recv_sge: from.max_recv_sge,
            max_inline_data: from.max_inline_data,
        },
        ah_attr: address_of(&from.ah_attr),
        alt_ah_attr: address_of(&from.alt_ah_attr),
        pkey_index: from.pkey_index,
        alt_pkey_index: from.alt_pkey_index,
        en_sqd_async_notify: from.en_sqd_async_notify,
        sq_draining: from.sq_draining,
        max_rd_atomic: from.max_rd_atomic,
        max_dest_rd_atomic: from.max_dest_rd_atomic,
        min_rnr_timer: from.min_rnr_timer,
        port_num: from.port_num,
        timeout: from.timeout,
        retry_cnt: from.retry_cnt,
        rnr_retry: from.rnr_retry,
        alt_port_num: from.alt_port_num,
        alt_timeout: from.alt_timeout,
        rate_limit: 0,
    };
}

/// `ibv_copy_path_rec_from_kern`
pub(crate) extern "C" fn copy_path_from(to: &mut ibv_sa_path_rec, from: &ib_user_path_rec) {
    *to = ibv_sa_path_rec {
        dgid: ibv_gid::new(from.dgid),
        sgid: ibv_gid::new(from.sgid),
        dlid: from.dlid,
        slid: from.slid,
        raw_traffic: from.raw_traffic.cast_signed(),
        flow_label: from.flow_label,
        hop_limit: from.hop_limit,
        traffic_class: from.traffic_class,
        reversible: from.reversible.cast_signed(),
        numb_path: from.numb_path,
        pkey: from.pkey,
        sl: from.sl,
        mtu_selector: from.mtu_selector,
        mtu: from.mtu as u8, // a number of one byte in a wider field
        rate_selector: from.rate_selector,
        rate: from.rate,
        packet_life_time_selector: from.packet_life_time_selector,
        packet_life_time: from.packet_life_time,
        preference: from.preference,
    };
}

/// `ibv_copy_path_rec_to_kern`
pub(crate) extern "C" fn copy_path_to(to: &mut ib_user_path_rec, from: &ibv_sa_path_rec) {
    *to = ib_user_path_rec {
        dgid: from.dgid.raw,
        sgid: from.sgid.raw,
        dlid: from.dlid,
        slid: from.slid,
        raw_traffic: from.raw_traffic.cast_unsigned(),
        flow_label: from.flow_label,
        reversible: from.reversible.cast_unsigned(),
        mtu: u32::from(from.mtu),
        pkey: from.pkey,
        hop_limit: from.hop_limit,
        traffic_class: from.traffic_class,
        numb_path: from.numb_path,
        sl: from.sl,
        mtu_selector: from.mtu_selector,
        rate_selector: from.rate_selector,
        rate: from.rate,
        packet_life_time_selector: from.packet_life_time_selector,
        packet_life_time: from.packet_life_time,
        preference: from.preference,
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_record_survives_both_translations() {
        let record = ibv_sa_path_rec {
            dgid: ibv_gid::new([7; 16]),
            flow_label: 0x12345,
            mtu: 3,
            reversible: 1,
            rate: 9,
            packet_life_time: 18,
            ..ibv_sa_path_rec::default()
        };
        let mut kernel = ib_user_path_rec::default();
        copy_path_to(&mut kernel, &record);
        let mut back = ibv_sa_path_rec::default();
        copy_path_from(&mut back, &kernel);
        assert_eq!(format!("{back:?}"), format!("{record:?}"));
    }
}
