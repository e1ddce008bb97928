//! The names and symbol versions under which functions are exported.
//!
//! A name that Rust exports itself has no version, so each exported function is a jump, written in
//! assembly, with a version of its own. The linker is told the versions by a script, which
//! [`version_script`] writes.

/// The nodes of the public names, each with the one it follows.
pub const PUBLIC_NODES: [&str; 16] = [
    "1.0", "1.1", "1.5", "1.6", "1.7", "1.8", "1.9", "1.10", "1.11", "1.12", "1.13", "1.14",
    "1.15", "1.16", "1.17", "1.18",
];

/// The nodes of the names that vendor libraries use, by release: those that exist, and the next
/// ones, so that a library that is newer than this one loads as long as it needs no new name.
/// [`export_private!`](crate::export_private) has the same list.
pub const PRIVATE_NODES: [u32; 22] =
    [25, 33, 34, 57, 59, 64, 65, 66, 67, 68, 69, 70, 71, 72, 73, 74, 75, 76, 77, 78, 79, 80];

/// Returns the linker's version script: the nodes, without names, as each name carries its own. All other
/// names are local. `ROCE_PRIVATE_1` is the node of functions for the preloaded library.
pub fn version_script() -> String {
    let mut script = String::new();
    let (mut before, mut names) = (String::new(), " local: *; ");
    for node in PUBLIC_NODES {
        script += &format!("IBVERBS_{node} {{{names}}}{before};\n");
        names = " ";
        before = format!(" IBVERBS_{node}");
    }
    script += "ROCE_PRIVATE_1 { };\n";
    for node in PRIVATE_NODES {
        script += &format!("IBVERBS_PRIVATE_{node} {{ }};\n");
    }
    script
}

/// The instruction that jumps to a function.
#[cfg(target_arch = "x86_64")]
#[doc(hidden)]
#[macro_export]
macro_rules! jump {
    () => {
        "jmp"
    };
}

/// The instruction that jumps to a function, which is at most 128 MiB away.
#[cfg(target_arch = "aarch64")]
#[doc(hidden)]
#[macro_export]
macro_rules! jump {
    () => {
        "b"
    };
}

/// Exports functions under C names, in the nodes of their versions.
///
/// ```ignore
/// roce_abi::export! {
///     "IBVERBS_1.1" { ibv_alloc_pd = crate::protection_domain::alloc }
/// }
/// ```
#[macro_export]
macro_rules! export {
    ($( $version:literal { $($name:ident = $function:path),+ $(,)? } )+) => { $($(
        ::core::arch::global_asm!(
            ".pushsection .text.roce_exports, \"ax\", @progbits",
            concat!(".globl __roce_", stringify!($name)),
            concat!(".type __roce_", stringify!($name), ", @function"),
            concat!("__roce_", stringify!($name), ":"),
            concat!($crate::jump!(), " {function}"),
            concat!(".size __roce_", stringify!($name), ", . - __roce_", stringify!($name)),
            concat!(".symver __roce_", stringify!($name), ", ", stringify!($name), "@@", $version),
            ".popsection",
            function = sym $function,
        );
    )+)+ };
}

