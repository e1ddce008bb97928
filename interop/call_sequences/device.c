/* Calls that ask for what a device is, and the files that say the same. */
#define _GNU_SOURCE
#include "sequences.h"

#include <stdlib.h>
#include <string.h>

static void query_port(void)
{
	uint32_t port = ONE_OF(1, 1, 0, 2, 255);
	struct ibv_port_attr a = { 0 };
	call("ibv_query_port");
	arg("port=%u", port);
	int code = ibv_query_port(t.context, (uint8_t)port, &a);
	result_code(code);
	if (!code) {
		out("state=%u max_mtu=%u active_mtu=%u gids=%s cap=%#x max_msg=%#x bad_pkey=%u pkeys=%u", a.state,
		    a.max_mtu, a.active_mtu, a.gid_tbl_len ? "some" : "none", a.port_cap_flags, a.max_msg_sz, a.bad_pkey_cntr,
		    a.pkey_tbl_len);
		out("lid=%u sm_lid=%u lmc=%u vl=%u sm_sl=%u timeout=%u init=%u width=%u speed=%u phys=%u link=%u flags=%#x cap2=%#x",
		    a.lid, a.sm_lid, a.lmc, a.max_vl_num, a.sm_sl, a.subnet_timeout, a.init_type_reply, a.active_width,
		    a.active_speed, a.phys_state, a.link_layer, a.flags, a.port_cap_flags2);
	}
	end_call();
}

static void query_gid(void)
{
	uint32_t port = chance(80) ? 1 : ONE_OF(0, 2), index = ONE_OF(0, 1, 2, 3, 100, 254, 1u << 31);
	union ibv_gid gid = { .raw = { 0 } };
	static const union ibv_gid zero;
	call("ibv_query_gid");
	if (chance(20)) {
		struct ibv_port_attr attributes = { 0 };
		ibv_query_port(t.context, 1, &attributes);
		uint32_t beyond = pick(2);
		index = (uint32_t)attributes.gid_tbl_len - 1 + beyond;
		arg("port=%u index=length%s", port, beyond ? "" : "-1");
	} else {
		arg("port=%u index=%u", port, index);
	}
	result_code(ibv_query_gid(t.context, (uint8_t)port, (int)index, &gid));
	out("zero=%d", !memcmp(&gid, &zero, 16));
	end_call();
}

static void query_gid_ex(void)
{
	uint32_t port = chance(80) ? 1 : ONE_OF(0, 2), index = ONE_OF(0, 1, 100, UINT32_MAX);
	uint32_t flags = chance(85) ? 0 : 1;
	struct ibv_gid_entry entry = { 0 };
	call("ibv_query_gid_ex");
	arg("port=%u index=%u flags=%u", port, index, flags);
	int code = ibv_query_gid_ex(t.context, port, index, &entry, flags);
	result_code(code);
	if (!code)
		out("index=%u port=%u type=%u", entry.gid_index, entry.port_num, entry.gid_type);
	end_call();
}

static void query_gid_table(void)
{
	struct ibv_gid_entry entries[300];
	uint32_t count = ONE_OF(300, 1, 0, 300);
	call("ibv_query_gid_table");
	arg("count=%u", count);
	ssize_t got = ibv_query_gid_table(t.context, entries, count, 0);
	result_text(got < 0 ? errno_name((int)-got) : got > 0 ? "some" : "none");
	end_call();
}

static void query_pkey(void)
{
	uint32_t port = chance(80) ? 1 : ONE_OF(0, 2), index = ONE_OF(0, 0, 1, 63, 64, UINT32_MAX);
	__be16 pkey = 0;
	call("ibv_query_pkey");
	arg("port=%u index=%u", port, index);
	int code = ibv_query_pkey(t.context, (uint8_t)port, (int)index, &pkey);
	result_code(code);
	if (!code)
		out("pkey=%#x at=%d", be16toh(pkey), ibv_get_pkey_index(t.context, (uint8_t)port, pkey));
	end_call();
}

