//! Headers, requests and responses.

use super::Plain;
use super::plain::{plain, structures};
use super::values::RDMA_MAX_PRIVATE_DATA;
use crate::{ib_user_path_rec, ib_uverbs_ah_attr, ib_uverbs_qp_attr};

structures! {
    /// The header of a command.
    rdma_ucm_cmd_hdr: 8 {
        cmd: u32,
        /// Bytes of the structure behind this header.
        r#in: u16,
        /// Bytes that the response may have.
        out: u16,
    }
    rdma_ucm_create_id: 24 { uid: u64, response: u64, ps: u16, qp_type: u8, reserved: [u8; 5] }
    rdma_ucm_create_id_resp: 4 { id: u32 }
    rdma_ucm_destroy_id: 16 { response: u64, id: u32, reserved: u32 }
    rdma_ucm_destroy_id_resp: 4 { events_reported: u32 }
    rdma_ucm_bind_ip: 40 { response: u64, addr: [u8; 28], id: u32 }
    rdma_ucm_bind: 136 { id: u32, addr_size: u16, reserved: u16, addr: [u8; 128] }
    rdma_ucm_resolve_ip: 64 { src_addr: [u8; 28], dst_addr: [u8; 28], id: u32, timeout_ms: u32 }
    rdma_ucm_resolve_addr: 272 {
        id: u32, timeout_ms: u32, src_size: u16, dst_size: u16, reserved: u32,
        src_addr: [u8; 128], dst_addr: [u8; 128],
    }
    rdma_ucm_resolve_route: 8 { id: u32, timeout_ms: u32 }
    rdma_ucm_query: 16 { response: u64, id: u32, option: u32 }
    rdma_ucm_query_route_resp: 208 {
        node_guid: u64, ib_route: [ib_user_path_rec; 2], src_addr: [u8; 28], dst_addr: [u8; 28],
        num_paths: u32, port_num: u8, reserved: [u8; 3], ibdev_index: u32, reserved1: u32,
    }
    rdma_ucm_query_addr_resp: 280 {
        node_guid: u64, port_num: u8, reserved: u8,
        /// Big-endian.
        pkey: u16,
        src_size: u16, dst_size: u16, src_addr: [u8; 128], dst_addr: [u8; 128],
        ibdev_index: u32, reserved1: u32,
    }
    /// As many [`ib_path_rec_data`] follow as there is space for.
    rdma_ucm_query_path_resp: 8 { num_paths: u32, reserved: u32 }
    /// A path record as the subnet administrator writes it.
    ib_path_rec_data: 72 { flags: u32, reserved: u32, path_rec: [u8; 64] }
    rdma_ucm_conn_param: 272 {
        qp_num: u32, qkey: u32, private_data: [u8; RDMA_MAX_PRIVATE_DATA], private_data_len: u8, srq: u8,
        responder_resources: u8, initiator_depth: u8, flow_control: u8, retry_count: u8,
        rnr_retry_count: u8, valid: u8,
    }
    rdma_ucm_ud_param: 304 {
        qp_num: u32, qkey: u32, ah_attr: ib_uverbs_ah_attr, private_data: [u8; RDMA_MAX_PRIVATE_DATA],
        private_data_len: u8, reserved: [u8; 7],
    }
    rdma_ucm_ece: 8 { vendor_id: u32, attr_mod: u32 }
    rdma_ucm_connect: 288 { conn_param: rdma_ucm_conn_param, id: u32, reserved: u32, ece: rdma_ucm_ece }
    rdma_ucm_listen: 8 { id: u32, backlog: u32 }
    rdma_ucm_accept: 296 {
        uid: u64, conn_param: rdma_ucm_conn_param, id: u32, reserved: u32, ece: rdma_ucm_ece,
    }
    rdma_ucm_reject: 264 {
        id: u32, private_data_len: u8, reason: u8, reserved: [u8; 2],
        private_data: [u8; RDMA_MAX_PRIVATE_DATA],
    }
    rdma_ucm_disconnect: 4 { id: u32 }
    rdma_ucm_init_qp_attr: 16 { response: u64, id: u32, qp_state: u32 }
    rdma_ucm_notify: 8 { id: u32, event: u32 }
    rdma_ucm_join_ip_mcast: 48 { response: u64, uid: u64, addr: [u8; 28], id: u32 }
    rdma_ucm_join_mcast: 152 {
        response: u64, uid: u64, id: u32, addr_size: u16, join_flags: u16, addr: [u8; 128],
    }
    rdma_ucm_get_event: 8 { response: u64 }
    rdma_ucm_event_resp: 336 {
        uid: u64, id: u32, event: u32, status: u32,
        /// A [`rdma_ucm_conn_param`] or a [`rdma_ucm_ud_param`].
        param: [u8; 304],
        reserved: u32, ece: rdma_ucm_ece,
    }
    rdma_ucm_set_option: 24 { optval: u64, id: u32, level: u32, optname: u32, optlen: u32 }
    rdma_ucm_migrate_id: 16 { response: u64, id: u32, fd: u32 }
    rdma_ucm_migrate_resp: 4 { events_reported: u32 }
    rdma_ucm_write_cm_event: 320 {
        id: u32, reserved: u32, event: u32, status: u32,
        /// A [`rdma_ucm_conn_param`], a [`rdma_ucm_ud_param`] or a number.
        param: [u8; 304],
    }
    /// An address of `AF_IB`.
    sockaddr_ib: 48 {
        sib_family: u16,
        /// Big-endian.
        sib_pkey: u16,
        /// Big-endian.
        sib_flowinfo: u32,
        sib_addr: [u8; 16],
        /// Big-endian.
        sib_sid: u64,
        /// Big-endian.
        sib_sid_mask: u64,
        sib_scope_id: u64,
    }
}

