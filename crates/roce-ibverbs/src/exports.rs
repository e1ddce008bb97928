//! The names that programs find, with the versions of libibverbs.

use crate::{
    address_handle, async_event, buffer, completion_channel, completion_queue, context,
    device_list, dma_buffer, kernel_structures, link_layer, memory_region, multicast, open,
    protection_domain, qp_attributes, query, queue_pair, rate, refused, registration,
    shared_receive_queue, text, ucma,
};

roce_abi::export! {
    "IBVERBS_1.0" {
        ibv_create_comp_channel = completion_channel::create,
        ibv_destroy_comp_channel = completion_channel::destroy,
        ibv_copy_path_rec_from_kern = kernel_structures::copy_path_from,
        ibv_copy_path_rec_to_kern = kernel_structures::copy_path_to,
        ibv_copy_qp_attr_from_kern = kernel_structures::copy_queue_pair,
        ibv_get_sysfs_path = device_list::sysfs_path,
        ibv_read_sysfs_file = device_list::read_sysfs_file,
        ibv_rate_to_mult = rate::to_multiple,
        mult_to_ibv_rate = rate::of_multiple,
    }
    "IBVERBS_1.1" {
        ibv_ack_async_event = async_event::ack,
        ibv_ack_cq_events = completion_queue::ack_events,
        ibv_alloc_pd = protection_domain::alloc,
        ibv_attach_mcast = multicast::attach,
        ibv_close_device = context::close,
        ibv_copy_ah_attr_from_kern = kernel_structures::copy_address,
        ibv_create_ah = address_handle::create,
        ibv_create_ah_from_wc = address_handle::create_from_wc,
        ibv_create_cq = completion_queue::create,
        ibv_create_qp = queue_pair::create,
        ibv_create_srq = shared_receive_queue::create,
        ibv_dealloc_pd = protection_domain::dealloc,
        ibv_dereg_mr = memory_region::dereg,
        ibv_destroy_ah = address_handle::destroy,
        ibv_destroy_cq = completion_queue::destroy,
        ibv_destroy_qp = queue_pair::destroy,
        ibv_destroy_srq = shared_receive_queue::destroy,
        ibv_detach_mcast = multicast::detach,
        ibv_dofork_range = refused::success,
        ibv_dontfork_range = refused::success,
        ibv_event_type_str = text::event_type,
        ibv_fork_init = refused::success,
        ibv_free_device_list = device_list::free,
        ibv_get_async_event = async_event::get,
        ibv_get_cq_event = completion_channel::get_event,
        ibv_get_device_guid = device_list::guid,
        ibv_get_device_list = device_list::get,
        ibv_get_device_name = device_list::name,
        ibv_init_ah_from_wc = address_handle::init_from_wc,
        ibv_modify_qp = qp_attributes::modify,
        ibv_modify_srq = shared_receive_queue::modify,
        ibv_node_type_str = text::node_type,
        ibv_open_device = open::device,
        ibv_port_state_str = text::port_state,
        ibv_query_device = query::device,
        ibv_query_gid = query::gid,
        ibv_query_pkey = query::pkey,
        ibv_query_port = query::port,
        ibv_query_qp = qp_attributes::query,
        ibv_query_srq = shared_receive_queue::query,
        ibv_rate_to_mbps = rate::to_mbps,
        ibv_reg_mr = memory_region::reg,
        ibv_register_driver = refused::nothing,
        ibv_rereg_mr = memory_region::rereg,
        ibv_resize_cq = completion_queue::resize,
        ibv_resolve_eth_l2_from_gid = link_layer::resolve,
        ibv_wc_status_str = text::wc_status,
        mbps_to_ibv_rate = rate::of_mbps,
    }
    "IBVERBS_1.5" { ibv_get_pkey_index = query::pkey_index }
    "IBVERBS_1.6" { ibv_qp_to_qp_ex = queue_pair::to_extended }
    "IBVERBS_1.7" { ibv_reg_mr_iova = memory_region::reg_iova }
    "IBVERBS_1.8" { ibv_reg_mr_iova2 = memory_region::reg_iova2 }
    "IBVERBS_1.9" { ibv_get_device_index = device_list::index }
    "IBVERBS_1.10" {
        ibv_import_device = refused::null,
        ibv_import_mr = refused::null,
        ibv_import_pd = refused::null,
        ibv_query_ece = refused::code,
        ibv_set_ece = refused::code,
        ibv_unimport_mr = refused::nothing,
        ibv_unimport_pd = refused::nothing,
    }
    "IBVERBS_1.11" {
        _ibv_query_gid_ex = query::gid_ex,
        _ibv_query_gid_table = query::gid_table,
    }
    "IBVERBS_1.12" { ibv_reg_dmabuf_mr = dma_buffer::register_dma_buffer }
    "IBVERBS_1.13" {
        ibv_import_dm = refused::null,
        ibv_is_fork_initialized = refused::fork_is_unneeded,
        ibv_unimport_dm = refused::nothing,
    }
    "IBVERBS_1.14" { ibv_query_qp_data_in_order = queue_pair::data_in_order }
    "IBVERBS_1.15" {
        ibv_alloc_dmah = refused::null,
        ibv_dealloc_dmah = refused::code,
        ibv_reg_mr_ex = registration::by_attributes,
    }
    "IBVERBS_1.16" {
        ibv_dm_export_dmabuf_fd = refused::minus_one,
        ibv_query_port_speed = query::port_speed,
    }
    "IBVERBS_1.17" {
        ibv_alloc_buf = buffer::alloc,
        ibv_free_buf = buffer::free,
        ibv_reg_buf_mr = registration::of_buffer,
    }
    "IBVERBS_1.18" {
        _ibv_query_comp_cntr_caps = refused::code,
        ibv_create_comp_cntr = refused::null,
        ibv_destroy_comp_cntr = refused::code,
        ibv_export_buf_dmabuf_fd = buffer::export_descriptor,
        ibv_inc_comp_cntr = refused::code,
        ibv_inc_err_comp_cntr = refused::code,
        ibv_qp_attach_comp_cntr = refused::code,
        ibv_read_comp_cntr = refused::code,
        ibv_read_err_comp_cntr = refused::code,
        ibv_set_comp_cntr = refused::code,
        ibv_set_err_comp_cntr = refused::code,
    }
    // For the preloaded library, which looks them up.
    "ROCE_PRIVATE_1" {
        roce_ucma_close = ucma::close,
        roce_ucma_open = ucma::open,
        roce_ucma_owns = ucma::owns,
        roce_ucma_write = ucma::write,
    }
}

roce_abi::export_private!(query::gid_type, refused::code, refused::null, refused::nothing);