/// Exports the private names, which only libraries of vendors and tools of rdma-core import: they
/// must exist for those to load.
///
/// `$query_gid_type` is the one that does something; `$nothing` returns no value, `$null` a null
/// pointer, and `$unsupported` the error EOPNOTSUPP.
///
/// The last node has the default version of each name: bindings look some up by `dlsym` without a
/// version, which finds defaults alone.
#[macro_export]
macro_rules! export_private {
    ($query_gid_type:path, $unsupported:path, $null:path, $nothing:path) => {
        ::core::arch::global_asm!(
            ".pushsection .text.roce_exports, \"ax\", @progbits",
            ".type __roce_gid_type, @function",
            concat!("__roce_gid_type: ", $crate::jump!(), " {query_gid_type}"),
            ".type __roce_unsupported, @function",
            concat!("__roce_unsupported: ", $crate::jump!(), " {unsupported}"),
            ".type __roce_null, @function",
            concat!("__roce_null: ", $crate::jump!(), " {null}"),
            ".type __roce_nothing, @function",
            concat!("__roce_nothing: ", $crate::jump!(), " {nothing}"),
            ".popsection",
            ".pushsection .data.roce_exports, \"aw\", @progbits",
            "__roce_false: .byte 0",
            ".popsection",
            ".macro __roce_private node, name, target",
            ".globl __roce_\\node\\()_\\name",
            ".type __roce_\\node\\()_\\name, @function",
            ".set __roce_\\node\\()_\\name, \\target",
            ".ifc \\node, 80",
            ".symver __roce_\\node\\()_\\name, \\name\\()@@IBVERBS_PRIVATE_\\node",
            ".else",
            ".symver __roce_\\node\\()_\\name, \\name\\()@IBVERBS_PRIVATE_\\node",
            ".endif",
            ".endm",
            ".irp node, 25, 33, 34, 57, 59, 64, 65, 66, 67, 68, 69, 70, 71, 72, 73, 74, 75, 76, 77, 78, 79, 80",
            "__roce_private \\node, ibv_query_gid_type, __roce_gid_type",
            "__roce_private \\node, verbs_register_driver_\\node, __roce_nothing",
            "__roce_private \\node, __verbs_log, __roce_nothing",
            "__roce_private \\node, verbs_init_cq, __roce_nothing",
            "__roce_private \\node, verbs_set_ops, __roce_nothing",
            "__roce_private \\node, verbs_uninit_context, __roce_nothing",
            "__roce_private \\node, ibv_dmabuf_heap_cc_shared_init, __roce_nothing",
            "__roce_private \\node, ibv_dmabuf_heap_destroy, __roce_nothing",
            "__roce_private \\node, ibv_dmabuf_heap_free, __roce_nothing",
            "__roce_private \\node, _verbs_init_and_alloc_context, __roce_null",
            "__roce_private \\node, verbs_open_device, __roce_null",
            "__roce_private \\node, ibv_dmabuf_heap_alloc, __roce_null",
            "__roce_private \\node, ibv_wr_opcode_str, __roce_null",
            ".globl __roce_\\node\\()_allow",
            ".type __roce_\\node\\()_allow, @object",
            ".set __roce_\\node\\()_allow, __roce_false",
            ".size __roce_\\node\\()_allow, 1",
            ".ifc \\node, 80",
            ".symver __roce_\\node\\()_allow, verbs_allow_disassociate_destroy@@IBVERBS_PRIVATE_\\node",
            ".else",
            ".symver __roce_\\node\\()_allow, verbs_allow_disassociate_destroy@IBVERBS_PRIVATE_\\node",
            ".endif",
            ".endr",
            ".irp name, __ioctl_final_num_attrs, execute_ioctl, ibv_cmd_advise_mr, ibv_cmd_alloc_dm, ibv_cmd_alloc_dmah, ibv_cmd_alloc_mw, ibv_cmd_alloc_pd, ibv_cmd_attach_mcast, ibv_cmd_close_xrcd, ibv_cmd_create_ah, ibv_cmd_create_comp_cntr, ibv_cmd_create_counters, ibv_cmd_create_cq, ibv_cmd_create_cq_ex, ibv_cmd_create_cq_ex2, ibv_cmd_create_flow, ibv_cmd_create_flow_action_esp, ibv_cmd_create_qp, ibv_cmd_create_qp_ex, ibv_cmd_create_qp_ex2, ibv_cmd_create_rwq_ind_table, ibv_cmd_create_srq, ibv_cmd_create_srq_ex, ibv_cmd_create_wq, ibv_cmd_dealloc_mw, ibv_cmd_dealloc_pd, ibv_cmd_dereg_mr, ibv_cmd_destroy_ah, ibv_cmd_destroy_comp_cntr, ibv_cmd_destroy_counters, ibv_cmd_destroy_cq, ibv_cmd_destroy_flow, ibv_cmd_destroy_flow_action, ibv_cmd_destroy_qp, ibv_cmd_destroy_rwq_ind_table, ibv_cmd_destroy_srq, ibv_cmd_destroy_wq, ibv_cmd_detach_mcast, ibv_cmd_export_dmabuf_fd, ibv_cmd_free_dm, ibv_cmd_free_dmah, ibv_cmd_get_context, ibv_cmd_inc_comp_cntr, ibv_cmd_inc_err_comp_cntr, ibv_cmd_modify_cq, ibv_cmd_modify_flow_action_esp, ibv_cmd_modify_qp, ibv_cmd_modify_qp_ex, ibv_cmd_modify_srq, ibv_cmd_modify_wq, ibv_cmd_open_qp, ibv_cmd_open_xrcd, ibv_cmd_poll_cq, ibv_cmd_post_recv, ibv_cmd_post_send, ibv_cmd_post_srq_recv, ibv_cmd_qp_attach_comp_cntr, ibv_cmd_query_comp_cntr_caps, ibv_cmd_query_context, ibv_cmd_query_device, ibv_cmd_query_device_any, ibv_cmd_query_device_ex, ibv_cmd_query_mr, ibv_cmd_query_port, ibv_cmd_query_port_speed, ibv_cmd_query_qp, ibv_cmd_query_srq, ibv_cmd_read_comp_cntr, ibv_cmd_read_counters, ibv_cmd_read_err_comp_cntr, ibv_cmd_reg_dm_mr, ibv_cmd_reg_dmabuf_mr, ibv_cmd_reg_mr, ibv_cmd_reg_mr_ex, ibv_cmd_req_notify_cq, ibv_cmd_rereg_mr, ibv_cmd_resize_cq, ibv_cmd_set_comp_cntr, ibv_cmd_set_err_comp_cntr, ibv_get_fw_ver, ibv_read_ibdev_sysfs_file",
            ".irp node, 25, 33, 34, 57, 59, 64, 65, 66, 67, 68, 69, 70, 71, 72, 73, 74, 75, 76, 77, 78, 79, 80",
            "__roce_private \\node, \\name, __roce_unsupported",
            ".endr",
            ".endr",
            query_gid_type = sym $query_gid_type,
            unsupported = sym $unsupported,
            null = sym $null,
            nothing = sym $nothing,
        );
    };
}