plain! {
    ib_user_path_rec: 64 {
        dgid: [u8; 16], sgid: [u8; 16], dlid: u16, slid: u16, raw_traffic: u32, flow_label: u32,
        reversible: u32, mtu: u32, pkey: u16, hop_limit: u8, traffic_class: u8, numb_path: u8, sl: u8,
        mtu_selector: u8, rate_selector: u8, rate: u8, packet_life_time_selector: u8,
        packet_life_time: u8, preference: u8,
    }
    ib_uverbs_ah_attr: 32 {
        dgid: [u8; 16], flow_label: u32, sgid_index: u8, hop_limit: u8, traffic_class: u8,
        grh_reserved: u8, dlid: u16, sl: u8, src_path_bits: u8, static_rate: u8, is_global: u8,
        port_num: u8, reserved: u8,
    }
    ib_uverbs_qp_attr: 144 {
        qp_attr_mask: u32, qp_state: u32, cur_qp_state: u32, path_mtu: u32, path_mig_state: u32,
        qkey: u32, rq_psn: u32, sq_psn: u32, dest_qp_num: u32, qp_access_flags: u32,
        ah_attr: ib_uverbs_ah_attr, alt_ah_attr: ib_uverbs_ah_attr, max_send_wr: u32,
        max_recv_wr: u32, max_send_sge: u32, max_recv_sge: u32, max_inline_data: u32,
        pkey_index: u16, alt_pkey_index: u16, en_sqd_async_notify: u8, sq_draining: u8,
        max_rd_atomic: u8, max_dest_rd_atomic: u8, min_rnr_timer: u8, port_num: u8, timeout: u8,
        retry_cnt: u8, rnr_retry: u8, alt_port_num: u8, alt_timeout: u8, reserved: [u8; 5],
    }
}

impl Plain for [ib_user_path_rec; 2] {
    fn read(bytes: &[u8]) -> Self {
        let second = super::plain::behind(bytes, size_of::<ib_user_path_rec>());
        [bytes, second].map(ib_user_path_rec::read)
    }

    fn write(&self, out: &mut [u8]) {
        for (record, out) in self.iter().zip(out.chunks_mut(size_of::<ib_user_path_rec>())) {
            record.write(out);
        }
    }
}

impl rdma_ucm_conn_param {
    /// Returns the private data.
    pub fn private_data(&self) -> &[u8] {
        self.private_data.get(..usize::from(self.private_data_len)).unwrap_or_default()
    }
}