static void query_device(void)
{
	struct ibv_device_attr a = { .node_guid = 0 };
	call("ibv_query_device");
	arg("all");
	result_code(ibv_query_device(t.context, &a));
	out("page=%#llx cap=%#x atomic=%u ports=%u pkeys=%u ee=%d rdd=%d raw_ipv6=%d raw_ethy=%d fmr=%d map=%d delay=%u",
	    (unsigned long long)a.page_size_cap, a.device_cap_flags, a.atomic_cap, a.phys_port_cnt, a.max_pkeys, a.max_ee,
	    a.max_rdd, a.max_raw_ipv6_qp, a.max_raw_ethy_qp, a.max_fmr, a.max_map_per_fmr, a.local_ca_ack_delay);
	out("mr_size=%#llx", (unsigned long long)a.max_mr_size);
	/* How many there may be differs from device to device. */
	out("qp_wr=%d sge=%d sge_rd=%d cqe=%d rd=%d res_rd=%d init_rd=%d srq_wr=%d srq_sge=%d mcast=%d mcast_qp=%d total=%d",
	    a.max_qp_wr > 0, a.max_sge > 0, a.max_sge_rd > 0, a.max_cqe > 0, a.max_qp_rd_atom > 0, a.max_res_rd_atom > 0,
	    a.max_qp_init_rd_atom > 0, a.max_srq_wr > 0, a.max_srq_sge > 0, a.max_mcast_grp > 0, a.max_mcast_qp_attach > 0,
	    a.max_total_mcast_qp_attach > 0);
	out("vendor=%#x part=%#x hw=%#x guid=%d image=%d firmware=%d", a.vendor_id, a.vendor_part_id, a.hw_ver, a.node_guid != 0,
	    a.sys_image_guid != 0, a.fw_ver[0] != 0);
	end_call();
}

static void query_device_ex(void)
{
	struct ibv_device_attr_ex a;
	struct ibv_query_device_ex_input input = { .comp_mask = chance(80) ? 0 : 1 };
	memset(&a, 0, sizeof a);
	call("ibv_query_device_ex");
	arg("comp_mask=%u", input.comp_mask);
	int code = ibv_query_device_ex(t.context, chance(50) ? &input : NULL, &a);
	result_code(code);
	if (!code)
		out("comp=%#x odp=%#llx timestamp=%d clock=%d tso=%u rss=%u wq=%u packet=%u raw=%u tm=%u dm=%d cap=%#llx xrc_odp=%u cq_mod=%u/%u pci=%u",
		    a.comp_mask, (unsigned long long)a.odp_caps.general_caps, a.completion_timestamp_mask != 0,
		    a.hca_core_clock != 0, a.tso_caps.max_tso, a.rss_caps.supported_qpts, a.max_wq_type_rq,
		    a.packet_pacing_caps.supported_qpts, a.raw_packet_caps, a.tm_caps.flags, a.max_dm_size != 0,
		    (unsigned long long)a.device_cap_flags_ex, a.xrc_odp_caps, a.cq_mod_caps.max_cq_count, a.cq_mod_caps.max_cq_period,
		    a.pci_atomic_caps.fetch_add);
	end_call();
}

static void ask_names(void)
{
	call("ibv_get_device_guid");
	arg("and names");
	result_text("all");
	out("guid=%d index=%d node=%d transport=%d vectors=%d", ibv_get_device_guid(t.context->device) != 0,
	    ibv_get_device_index(t.context->device) >= 0, t.context->device->node_type, t.context->device->transport_type,
	    t.context->num_comp_vectors > 0);
	end_call();
}

static void query_rt_values(void)
{
	struct ibv_values_ex values = { .comp_mask = chance(70) ? IBV_VALUES_MASK_RAW_CLOCK : ONE_OF(0, 2) };
	call("ibv_query_rt_values_ex");
	arg("mask=%u", values.comp_mask);
	int code = ibv_query_rt_values_ex(t.context, &values);
	result_code(code);
	if (!code)
		out("mask=%u", values.comp_mask);
	end_call();
}

static void open_again(void)
{
	call("ibv_open_device");
	arg("again");
	struct ibv_context *other = ibv_open_device(t.context->device);
	result_pointer(other);
	if (other)
		out("same=%d close=%s", other == t.context, errno_name(ibv_close_device(other)));
	end_call();
}

static void fork_calls(void)
{
	call("ibv_is_fork_initialized");
	arg("and ibv_fork_init");
	result_text("value");
	int is_first = (int)ibv_is_fork_initialized();
	int code = ibv_fork_init();
	out("before=%d init=%s after=%d", is_first, errno_name(code), (int)ibv_is_fork_initialized());
	end_call();
}

