//! Compares the layout of every structure with the headers that are installed.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::mem::{offset_of, size_of};
use std::process::Command;

use roce_abi::rdma_cm::*;
use roce_abi::*;
use roce_test_macros::tier1;

/// A structure: its size, and the offsets of its fields.
struct Layout {
    name: &'static str,
    size: usize,
    fields: Vec<(&'static str, usize)>,
}

/// Lists structures with fields that are called the same in C, or `field = "name in C"`.
macro_rules! layouts {
    (@name $field:ident) => { stringify!($field) };
    (@name $field:ident $in_c:literal) => { $in_c };
    ($( $name:ident { $( $field:ident $(= $in_c:literal)? ),* $(,)? } )*) => {
        vec![$( Layout {
            name: stringify!($name),
            size: size_of::<$name>(),
            fields: vec![$( (layouts!(@name $field $($in_c)?), offset_of!($name, $field)) ),*],
        } ),*]
    };
}

fn layouts() -> Vec<Layout> {
    layouts! {
        ibv_device { node_type, transport_type, name, dev_name, dev_path, ibdev_path }
        ibv_device_attr {
            fw_ver, node_guid, sys_image_guid, max_mr_size, page_size_cap, vendor_id, vendor_part_id,
            hw_ver, max_qp, max_qp_wr, device_cap_flags, max_sge, max_sge_rd, max_cq, max_cqe, max_mr,
            max_pd, max_qp_rd_atom, max_ee_rd_atom, max_res_rd_atom, max_qp_init_rd_atom,
            max_ee_init_rd_atom, atomic_cap, max_ee, max_rdd, max_mw, max_raw_ipv6_qp,
            max_raw_ethy_qp, max_mcast_grp, max_mcast_qp_attach, max_total_mcast_qp_attach, max_ah,
            max_fmr, max_map_per_fmr, max_srq, max_srq_wr, max_srq_sge, max_pkeys,
            local_ca_ack_delay, phys_port_cnt,
        }
        ibv_query_device_ex_input { comp_mask }
        ibv_odp_caps {
            general_caps, rc_odp_caps = "per_transport_caps.rc_odp_caps",
            uc_odp_caps = "per_transport_caps.uc_odp_caps",
            ud_odp_caps = "per_transport_caps.ud_odp_caps",
        }
        ibv_rss_caps {
            supported_qpts, max_rwq_indirection_tables, max_rwq_indirection_table_size,
            rx_hash_fields_mask, rx_hash_function,
        }
        ibv_tm_caps { max_rndv_hdr_size, max_num_tags, flags, max_ops, max_sge }
        ibv_device_attr_ex {
            orig_attr, comp_mask, odp_caps, completion_timestamp_mask, hca_core_clock,
            device_cap_flags_ex, tso_caps, rss_caps, max_wq_type_rq, packet_pacing_caps,
            raw_packet_caps, tm_caps, cq_mod_caps, max_dm_size, pci_atomic_caps, xrc_odp_caps,
            phys_port_cnt_ex,
        }
        ibv_port_attr {
            state, max_mtu, active_mtu, gid_tbl_len, port_cap_flags, max_msg_sz, bad_pkey_cntr,
            qkey_viol_cntr, pkey_tbl_len, lid, sm_lid, lmc, max_vl_num, sm_sl, subnet_timeout,
            init_type_reply, active_width, active_speed, phys_state, link_layer, flags,
            port_cap_flags2,
        }
        ibv_gid_entry { gid, gid_index, port_num, gid_type, ndev_ifindex }
        ibv_async_event { element, event_type }
        ibv_pd { context, handle }
        ibv_td { context }
        ibv_td_init_attr { comp_mask }
        ibv_parent_domain_init_attr { pd, td, comp_mask, alloc, free, pd_context }
        ibv_mr { context, pd, addr, length, handle, lkey, rkey }
        ibv_mw { context, pd, rkey, handle, r#type = "type" }
        ibv_mw_bind_info { mr, addr, length, mw_access_flags }
        ibv_mw_bind { wr_id, send_flags, bind_info }
        ibv_alloc_dm_attr { length, log_align_req, comp_mask }
        ibv_dm { context, memcpy_to_dm, memcpy_from_dm, comp_mask, handle }
        ibv_global_route { dgid, flow_label, sgid_index, hop_limit, traffic_class }
        ibv_ah_attr { grh, dlid, sl, src_path_bits, static_rate, is_global, port_num }
        ibv_ah { context, pd, handle }
        ibv_grh { version_tclass_flow, paylen, next_hdr, hop_limit, sgid, dgid }
        ibv_srq { context, srq_context, pd, handle, mutex, cond, events_completed }
        ibv_srq_attr { max_wr, max_sge, srq_limit }
        ibv_srq_init_attr { srq_context, attr }
        ibv_srq_init_attr_ex { srq_context, attr, comp_mask, srq_type, pd, xrcd, cq, tm_cap }
        ibv_sge { addr, length, lkey }
        ibv_data_buf { addr, length }
        ibv_recv_wr { wr_id, next, sg_list, num_sge }
        ibv_send_wr {
            wr_id, next, sg_list, num_sge, opcode, send_flags, imm_data, wr,
            xrc_remote_srqn = "qp_type.xrc.remote_srqn", extra = "bind_mw",
        }
        ibv_comp_channel { context, fd, refcnt }
        ibv_cq {
            context, channel, cq_context, handle, cqe, mutex, cond, comp_events_completed,
            async_events_completed,
        }
        ibv_cq_ex {
            context, channel, cq_context, handle, cqe, mutex, cond, comp_events_completed,
            async_events_completed, comp_mask, status, wr_id, start_poll, next_poll, end_poll,
            read_opcode, read_vendor_err, read_byte_len, read_imm_data, read_qp_num, read_src_qp,
            read_wc_flags, read_slid, read_sl, read_dlid_path_bits, read_completion_ts, read_cvlan,
            read_flow_tag, read_tm_info, read_completion_wallclock_ns,
        }
        ibv_poll_cq_attr { comp_mask }
        ibv_wc_tm_info { tag, r#priv = "priv" }
        ibv_cq_init_attr_ex {
            cqe, cq_context, channel, comp_vector, wc_flags, comp_mask, flags, parent_domain,
        }
        ibv_modify_cq_attr { attr_mask, moderate }
        ibv_wc {
            wr_id, status, opcode, vendor_err, byte_len, imm_data, qp_num, src_qp, wc_flags,
            pkey_index, slid, sl, dlid_path_bits,
        }
        ibv_qp {
            context, qp_context, pd, send_cq, recv_cq, srq, handle, qp_num, state, qp_type, mutex,
            cond, events_completed,
        }
        ibv_qp_ex {
            qp_base, comp_mask, wr_id, wr_flags, wr_atomic_cmp_swp, wr_atomic_fetch_add, wr_bind_mw,
            wr_local_inv, wr_rdma_read, wr_rdma_write, wr_rdma_write_imm, wr_send, wr_send_imm,
            wr_send_inv, wr_send_tso, wr_set_ud_addr, wr_set_xrc_srqn, wr_set_inline_data,
            wr_set_inline_data_list, wr_set_sge, wr_set_sge_list, wr_start, wr_complete, wr_abort,
            wr_atomic_write,
        }
        ibv_qp_cap { max_send_wr, max_recv_wr, max_send_sge, max_recv_sge, max_inline_data }
        ibv_qp_init_attr { qp_context, send_cq, recv_cq, srq, cap, qp_type, sq_sig_all }
        ibv_qp_init_attr_ex {
            qp_context, send_cq, recv_cq, srq, cap, qp_type, sq_sig_all, comp_mask, pd, xrcd,
            create_flags, max_tso_header, rwq_ind_tbl, rx_hash_conf, source_qpn, send_ops_flags,
        }
        ibv_rx_hash_conf { rx_hash_function, rx_hash_key_len, rx_hash_key, rx_hash_fields_mask }
        ibv_qp_attr {
            qp_state, cur_qp_state, path_mtu, path_mig_state, qkey, rq_psn, sq_psn, dest_qp_num,
            qp_access_flags, cap, ah_attr, alt_ah_attr, pkey_index, alt_pkey_index,
            en_sqd_async_notify, sq_draining, max_rd_atomic, max_dest_rd_atomic, min_rnr_timer,
            port_num, timeout, retry_cnt, rnr_retry, alt_port_num, alt_timeout, rate_limit,
        }
        ibv_context { device, ops, cmd_fd, async_fd, num_comp_vectors, mutex, abi_compat }
        ibv_context_ops {
            alloc_mw, bind_mw, dealloc_mw, poll_cq, req_notify_cq, post_srq_recv, post_send,
            post_recv,
        }
        ibv_values_ex { comp_mask, raw_clock }
        verbs_context {
            query_port, advise_mr, alloc_null_mr, reg_dm_mr, alloc_dm, free_dm, alloc_parent_domain,
            dealloc_td, alloc_td, modify_cq, query_rt_values, create_cq_ex, query_device_ex,
            create_qp_ex, get_srq_num, create_srq_ex, close_xrcd, sz, context,
        }
        ib_uverbs_ah_attr {
            dgid = "grh.dgid", flow_label = "grh.flow_label", sgid_index = "grh.sgid_index",
            hop_limit = "grh.hop_limit", traffic_class = "grh.traffic_class", dlid, sl,
            src_path_bits, static_rate, is_global, port_num,
        }
        ib_uverbs_qp_attr {
            qp_attr_mask, qp_state, cur_qp_state, path_mtu, path_mig_state, qkey, rq_psn, sq_psn,
            dest_qp_num, qp_access_flags, ah_attr, alt_ah_attr, max_send_wr, max_recv_wr,
            max_send_sge, max_recv_sge, max_inline_data, pkey_index, alt_pkey_index,
            en_sqd_async_notify, sq_draining, max_rd_atomic, max_dest_rd_atomic, min_rnr_timer,
            port_num, timeout, retry_cnt, rnr_retry, alt_port_num, alt_timeout,
        }
        ib_user_path_rec {
            dgid, sgid, dlid, slid, raw_traffic, flow_label, reversible, mtu, pkey, hop_limit,
            traffic_class, numb_path, sl, mtu_selector, rate_selector, rate,
            packet_life_time_selector, packet_life_time, preference,
        }
        ibv_sa_path_rec {
            dgid, sgid, dlid, slid, raw_traffic, flow_label, hop_limit, traffic_class, reversible,
            numb_path, pkey, sl, mtu_selector, mtu, rate_selector, rate, packet_life_time_selector,
            packet_life_time, preference,
        }
        rdma_ucm_cmd_hdr { cmd, r#in = "in", out }
        rdma_ucm_create_id { uid, response, ps, qp_type, reserved }
        rdma_ucm_create_id_resp { id }
        rdma_ucm_destroy_id { response, id, reserved }
        rdma_ucm_destroy_id_resp { events_reported }
        rdma_ucm_bind_ip { response, addr, id }
        rdma_ucm_bind { id, addr_size, reserved, addr }
        rdma_ucm_resolve_ip { src_addr, dst_addr, id, timeout_ms }
        rdma_ucm_resolve_addr { id, timeout_ms, src_size, dst_size, reserved, src_addr, dst_addr }
        rdma_ucm_resolve_route { id, timeout_ms }
        rdma_ucm_query { response, id, option }
        rdma_ucm_query_route_resp {
            node_guid, ib_route, src_addr, dst_addr, num_paths, port_num, reserved, ibdev_index,
            reserved1,
        }
        rdma_ucm_query_addr_resp {
            node_guid, port_num, reserved, pkey, src_size, dst_size, src_addr, dst_addr,
            ibdev_index, reserved1,
        }
        rdma_ucm_query_path_resp { num_paths, reserved }
        ib_path_rec_data { flags, reserved, path_rec }
        rdma_ucm_conn_param {
            qp_num, qkey, private_data, private_data_len, srq, responder_resources, initiator_depth,
            flow_control, retry_count, rnr_retry_count, valid,
        }
        rdma_ucm_ud_param { qp_num, qkey, ah_attr, private_data, private_data_len, reserved }
        rdma_ucm_ece { vendor_id, attr_mod }
        rdma_ucm_connect { conn_param, id, reserved, ece }
        rdma_ucm_listen { id, backlog }
        rdma_ucm_accept { uid, conn_param, id, reserved, ece }
        rdma_ucm_reject { id, private_data_len, reason, reserved, private_data }
        rdma_ucm_disconnect { id }
        rdma_ucm_init_qp_attr { response, id, qp_state }
        rdma_ucm_notify { id, event }
        rdma_ucm_join_ip_mcast { response, uid, addr, id }
        rdma_ucm_join_mcast { response, uid, id, addr_size, join_flags, addr }
        rdma_ucm_get_event { response }
        rdma_ucm_event_resp { uid, id, event, status, param, reserved, ece }
        rdma_ucm_set_option { optval, id, level, optname, optlen }
        rdma_ucm_migrate_id { response, id, fd }
        rdma_ucm_migrate_resp { events_reported }
        sockaddr_ib {
            sib_family, sib_pkey, sib_flowinfo, sib_addr, sib_sid, sib_sid_mask, sib_scope_id,
        }
    }
}

/// Structures whose size differs between releases: those that grow, at the end or at the front.
const GROWING: [&str; 3] = ["ibv_port_attr", "ibv_qp_ex", "verbs_context"];

/// Returns what the installed headers say: `name` to its size, `name.field` to its offset.
fn installed(layouts: &[Layout]) -> BTreeMap<String, usize> {
    let mut program = String::from(
        "#include <stdio.h>\n#include <infiniband/verbs.h>\n#include <infiniband/sa.h>\n\
         #include <rdma/ib_user_verbs.h>\n#include <rdma/ib_user_sa.h>\n\
         #include <rdma/rdma_user_cm.h>\n#include <infiniband/ib.h>\nint main(void) {\n",
    );
    for Layout { name, fields, .. } in layouts {
        writeln!(program, "printf(\"{name} %zu\\n\", sizeof(struct {name}));").unwrap();
        for (field, _) in fields {
            let offset = format!("offsetof(struct {name}, {field})");
            writeln!(program, "printf(\"{name}.{field} %zu\\n\", {offset});").unwrap();
        }
    }
    program += "return 0; }\n";
    let folder = std::env::temp_dir().join(format!("roce-abi-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let (source, binary) = (folder.join("layout.c"), folder.join("layout"));
    std::fs::write(&source, program).unwrap();
    let compiled = Command::new("cc").arg(&source).arg("-o").arg(&binary).status().unwrap();
    assert!(compiled.success());
    let printed = Command::new(&binary).output().unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
    let lines = String::from_utf8(printed.stdout).unwrap();
    let pair = |line: &str| {
        let (name, number) = line.split_once(' ').unwrap();
        (name.to_owned(), number.parse().unwrap())
    };
    lines.lines().map(pair).collect()
}

#[tier1("libibverbs-dev and cc")]
fn every_structure_has_the_layout_of_the_installed_headers() {
    let ours = layouts();
    let theirs = installed(&ours);
    let mut differences = Vec::new();
    for Layout { name, size, fields } in &ours {
        let their_size = theirs[*name];
        let grows = GROWING.contains(name);
        if *size < their_size || (!grows && *size != their_size) {
            differences.push(format!("{name} has {size} bytes, the headers have {their_size}"));
        }
        // New fields of a context come in front: offsets count from its end.
        let shift = if *name == "verbs_context" { size - their_size } else { 0 };
        for (field, offset) in fields {
            let their_offset = theirs[&format!("{name}.{field}")];
            if offset - shift != their_offset {
                differences.push(format!("{name}.{field} is at {offset}, not {their_offset}"));
            }
        }
    }
    assert_eq!(differences, Vec::<String>::new());
}

#[test]
fn structures_have_the_sizes_of_the_newest_release() {
    assert_eq!(size_of::<verbs_context>(), 696);
    assert_eq!(size_of::<ibv_port_attr>(), 56);
    assert_eq!(size_of::<ibv_qp_ex>(), 360);
    assert_eq!(offset_of!(verbs_context, context), 368);
    assert_eq!(offset_of!(ibv_port_attr, active_speed_ex), 52);
}