/* What ibv_devinfo, UCX, NCCL and hwloc read; contents that every device has of its own are left out. */
static const struct {
	const char *path;
	int has_content;
} files[] = {
	{ "node_type", 1 }, { "node_guid", 0 }, { "sys_image_guid", 0 }, { "fw_ver", 0 }, { "node_desc", 0 },
	{ "board_id", 0 }, { "hca_type", 0 }, { "hw_rev", 0 }, { "device", 0 }, { "device/numa_node", 0 },
	{ "device/local_cpus", 0 }, { "device/vendor", 0 }, { "device/class", 0 }, { "device/infiniband", 0 },
	{ "ports", 0 }, { "ports/1/state", 1 }, { "ports/1/phys_state", 1 }, { "ports/1/rate", 0 },
	{ "ports/1/lid", 1 }, { "ports/1/lid_mask_count", 1 }, { "ports/1/link_layer", 1 }, { "ports/1/sm_lid", 1 },
	{ "ports/1/sm_sl", 1 }, { "ports/1/cap_mask", 1 }, { "ports/1/pkeys/0", 1 }, { "ports/1/pkeys/1", 1 },
	{ "ports/1/pkeys/63", 1 }, { "ports/1/pkeys/64", 1 }, { "ports/1/gids/0", 0 }, { "ports/1/gids/1", 0 },
	{ "ports/1/gids/15", 1 }, { "ports/1/gids/254", 1 }, { "ports/1/gids/1023", 1 }, { "ports/1/gids/1024", 1 },
	{ "ports/1/gid_attrs/types/0", 1 }, { "ports/1/gid_attrs/types/1", 1 }, { "ports/1/gid_attrs/types/15", 1 },
	{ "ports/1/gid_attrs/types/254", 1 }, { "ports/1/gid_attrs/ndevs/0", 0 }, { "ports/1/gid_attrs/ndevs/1", 0 },
	{ "ports/1/gid_attrs/ndevs/15", 1 }, { "ports/1/counters", 0 }, { "ports/1/hw_counters", 0 }, { "ports/2", 0 },
};

static void note_file(const char *folder, const char *name, const char *shown, int has_content)
{
	char path[512], text[128] = "";
	snprintf(path, sizeof path, "%s/%s", folder, name);
	FILE *file = fopen(path, "r");
	if (!file) {
		note("file %s missing", shown);
		return;
	}
	size_t got = fread(text, 1, sizeof text - 1, file);
	int is_readable = !ferror(file);
	fclose(file);
	text[got] = 0;
	for (char *at = text; *at; at++)
		*at = *at == '\n' ? '|' : *at == ' ' ? '_' : *at;
	note("file %s %s%s", shown, is_readable ? "content " : "no-content", has_content ? text : "");
}

void note_files(void)
{
	char path[256];
	snprintf(path, sizeof path, "/sys/class/infiniband/%s", ibv_get_device_name(t.context->device));
	for (size_t i = 0; i < sizeof files / sizeof *files; i++)
		note_file(path, files[i].path, files[i].path, files[i].has_content);
	snprintf(path, sizeof path, "/sys/class/infiniband_verbs/%s", t.context->device->dev_name);
	note_file(path, "abi_version", "infiniband_verbs/abi_version", 1);
	note_file(path, "ibdev", "infiniband_verbs/ibdev", 0);
	note_file(path, "dev", "infiniband_verbs/dev", 0);
	note_file("/sys/class/infiniband_verbs", "abi_version", "infiniband_verbs/class_abi_version", 1);
	note_file("/sys/class/misc/rdma_cm", "abi_version", "rdma_cm/abi_version", 1);
	note_file("/sys/class/net/eth0/device", "infiniband", "net/device/infiniband", 0);
}

const struct step device_steps[] = {
	{ query_port, 2 },
	{ query_gid, 2 },
	{ query_gid_ex, 1 },
	{ query_gid_table, 1 },
	{ query_pkey, 1 },
	{ query_device, 1 },
	{ query_device_ex, 1 },
	{ ask_names, 1 },
	{ query_rt_values, 1 },
	{ open_again, 1 },
	{ fork_calls, 1 },
	{ 0 },
};
